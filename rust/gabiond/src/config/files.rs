//! Files a configuration names, read whole, with a bound and a clear error.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use gabion_wire::KeyRing;
use subtle::ConstantTimeEq as _;

use super::error::ConfigError;
use crate::limits::{CONFIG_BYTES, SECRET_BYTES, TOKEN_BYTES_MIN};

/// The bytes of the configuration file.
pub(super) fn read_config(path: &Path) -> Result<Vec<u8>, ConfigError> {
    read_bounded(path, CONFIG_BYTES)
}

/// The bytes of a file of at most `most` bytes.
pub(crate) fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>, ConfigError> {
    let name = || path.display().to_string();
    let unreadable = |error| ConfigError::Unreadable {
        path: name(),
        error,
    };
    let about = std::fs::metadata(path).map_err(unreadable)?;
    if let Some(what) = not_a_file(&about) {
        return Err(ConfigError::NotAFile { path: name(), what });
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    // One byte more than allowed shows that there is more, also when the file grows meanwhile.
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > most {
        let bytes = about.len().max(bytes.len() as u64);
        return Err(ConfigError::TooLarge {
            path: name(),
            bytes,
            most,
        });
    }
    Ok(bytes)
}

fn not_a_file(about: &Metadata) -> Option<&'static str> {
    let kind = about.file_type();
    if kind.is_dir() {
        Some("a directory")
    } else if kind.is_file() {
        None
    } else {
        Some("a device, pipe or socket")
    }
}

/// What to say of a file of keys that everybody on this machine can read.
pub(super) fn open_to_all(path: &str) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.mode() & 0o777;
    let open = mode & 0o004 != 0;
    open.then(|| {
        format!(
            "everybody on this machine can read the key file {path} (mode {mode:03o}), and who has \
             a key can forge gossip. Run chmod 640 on it, or less"
        )
    })
}

/// The keys that sign frames. The error never quotes the file's content.
pub(super) fn key_ring(path: &str) -> Result<KeyRing, String> {
    let bytes = read_bounded(Path::new(path), SECRET_BYTES).map_err(|e| e.to_string())?;
    let text = std::str::from_utf8(&bytes).map_err(|_| format!("{path}: it is not text"))?;
    KeyRing::parse(text).map_err(|e| format!("{path}: {e}"))
}

/// The secret of the counters' keys: 32 hexadecimal digits.
pub(super) fn key_secret(path: &str) -> Result<[u8; 16], String> {
    let bytes = read_bounded(Path::new(path), SECRET_BYTES).map_err(|e| e.to_string())?;
    let wrong = || format!("{path}: 32 hexadecimal digits are expected, as `openssl rand -hex 16`");
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong())?.trim();
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    u128::from_str_radix(text, 16)
        .map(u128::to_be_bytes)
        .map_err(|_| wrong())
}

/// What a writing admin request must bring. Never shown.
#[derive(Clone, Hash)]
pub struct AdminToken(Vec<u8>);

impl AdminToken {
    /// A token from its text.
    #[cfg(test)]
    pub(crate) fn new(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }

    /// Whether `given` is the token. Takes the same time wherever they differ.
    pub fn is(&self, given: &[u8]) -> bool {
        self.0.ct_eq(given).into()
    }
}

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminToken(..)")
    }
}

/// The admin token: the first line, at least [`TOKEN_BYTES_MIN`] visible characters.
pub(super) fn admin_token(path: &str) -> Result<AdminToken, String> {
    let bytes = read_bounded(Path::new(path), SECRET_BYTES).map_err(|e| e.to_string())?;
    let line = bytes
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let token = line.trim_ascii();
    if token.len() < TOKEN_BYTES_MIN || !token.iter().all(u8::is_ascii_graphic) {
        return Err(format!(
            "{path}: one line of at least {TOKEN_BYTES_MIN} visible characters is expected, as \
             `openssl rand -hex 32`"
        ));
    }
    Ok(AdminToken(token.to_vec()))
}
