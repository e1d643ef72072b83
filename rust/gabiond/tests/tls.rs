//! TLS: who is served and who is not, and certificates that change under a running process.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::SystemTime;

use common::{ended_with, run, text, until, Member, Scratch, PATIENCE, PORTS};
use gabion_server::protocol::{descriptor, request, Code, RateLimitServiceClient};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

const RULES: &str = "limits:\n- {name: ip, domain: edge, rate: 99r/h, descriptors: [{key: ip}]}\n";

/// Somebody who signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate of this machine and its key, PEM.
    fn sign(&self) -> (String, String) {
        self.sign_until(86_400 * 365)
    }

    fn sign_until(&self, seconds_from_now: i64) -> (String, String) {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        let now = i64::try_from(now.as_secs()).unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        params.not_after =
            epoch + std::time::Duration::from_secs(u64::try_from(now + seconds_from_now).unwrap());
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.0).unwrap();
        (signed.pem(), key.serialize_pem())
    }
}

/// The certificate files of a member, in a folder that a symlink points to, as a ConfigMap has it.
struct Files {
    scratch: Scratch,
    generation: u32,
}

impl Files {
    fn new(pair: &(String, String)) -> Self {
        let mut files = Self {
            scratch: Scratch::new(),
            generation: 0,
        };
        files.renew(pair);
        files
    }

    /// Puts another pair in place of the current one, in one step.
    fn renew(&mut self, (certificate, key): &(String, String)) {
        self.generation += 1;
        let folder = self.scratch.0.join(format!("{}", self.generation));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("tls.crt"), certificate).unwrap();
        std::fs::write(folder.join("tls.key"), key).unwrap();
        let new = self.scratch.0.join("..new");
        std::os::unix::fs::symlink(folder, &new).unwrap();
        std::fs::rename(new, self.scratch.0.join("..data")).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.0.join("..data").join(name)
    }

    /// The section of the configuration.
    fn section(&self, name: &str, more: &str) -> String {
        let (certificate, key) = (self.path("tls.crt"), self.path("tls.key"));
        let (certificate, key) = (text(&certificate), text(&key));
        format!("{name}: {{cert_file: '{certificate}', key_file: '{key}'{more}}}\n")
    }

    fn member(&self, more: &str) -> Member {
        Member::start(&format!("{}{RULES}", self.section("tls", more)))
    }
}

async fn connect(
    member: &Member,
    authority: &Authority,
    identity: Option<&(String, String)>,
) -> Result<RateLimitServiceClient<Channel>, tonic::transport::Error> {
    let mut tls = ClientTlsConfig::new()
        .domain_name("localhost")
        .ca_certificate(Certificate::from_pem(authority.pem()));
    if let Some((certificate, key)) = identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    let endpoint = Endpoint::new(format!("https://{}", member.envoy)).unwrap();
    let channel = endpoint.tls_config(tls).unwrap().connect().await?;
    Ok(RateLimitServiceClient::new(channel))
}

async fn ask(client: &mut RateLimitServiceClient<Channel>) -> Result<Code, tonic::Status> {
    let answer = client.should_rate_limit(request("edge", vec![descriptor(&[("ip", "a")])]));
    Ok(answer.await?.into_inner().overall_code())
}

/// Whether somebody who trusts `authority` and shows `identity` gets an answer.
async fn is_served(
    member: &Member,
    authority: &Authority,
    identity: Option<&(String, String)>,
) -> bool {
    // With TLS 1.3 a refused client hears of it only when it waits for its first answer.
    match connect(member, authority, identity).await {
        Ok(mut client) => ask(&mut client).await.is_ok(),
        Err(_) => false,
    }
}

fn count(member: &Member, path: &str) -> u64 {
    member.snapshot()["ports"]["envoy"]
        .pointer(path)
        .unwrap()
        .as_u64()
        .unwrap()
}

