//! Certificates of a port: loaded, checked, and taken anew when their files change.
//!
//! I own what a TLS handshake is made with. I promise that certificates are taken whole (they
//! parse, and the key fits) or not at all, that open connections keep what they began with, and
//! that a bad new file leaves the old certificates in force with a log line. I never open a socket.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use thiserror::Error;
use tokio_rustls::rustls::crypto::{ring, CryptoProvider};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::TlsAcceptor;
use x509_cert::der::Decode as _;

use crate::config::{read_bounded, Tls};
use crate::limits::{
    CERTIFICATE_BYTES, CERTIFICATE_LOOK, CERTIFICATE_WARN, CERTIFICATE_WARN_EVERY,
};

/// Protocols that a gRPC port speaks inside TLS.
pub const GRPC: &[&[u8]] = &[b"h2"];
/// Protocols that the admin port speaks inside TLS.
pub const HTTP: &[&[u8]] = &[b"http/1.1"];

const BOTH: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
const ONLY_13: &[&SupportedProtocolVersion] = &[&TLS13];

/// The file that a fault is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// `cert_file`.
    Certificate,
    /// `key_file`.
    Key,
    /// `client_ca_file`.
    ClientAuthority,
}

/// Why certificates were not taken. Those in force stay in force. Content is never quoted.
#[derive(Debug, Error)]
#[error("{path}: {why}")]
pub struct TlsError {
    /// The file.
    pub file: TlsFile,
    path: String,
    why: String,
}

/// Certificates that fit together.
#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// When the first of them ends, seconds since 1970.
    expires_unix_s: Option<u64>,
}

/// The bytes of the three files; `None` for one that is not configured.
#[derive(Clone, PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authority: Option<Vec<u8>>,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Content(not shown: it holds a private key)")
    }
}

/// Reads the certificates of a port and checks that they fit together.
///
/// # Errors
/// [`TlsError`] names the file and what to do.
pub fn check(tls: &Tls) -> Result<(), TlsError> {
    build(tls, &read(tls)?, &[]).map(drop)
}

fn fault(file: TlsFile, tls: &Tls, why: impl ToString) -> TlsError {
    let path = match file {
        TlsFile::Certificate => Some(&tls.cert_file),
        TlsFile::Key => Some(&tls.key_file),
        TlsFile::ClientAuthority => tls.client_ca_file.as_ref(),
    };
    TlsError {
        file,
        path: path.map_or(String::new(), |path| path.display().to_string()),
        why: why.to_string(),
    }
}

fn read(tls: &Tls) -> Result<Content, TlsError> {
    let read = |file, path: &Path| {
        read_bounded(path, CERTIFICATE_BYTES).map_err(|error| {
            let text = error.to_string();
            // The path comes first in both.
            let bare = text.strip_prefix(&format!("{}: ", path.display()));
            fault(file, tls, bare.unwrap_or(&text))
        })
    };
    Ok(Content {
        certificate: read(TlsFile::Certificate, &tls.cert_file)?,
        key: read(TlsFile::Key, &tls.key_file)?,
        authority: match &tls.client_ca_file {
            Some(path) => Some(read(TlsFile::ClientAuthority, path)?),
            None => None,
        },
    })
}

fn build(tls: &Tls, content: &Content, protocols: &[&[u8]]) -> Result<Loaded, TlsError> {
    let chain = certificates(TlsFile::Certificate, tls, &content.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&content.key).map_err(|error| {
        let why =
            format!("no private key in it ({error}); a PEM file without a password is needed");
        fault(TlsFile::Key, tls, why)
    })?;
    let mut expires = chain.iter().filter_map(not_after_unix_s).min();
    let provider = Arc::new(ring::default_provider());
    let versions = if tls.only_tls13 { ONLY_13 } else { BOTH };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|error| fault(TlsFile::Certificate, tls, error))?;
    let builder = match &content.authority {
        None => builder.with_no_client_auth(),
        Some(bytes) => {
            let authorities = certificates(TlsFile::ClientAuthority, tls, bytes)?;
            let ends = authorities.iter().filter_map(not_after_unix_s).min();
            expires = [expires, ends].into_iter().flatten().min();
            builder.with_client_cert_verifier(verifier(tls, authorities, provider)?)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| {
        let why = match error {
            rustls::Error::InconsistentKeys(_) => format!(
                "it is not the key of the certificate in {}; renew both together",
                tls.cert_file.display()
            ),
            error => error.to_string(),
        };
        fault(TlsFile::Key, tls, why)
    })?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Loaded {
        config: Arc::new(config),
        expires_unix_s: expires,
    })
}

