//! Which build of nginx this process is.

use std::fs;

use crate::flavour::{configured, mismatch, of, Flavour};

const BUILT_FOR: &str = env!("GABION_NGINX_BUILD");
const CONFIGURED: &str = env!("GABION_NGINX_CONFIGURE");

/// The nginx that the module was built for, such as `nginx/1.22.1`.
pub(super) fn built_for() -> &'static str {
    BUILT_FOR
}

/// Why this process's structures are not those that the module was built for.
pub(super) fn other_layout() -> Option<String> {
    let built = of(BUILT_FOR, CONFIGURED);
    // SAFETY: a look-up of a symbol by name in what is loaded; the address is only compared.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ngx_is_privileged_agent".as_ptr()) };
    let running = if !symbol.is_null() {
        Flavour::OpenResty // only its patches export the symbol
    } else {
        // A binary that cannot be read is taken for what we were built for: nginx itself has
        // compared version and signature.
        let binary = fs::read("/proc/self/exe").ok()?;
        let version = BUILT_FOR.rsplit('/').next().unwrap_or_default();
        of(&format!("nginx/{version}"), &configured(&binary)?)
    };
    mismatch(built, BUILT_FOR, running)
}
