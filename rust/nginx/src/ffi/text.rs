//! Text with variables: compiled with the configuration, evaluated in a request.

use std::ptr;

use nginx_sys::{
    ngx_conf_t, ngx_http_compile_complex_value, ngx_http_compile_complex_value_t,
    ngx_http_complex_value, ngx_http_complex_value_t, ngx_http_get_flushed_variable,
    ngx_http_get_variable_index, ngx_http_request_t, ngx_str_t, ngx_uint_t,
};

use super::{code, pool};

/// nginx's compiled text.
pub(super) enum Text {
    /// One variable and nothing else, which nginx finds without running a script.
    Variable(ngx_uint_t),
    /// Whatever else.
    Complex(ngx_http_complex_value_t),
}

/// Compiles text. nginx has said why when it gives none.
///
/// # Safety
/// `cf` is a valid configuration.
pub(super) unsafe fn compile(cf: *mut ngx_conf_t, text: &str) -> Option<Text> {
    let Some(name) = sole_variable(text) else {
        // SAFETY: the caller's promise.
        return unsafe { complex(cf, text) }.map(Text::Complex);
    };
    // SAFETY: the caller's promise; nginx copies the name.
    let index = unsafe {
        let mut name = pool::copied((*cf).pool, name.as_bytes())?;
        ngx_http_get_variable_index(cf, &mut name)
    };
    ngx_uint_t::try_from(index).ok().map(Text::Variable)
}

/// The name of the variable that is all of the text. Captures of regular expressions have none.
fn sole_variable(text: &str) -> Option<&str> {
    let name = text.strip_prefix('$')?;
    let braces = name.strip_prefix('{').and_then(|n| n.strip_suffix('}'));
    let name = braces.unwrap_or(name);
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let captured = name.starts_with(|c: char| c.is_ascii_digit());
    (plain && !captured && !name.is_empty()).then_some(name)
}

/// Compiles text for functions of nginx that take it so.
///
/// # Safety
/// `cf` is a valid configuration.
pub(super) unsafe fn complex(cf: *mut ngx_conf_t, text: &str) -> Option<ngx_http_complex_value_t> {
    // SAFETY: the caller's promise; all-zero is what nginx itself starts both structures with. The
    // text is copied, since the compiled value points to it.
    unsafe {
        let mut value = pool::copied((*cf).pool, text.as_bytes())?;
        let mut compiled: ngx_http_complex_value_t = std::mem::zeroed();
        let mut order: ngx_http_compile_complex_value_t = std::mem::zeroed();
        order.cf = cf;
        order.value = &mut value;
        order.complex_value = &mut compiled;
        (ngx_http_compile_complex_value(&mut order) == code::OK).then_some(compiled)
    }
}

/// Text without variables, in the form of text with some.
///
/// # Safety
/// `cf` is a valid configuration.
pub(super) unsafe fn plain(cf: *mut ngx_conf_t, text: &str) -> Option<ngx_http_complex_value_t> {
    // SAFETY: the caller's promise; a value without code is its text.
    unsafe {
        let mut value: ngx_http_complex_value_t = std::mem::zeroed();
        value.value = pool::copied((*cf).pool, text.as_bytes())?;
        Some(value)
    }
}

/// What the text is in this request; empty when a variable is not set, `None` when one fails.
///
/// # Safety
/// `r` is a valid request, as long as the result.
pub(super) unsafe fn evaluate<'r>(r: *mut ngx_http_request_t, text: &Text) -> Option<&'r [u8]> {
    // SAFETY: the request is valid; nginx reads a complex value only, though it takes it as
    // mutable. What comes is the configuration's own, the connection's or in the request's pool:
    // all live as long as the request.
    unsafe {
        let (data, len) = match text {
            Text::Variable(index) => {
                let value = ngx_http_get_flushed_variable(r, *index).as_ref()?;
                match value.not_found() {
                    0 => (value.data, value.len() as usize),
                    _ => return Some(&[]),
                }
            }
            Text::Complex(value) => {
                let mut text = ngx_str_t::empty();
                let value = ptr::from_ref(value).cast_mut();
                if ngx_http_complex_value(r, value, &mut text) != code::OK {
                    return None;
                }
                (text.data, text.len)
            }
        };
        match len {
            0 => Some(&[]),
            len => Some(std::slice::from_raw_parts(data, len)),
        }
    }
}
