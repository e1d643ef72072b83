//! The variables `$gabion_status`, `$gabion_rule`, `$gabion_limit`, `$gabion_remaining` and
//! `$gabion_reset`. They are not found in a request that no rule was asked about.

use arrayvec::ArrayString;
use nginx_sys::{
    ngx_conf_t, ngx_http_add_variable, ngx_http_request_t, ngx_http_variable_value_t, ngx_int_t,
    NGX_HTTP_VAR_NOCACHEABLE,
};
use std::fmt::Write as _;

use super::{caught, code, phase, pool};

const NAMES: [&str; 5] = [
    "gabion_status",
    "gabion_rule",
    "gabion_limit",
    "gabion_remaining",
    "gabion_reset",
];

/// # Safety
/// `cf` is valid and within `http`, before its content is read.
pub(super) unsafe fn add(cf: *mut ngx_conf_t) -> ngx_int_t {
    for (data, name) in NAMES.into_iter().enumerate() {
        // SAFETY: the caller's promise; the name lives as long as the program.
        unsafe {
            let mut name = pool::fixed(name);
            let variable = ngx_http_add_variable(cf, &mut name, NGX_HTTP_VAR_NOCACHEABLE as _);
            if variable.is_null() {
                return code::ERROR;
            }
            (*variable).get_handler = Some(get);
            (*variable).data = data;
        }
    }
    code::OK
}

unsafe extern "C" fn get(
    r: *mut ngx_http_request_t,
    value: *mut ngx_http_variable_value_t,
    data: usize,
) -> ngx_int_t {
    caught(code::ERROR, || {
        // SAFETY: nginx hands a valid request and a value to fill.
        unsafe {
            (*value).set_not_found(1);
            let Some(text) = text(r, data) else {
                return code::OK;
            };
            let Some(text) = pool::copied((*r).pool, text.as_bytes()) else {
                return code::ERROR;
            };
            (*value).data = text.data;
            (*value).set_len(u32::try_from(text.len).unwrap_or(0));
            (*value).set_valid(1);
            (*value).set_no_cacheable(0);
            (*value).set_not_found(0);
        }
        code::OK
    })
}

/// # Safety
/// `r` is a valid request.
unsafe fn text(r: *mut ngx_http_request_t, which: usize) -> Option<ArrayString<1024>> {
    // SAFETY: the caller's promise.
    let (answer, ready) = unsafe { (phase::answered(r)?, phase::main_of(r)?) };
    let mut text = ArrayString::new();
    if which == 0 {
        text.push_str(answer.status.word());
        return Some(text);
    }
    let (rule, shown) = answer.shown?;
    // A name is bounded by 1,024 bytes; numbers are shorter.
    let written = match which {
        1 => text.write_str(&ready.catalog.rules.get(usize::from(rule))?.rule.name),
        2 => write!(text, "{}", shown.reading.limit),
        3 => write!(text, "{}", shown.remaining()),
        _ => write!(text, "{}", shown.reset_s()),
    };
    written.ok().map(|()| text)
}