#[tokio::test]
async fn plain_clients_and_those_that_trust_another_are_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let files = Files::new(&authority.sign());
    let member = files.member("");
    assert!(is_served(&member, &authority, None).await);
    assert!(!is_served(&member, &stranger, None).await);
    let plain = Endpoint::new(format!("http://{}", member.envoy)).unwrap();
    let refused = match plain.connect().await {
        Ok(channel) => ask(&mut RateLimitServiceClient::new(channel))
            .await
            .is_err(),
        Err(_) => true,
    };
    assert!(refused);
    assert!(count(&member, "/handshakes_failed") >= 2);
    assert!(
        member.log().contains("a TLS handshake with 127.0.0.1:"),
        "{}",
        member.log()
    );
    assert!(is_served(&member, &authority, None).await);
}

#[tokio::test]
async fn with_a_client_authority_only_its_clients_are_served() {
    let (authority, clients, stranger) = (Authority::new(), Authority::new(), Authority::new());
    let files = Files::new(&authority.sign());
    let ca = files.scratch.file("clients.pem", &clients.pem());
    let member = files.member(&format!(", client_ca_file: '{}'", text(&ca)));
    assert!(is_served(&member, &authority, Some(&clients.sign())).await);
    assert!(!is_served(&member, &authority, None).await);
    assert!(!is_served(&member, &authority, Some(&stranger.sign())).await);
    assert!(!is_served(&member, &authority, Some(&clients.sign_until(-60))).await);
}

