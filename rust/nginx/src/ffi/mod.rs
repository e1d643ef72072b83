//! The border to nginx: the room's only unsafe code.
//!
//! I own the module's tables, every function that nginx calls, and every call into nginx. I promise
//! that a panic ends at the border (the request is admitted, the directive is refused), that memory
//! of a configuration is dropped with its pool, and that the gossip thread touches nothing of nginx
//! but atomics, its flags and its log. I never decide anything: that is done in safe code.
//!
//! What all blocks here rely on, and each names: nginx calls with valid pointers, from one thread;
//! a configuration lives as long as its cycle's pool, a request as long as its own; module indices
//! are set before any handler runs.

mod ask;
mod conf;
mod guard;
mod log;
mod phase;
mod policy;
mod pool;
mod process;
mod shm;
mod status;
mod tables;
mod tell;
mod text;
mod vars;

pub use tables::{ngx_http_gabion_module, ngx_module_names, ngx_module_order, ngx_modules};

/// Runs `body`; a panic gives `otherwise`. Nothing of Rust may unwind into nginx.
fn caught<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    // Whatever a panic left half done is the request's or the configuration's, which end with it;
    // the zone's words are atomics.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or_else(|_| {
        log::say(
            log::ERROR,
            "gabion failed inside; requests are admitted. Please report this",
        );
        otherwise
    })
}

/// A panic that a test asks for: `GABION_PLANT` in a worker's environment names the place. Builds
/// for use have none.
fn planted(place: &str) {
    if cfg!(debug_assertions) && std::env::var("GABION_PLANT").as_deref() == Ok(place) {
        panic!("planted by a test");
    }
}

/// nginx's return codes as its functions return them.
mod code {
    use nginx_sys::ngx_int_t;
    pub(super) const OK: ngx_int_t = nginx_sys::NGX_OK as ngx_int_t;
    pub(super) const ERROR: ngx_int_t = nginx_sys::NGX_ERROR as ngx_int_t;
    pub(super) const DECLINED: ngx_int_t = nginx_sys::NGX_DECLINED as ngx_int_t;
    pub(super) const DONE: ngx_int_t = nginx_sys::NGX_DONE as ngx_int_t;
}
