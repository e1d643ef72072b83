//! Which build of a version of nginx this is: the same version and signature, other structures.
//!
//! I own what tells builds apart that nginx's own check lets through. I promise a message that
//! names the artefact to take. I only look at text and bytes that are handed to me.

/// Whose build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// As released, or a distribution's build with the same structures.
    Vanilla,
    /// Debian's, which patches a structure in 1.22.1.
    Debian,
    /// OpenResty, which patches several.
    OpenResty,
}

impl Flavour {
    /// As artefacts are named.
    pub fn word(self) -> &'static str {
        match self {
            Flavour::Vanilla => "nginx",
            Flavour::Debian => "debian12",
            Flavour::OpenResty => "openresty",
        }
    }
}

/// A path that only Debian and its children configure.
const OF_DEBIAN: &str = "--http-client-body-temp-path=/var/lib/nginx/body";
const CONFIGURED: &[u8] = b"configure arguments:";
/// Versions in which Debian's structures differ from the released ones.
const PATCHED_BY_DEBIAN: [&str; 1] = ["1.22.1"];

/// From the build name (`nginx/1.22.1`, `openresty/1.27.1.2`) and the configure arguments.
pub fn of(build: &str, configured: &str) -> Flavour {
    if build.starts_with("openresty") {
        return Flavour::OpenResty;
    }
    let version = build.rsplit('/').next().unwrap_or_default();
    let version = version.split(' ').next().unwrap_or_default();
    match PATCHED_BY_DEBIAN.contains(&version) && configured.contains(OF_DEBIAN) {
        true => Flavour::Debian,
        false => Flavour::Vanilla,
    }
}

/// The configure arguments that an nginx binary carries for `nginx -V`.
pub fn configured(binary: &[u8]) -> Option<String> {
    let at = binary
        .windows(CONFIGURED.len())
        .position(|window| window == CONFIGURED)?;
    let rest = &binary[at + CONFIGURED.len()..];
    let end = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

/// What is wrong when a module built for one flavour is loaded into another.
pub fn mismatch(built: Flavour, built_for: &str, running: Flavour) -> Option<String> {
    (built != running).then(|| {
        format!(
            "this module was built for {built_for} ({}), and this server is a build whose \
             structures differ ({}); take the artefact named {}, or build it from this server's \
             headers (docs/building-module.md)",
            built.word(),
            running.word(),
            running.word()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_35_builds_of_one_version_are_told_apart() {
        let debian = format!(" --prefix=/usr/share/nginx {OF_DEBIAN} --with-compat");
        assert_eq!(of("nginx/1.22.1", &debian), Flavour::Debian);
        assert_eq!(of("nginx/1.22.1", " --with-compat"), Flavour::Vanilla);
        // Debian's later versions have the structures of the released ones.
        assert_eq!(of("nginx/1.26.3", &debian), Flavour::Vanilla);
        assert_eq!(
            of("openresty/1.27.1.2", " --with-compat"),
            Flavour::OpenResty
        );
        let binary = [
            b"..\0configure arguments:".as_slice(),
            debian.as_bytes(),
            b"\n\0x",
        ]
        .concat();
        assert_eq!(configured(&binary).unwrap().trim_end(), debian);
        assert_eq!(configured(b"nothing"), None);
        assert_eq!(
            mismatch(Flavour::Debian, "nginx/1.22.1", Flavour::Debian),
            None
        );
        let text = mismatch(Flavour::Vanilla, "nginx/1.22.1", Flavour::Debian).unwrap();
        assert!(text.contains("take the artefact named debian12"), "{text}");
    }
}