fn certificates(
    file: TlsFile,
    tls: &Tls,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(fault(
            file,
            tls,
            "no certificate in it; a PEM file is needed",
        )),
        Err(error) => Err(fault(file, tls, format!("it is no PEM file: {error}"))),
    }
}

fn verifier(
    tls: &Tls,
    authorities: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let added = roots.add(authority);
        added.map_err(|error| fault(TlsFile::ClientAuthority, tls, error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| fault(TlsFile::ClientAuthority, tls, error))
}

/// When a certificate ends; `None` when it does not say so legibly (a client will say more).
fn not_after_unix_s(certificate: &CertificateDer<'_>) -> Option<u64> {
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    let end = certificate.tbs_certificate().validity().not_after;
    Some(end.to_unix_duration().as_secs())
}

/// The certificates in force of one port.
#[derive(Debug)]
pub struct Source {
    /// The section of the configuration, for log lines.
    section: &'static str,
    tls: Tls,
    protocols: &'static [&'static [u8]],
    /// What `current` was made of at the start.
    started_with: Content,
    current: ArcSwap<Loaded>,
    reloads: AtomicU64,
    refusals: AtomicU64,
}

impl Source {
    /// Loads the certificates of a section.
    ///
    /// # Errors
    /// As [`check`].
    pub fn start(
        section: &'static str,
        tls: Tls,
        protocols: &'static [&'static [u8]],
    ) -> Result<Source, TlsError> {
        let started_with = read(&tls)?;
        let loaded = build(&tls, &started_with, protocols)?;
        Ok(Source {
            section,
            tls,
            protocols,
            started_with,
            current: ArcSwap::from_pointee(loaded),
            reloads: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        })
    }

    /// What the next handshake is made with.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.load().config))
    }

    /// When the first certificate in force ends, seconds since 1970; `None` when it is illegible.
    pub fn expires_unix_s(&self) -> Option<u64> {
        self.current.load().expires_unix_s
    }

    /// How often new certificates were taken.
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed) // a count that orders nothing
    }

    /// How often new files were refused.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed) // as above
    }

    /// Looks at the files for ever, and at the calendar.
    pub async fn watch(self: Arc<Self>) {
        let mut look = tokio::time::interval(CERTIFICATE_LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut seen = Ok(self.started_with.clone());
        let mut warned: Option<Instant> = None;
        loop {
            look.tick().await;
            // A file may be on a network that stalls: not on a thread that serves.
            let source = Arc::clone(&self);
            let read = tokio::task::spawn_blocking(move || source.look(seen)).await;
            seen = read.unwrap_or_else(|error| Err(error.to_string()));
            if warned.is_none_or(|at| at.elapsed() >= CERTIFICATE_WARN_EVERY) && self.warn() {
                warned = Some(Instant::now());
            }
        }
    }

    /// One look at the files; returns what was found, so that the same is not judged twice. The
    /// content is compared, because the ways in which files are replaced (rename, symlinks,
    /// rewriting) have nothing else in common.
    fn look(&self, seen: Result<Content, String>) -> Result<Content, String> {
        let found = read(&self.tls).map_err(|error| error.to_string());
        if found == seen {
            return found;
        }
        let built = match &found {
            Ok(content) => {
                build(&self.tls, content, self.protocols).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.clone()),
        };
        match built {
            Ok(loaded) => {
                tracing::info!(
                    "{}: new certificates are in force; open connections keep theirs",
                    self.section
                );
                self.current.store(Arc::new(loaded));
                self.reloads.fetch_add(1, Ordering::Relaxed); // as above
            }
            Err(error) => {
                tracing::error!(
                    "{}: {error}. The certificates in force stay in force",
                    self.section
                );
                self.refusals.fetch_add(1, Ordering::Relaxed); // as above
            }
        }
        found
    }

    /// Warns of an end that is near; gives whether it did.
    fn warn(&self) -> bool {
        let Some(end) = self.expires_unix_s() else {
            return false;
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs());
        let section = self.section;
        match end.checked_sub(now) {
            None => tracing::error!(
                "{section}: a certificate has expired; clients refuse it. Replace the files, they \
                 are taken without a restart"
            ),
            Some(left) if Duration::from_secs(left) < CERTIFICATE_WARN => tracing::warn!(
                "{section}: a certificate expires in {} days and {} hours; renew it",
                left / 86_400,
                left % 86_400 / 3_600
            ),
            Some(_) => return false,
        }
        true
    }
}
