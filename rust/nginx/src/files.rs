//! Files that directives name, read whole when the configuration is read.
//!
//! I promise a bound on their size and an error that says the path and never the content.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

use gabion_wire::KeyRing;

use crate::limits::{KEY_FILE_BYTES_MAX, RULES_FILE_BYTES_MAX};

fn text(path: &str, most: u64) -> Result<String, String> {
    let about = std::fs::metadata(path).map_err(|e| format!("it cannot be read: {e}"))?;
    if !about.is_file() {
        let what = if about.is_dir() {
            "a directory"
        } else {
            "a device, pipe or socket"
        };
        return Err(format!("it is {what}; name a file"));
    }
    let file = File::open(path).map_err(|e| format!("it cannot be read: {e}"))?;
    let mut bytes = Vec::new();
    // One byte more than allowed shows that there is more, also when the file grows meanwhile.
    file.take(most.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|e| format!("it cannot be read: {e}"))?;
    if bytes.len() as u64 > most {
        return Err(format!("it has more than {most} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not text in UTF-8".to_owned())
}

/// What to say of a file of keys that everybody on this machine can read.
pub(crate) fn open_to_all(path: &str) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.mode() & 0o777;
    let open = mode & 0o004 != 0;
    open.then(|| {
        format!(
            "everybody on this machine can read the key file {path} (mode {mode:03o}), and who has \
             a key can forge gossip. Run chmod 640 on it, or less"
        )
    })
}

/// A file of limits.
pub(crate) fn rules_text(path: &str) -> Result<String, String> {
    text(path, RULES_FILE_BYTES_MAX)
}

/// The keys that sign frames.
pub(crate) fn key_ring(path: &str) -> Result<KeyRing, String> {
    KeyRing::parse(&text(path, KEY_FILE_BYTES_MAX)?).map_err(|e| e.to_string())
}

/// The secret of the counters' keys: 32 hexadecimal digits.
pub(crate) fn key_secret(path: &str) -> Result<[u8; 16], String> {
    let text = text(path, KEY_FILE_BYTES_MAX)?;
    let digits = text.trim();
    let hex = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let secret = u128::from_str_radix(digits, 16).ok().filter(|_| hex);
    secret
        .map(u128::to_be_bytes)
        .ok_or_else(|| "32 hexadecimal digits are expected, as `openssl rand -hex 16`".to_owned())
}
