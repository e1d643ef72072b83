//! Values and text in nginx's pools.

use std::ffi::c_void;
use std::ptr;

use nginx_sys::{ngx_pnalloc, ngx_pool_cleanup_add, ngx_pool_t, ngx_str_t};

/// Puts `value` on the heap and drops it with the pool. Null when the pool has no memory.
///
/// # Safety
/// `pool` is a valid pool.
pub(super) unsafe fn boxed<T>(pool: *mut ngx_pool_t, value: T) -> *mut T {
    // SAFETY: the caller's promise; a size of 0 only takes the entry of the chain.
    let cleanup = unsafe { ngx_pool_cleanup_add(pool, 0) };
    if cleanup.is_null() {
        return ptr::null_mut();
    }
    let value = Box::into_raw(Box::new(value));
    // SAFETY: not null, and nobody else knows the entry yet.
    unsafe {
        (*cleanup).handler = Some(drop_boxed::<T>);
        (*cleanup).data = value.cast();
    }
    value
}

unsafe extern "C" fn drop_boxed<T>(data: *mut c_void) {
    super::caught((), || {
        // SAFETY: `data` came from `Box::into_raw` in `boxed`, and nginx runs a cleanup once.
        drop(unsafe { Box::from_raw(data.cast::<T>()) });
    });
}

/// Copies bytes into a pool.
///
/// # Safety
/// `pool` is a valid pool.
pub(super) unsafe fn copied(pool: *mut ngx_pool_t, bytes: &[u8]) -> Option<ngx_str_t> {
    // SAFETY: the caller's promise.
    let data = unsafe { ngx_pnalloc(pool, bytes.len().max(1)) }.cast::<u8>();
    if data.is_null() {
        return None;
    }
    // SAFETY: `data` has room for the bytes, and is new, so they do not overlap.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len()) };
    let len = bytes.len();
    Some(ngx_str_t { len, data })
}

/// nginx's view of text that lives as long as the program.
pub(super) const fn fixed(text: &'static str) -> ngx_str_t {
    lasting(text)
}

/// nginx's view of text that lives as long as whoever nginx is told it for.
pub(super) const fn lasting(text: &str) -> ngx_str_t {
    ngx_str_t {
        len: text.len(),
        data: text.as_ptr().cast_mut(), // nginx does not write to names
    }
}
