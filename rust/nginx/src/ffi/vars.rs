//! The variables `$gabion_status`, `$gabion_rule`, `$gabion_limit`, `$gabion_remaining` and
//! `$gabion_reset`. They are not found in a request that no rule was asked about.

use arrayvec::ArrayString;
use nginx_sys::{
    ngx_conf_t, ngx_hash_key_t, ngx_http_add_variable, ngx_http_conf_ctx_t,
    ngx_http_core_main_conf_t, ngx_http_core_module, ngx_http_request_t, ngx_http_variable_t,
    ngx_http_variable_value_t, ngx_int_t, NGX_HTTP_VAR_NOCACHEABLE,
};
use std::fmt::Write as _;

use super::conf::Ready;
use super::{caught, code, log, phase, pool};
use crate::words::variables;

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

/// nginx names an unknown variable alone when it refuses it; this says which rule it stands in.
///
/// # Safety
/// `cf` is valid, within `http`, whose content is read.
pub(super) unsafe fn name_unknown(cf: *mut ngx_conf_t, ready: &Ready) {
    for bound in &ready.catalog.rules {
        let templates = bound.bindings.iter().map(|binding| &binding.template);
        for name in templates
            .chain(&bound.except_if)
            .chain(&bound.only_if)
            .flat_map(|text| variables(text))
        {
            // SAFETY: the caller's promise.
            if unsafe { is_known(cf, &name) } {
                continue;
            }
            let place = bound.rule.place.as_ref();
            let place = place.map_or(String::new(), |place| format!(" (rule at {place})"));
            let text = format!(
                "\"gabion_limit_rule\" value \"${name}\": rule {} uses a variable that is not \
                 defined; define it with map, geo or set, or correct its name{place}",
                bound.rule.name
            );
            // SAFETY: the log of a valid configuration.
            unsafe { log::line((*cf).log, log::WARN, &text) };
        }
    }
}

/// # Safety
/// As [`name_unknown`].
unsafe fn is_known(cf: *mut ngx_conf_t, name: &str) -> bool {
    // SAFETY: within `http` the core module's main part is there. Its arrays of defined variables
    // are valid until nginx has looked all names up, which it does after this; names are text.
    unsafe {
        let ctx = (*cf).ctx.cast::<ngx_http_conf_ctx_t>();
        let core = *(*ctx).main_conf.add(ngx_http_core_module.ctx_index);
        let core = core.cast::<ngx_http_core_main_conf_t>();
        let Some(keys) = (*core).variables_keys.as_ref() else {
            return true;
        };
        let keys = keys.keys.as_slice::<ngx_hash_key_t>();
        let prefixes = (*core).prefix_variables.as_slice::<ngx_http_variable_t>();
        let starts = |p: &ngx_http_variable_t| name.as_bytes().starts_with(p.name.as_bytes());
        keys.iter().any(|key| key.key.as_bytes() == name.as_bytes()) || prefixes.iter().any(starts)
    }
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