#[tokio::test]
async fn new_files_are_taken_without_a_restart_and_bad_ones_are_not() {
    let (old, new) = (Authority::new(), Authority::new());
    let mut files = Files::new(&old.sign());
    let member = files.member("");
    let mut open = connect(&member, &old, None).await.unwrap();
    assert_eq!(ask(&mut open).await.unwrap(), Code::Ok);
    files.renew(&new.sign());
    until("they are in force", || {
        (count(&member, "/tls/reloads") == 1).then_some(())
    });
    assert!(is_served(&member, &new, None).await);
    assert!(!is_served(&member, &old, None).await);
    assert_eq!(
        ask(&mut open).await.unwrap(),
        Code::Ok,
        "an open connection goes on"
    );
    // The key of another certificate.
    files.renew(&(new.sign().0, new.sign().1));
    until("they are refused", || {
        (count(&member, "/tls/refusals") == 1).then_some(())
    });
    let log = member.log();
    assert!(
        log.contains("it is not the key of the certificate in"),
        "{log}"
    );
    assert!(
        log.contains("The certificates in force stay in force"),
        "{log}"
    );
    assert!(is_served(&member, &new, None).await);
    // Written in place, the key first: the half-way state is refused, the end is taken.
    let (certificate, key) = old.sign();
    std::fs::write(files.path("tls.key"), key).unwrap();
    std::fs::write(files.path("tls.crt"), certificate).unwrap();
    until("they are in force", || {
        (count(&member, "/tls/reloads") == 2).then_some(())
    });
    assert!(is_served(&member, &old, None).await);
    assert_eq!(ask(&mut open).await.unwrap(), Code::Ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_never_ends_the_handshake_holds_up_nobody_and_is_closed() {
    let authority = Authority::new();
    let files = Files::new(&authority.sign());
    // Long enough for the client that does shake hands, on a machine with other work.
    let server = "server: {handshake_timeout: 3s}\n";
    let member = Member::start(&format!("{}{server}{RULES}", files.section("tls", "")));
    let mute = |words: &[u8]| {
        let mut stream = TcpStream::connect(member.envoy).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(words).unwrap();
        stream
    };
    let silent = [mute(b""), mute(b"\x16\x03\x01\x02\x00\x01")];
    assert!(is_served(&member, &authority, None).await);
    for mut stream in silent {
        let end = stream.read_to_end(&mut Vec::new());
        assert!(end.is_ok() || end.unwrap_err().kind() == std::io::ErrorKind::ConnectionReset);
    }
    assert_eq!(count(&member, "/closed_silent"), 2);
}

#[test]
fn the_end_of_a_certificate_is_told_in_time() {
    let authority = Authority::new();
    for (seconds, words) in [
        (
            3 * 86_400 + 5_400,
            "tls: a certificate expires in 3 days and 1 hours; renew it",
        ),
        (-60, "tls: a certificate has expired"),
    ] {
        let files = Files::new(&authority.sign_until(seconds));
        let member = files.member("");
        until(words, || member.log().contains(words).then_some(()));
        assert!(count(&member, "/tls/expires_unix_s") > 1_000_000_000);
    }
    let files = Files::new(&authority.sign());
    let member = files.member("");
    assert!(!member.log().contains("expire"), "{}", member.log());
}

/// `GET path` over TLS.
fn get(addr: SocketAddr, authority: &Authority, path: &str) -> std::io::Result<String> {
    use tokio_rustls::rustls::{self, pki_types, ClientConfig, ClientConnection, RootCertStore};
    let mut roots = RootCertStore::empty();
    roots.add(authority.0.der().clone()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = pki_types::ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(addr)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut stream = rustls::StreamOwned::new(connection, socket);
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        // The server need not say goodbye in TLS when the answer was whole.
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(answer),
    }
}

#[test]
fn the_admin_port_has_certificates_of_its_own() {
    let authority = Authority::new();
    let files = Files::new(&authority.sign());
    let member = Member::start(&format!("{}{RULES}", files.section("admin_tls", "")));
    let answer = get(member.admin, &authority, "/readyz").unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("ready\n"),
        "{answer}"
    );
    let only_13 = files.section("admin_tls", ", min_version: 1.3");
    let member = Member::start(&format!("{only_13}{RULES}"));
    assert!(
        get(member.admin, &authority, "/readyz").is_err(),
        "TLS 1.2 is refused"
    );
}

#[test]
fn the_json_port_has_certificates_of_its_own() {
    let authority = Authority::new();
    let files = Files::new(&authority.sign());
    let tls = files.section("json_tls", "");
    let member = Member::start(&format!("{tls}json_bind: 127.0.0.1:0\n{RULES}"));
    let ports = std::fs::read_to_string(member.scratch.0.join("ports.json")).unwrap();
    let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
    let json: SocketAddr = ports["json"].as_str().unwrap().parse().unwrap();
    let answer = get(json, &authority, "/healthcheck").unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("OK"),
        "{answer}"
    );
    let path = member
        .scratch
        .file("no_port.yaml", &format!("{tls}{RULES}"));
    let said = ended_with(&run(&["check", text(&path)]), 1);
    assert!(
        said.contains("json_tls: it does nothing without json_bind"),
        "{said}"
    );
}

#[test]
fn certificates_that_cannot_be_used_are_found_before_the_start() {
    let authority = Authority::new();
    let mut files = Files::new(&authority.sign());
    let (certificate, key) = authority.sign();
    for (pair, place, word) in [
        (
            (certificate.clone(), authority.sign().1),
            "tls.key_file",
            "it is not the key of",
        ),
        (
            ("hello".to_owned(), key.clone()),
            "tls.cert_file",
            "no certificate in it",
        ),
        (
            (certificate.clone(), certificate),
            "tls.key_file",
            "no private key in it",
        ),
    ] {
        files.renew(&pair);
        let config = format!("{PORTS}{}{RULES}", files.section("tls", ""));
        let file = files.scratch.file("g.yaml", &config);
        for arguments in [&["check", text(&file)][..], &[text(&file)]] {
            let said = ended_with(&run(arguments), 1);
            assert!(said.contains(place) && said.contains(word), "{said}");
            assert!(said.contains("g.yaml:3:"), "{said}");
            assert!(!said.contains("PRIVATE"), "{said}");
        }
    }
}
