//! The variables `$gabion_status`, `$gabion_rule`, `$gabion_limit`, `$gabion_remaining` and
//! `$gabion_reset`, not found in a request that no rule was asked about; and `$gabion_attr_NAME`,
//! the attribute of that name as rules see it.

use arrayvec::ArrayString;
use nginx_sys::{
    ngx_conf_t, ngx_hash_key_t, ngx_http_add_variable, ngx_http_conf_ctx_t,
    ngx_http_core_main_conf_t, ngx_http_core_module, ngx_http_request_t, ngx_http_variable_t,
    ngx_http_variable_value_t, ngx_int_t, ngx_str_t, NGX_HTTP_VAR_NOCACHEABLE, NGX_HTTP_VAR_PREFIX,
};
use std::fmt::Write as _;

use gabion_rule::policy::yaml::nearest;

use super::conf::Ready;
use super::{caught, code, log, phase, policy, pool};
use crate::words::variables;

const NAMES: [&str; 5] = [
    "gabion_status",
    "gabion_rule",
    "gabion_limit",
    "gabion_remaining",
    "gabion_reset",
];

/// What follows is the name of an attribute.
const ATTRIBUTE: &str = "gabion_attr_";

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
    // SAFETY: as above.
    unsafe {
        let flags = NGX_HTTP_VAR_PREFIX;
        let variable = ngx_http_add_variable(cf, &mut pool::fixed(ATTRIBUTE), flags as _);
        if variable.is_null() {
            return code::ERROR;
        }
        (*variable).get_handler = Some(get_attribute);
    }
    code::OK
}

/// nginx names an unknown variable alone when it refuses it; this says which rule it stands in.
///
/// # Safety
/// `cf` is valid, within `http`, whose content is read.
pub(super) unsafe fn name_unknown(cf: *mut ngx_conf_t, ready: &Ready) {
    // SAFETY: the caller's promise.
    unsafe { name_unknown_attributes(cf, ready) };
    for source in &ready.catalog.sources {
        for name in variables(&source.template) {
            // SAFETY: the caller's promise.
            if unsafe { is_known(cf, &name) } {
                continue;
            }
            let key = &source.name;
            let text = format!(
                "\"gabion_bind\" value \"{key}\": the attribute comes from ${name}, which is not \
                 defined; write gabion_bind {key} $variable, or define it with map, geo or set"
            );
            // SAFETY: the log of a valid configuration.
            unsafe { log::line((*cf).log, log::WARN, &text) };
        }
    }
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

/// The same of attributes: an unknown one would be empty for ever.
///
/// # Safety
/// As [`name_unknown`].
unsafe fn name_unknown_attributes(cf: *mut ngx_conf_t, ready: &Ready) {
    let table = &ready.catalog.table;
    let derived = table.attributes().attributes().iter();
    let mut known: Vec<String> = derived.map(|a| a.name.to_ascii_lowercase()).collect();
    let text = |name: &[u8]| String::from_utf8_lossy(name).to_ascii_lowercase();
    known.extend(table.sources().iter().map(text));
    // SAFETY: as in `is_known`; the array holds the variables that texts have used.
    let used = unsafe {
        let ctx = (*cf).ctx.cast::<ngx_http_conf_ctx_t>();
        let core = *(*ctx).main_conf.add(ngx_http_core_module.ctx_index);
        (*core.cast::<ngx_http_core_main_conf_t>())
            .variables
            .as_slice::<ngx_http_variable_t>()
    };
    for variable in used {
        let name = String::from_utf8_lossy(variable.name.as_bytes()).into_owned();
        let Some(attribute) = name.strip_prefix(ATTRIBUTE) else {
            continue;
        };
        if known.iter().all(|known| known != attribute) {
            let near = nearest(attribute, known.iter().map(String::as_str));
            let near = near.map_or(String::new(), |n| format!("; did you mean {ATTRIBUTE}{n}?"));
            let text = format!("\"${name}\": no rule asks for this attribute{near}");
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
            fill(value, text);
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

unsafe extern "C" fn get_attribute(
    r: *mut ngx_http_request_t,
    value: *mut ngx_http_variable_value_t,
    data: usize,
) -> ngx_int_t {
    caught(code::ERROR, || {
        // SAFETY: nginx hands a valid request, a value to fill, and the variable's whole name.
        unsafe {
            (*value).set_not_found(1);
            let name = (*(data as *const ngx_str_t)).as_bytes();
            let name = name.get(ATTRIBUTE.len()..).unwrap_or_default();
            let Some(ready) = phase::main_of(r) else {
                return code::OK;
            };
            let mut text = None;
            let mut keep = |value: &[u8]| text = pool::copied((*r).pool, value);
            if !policy::attribute(r, ready, name, &mut keep) {
                return code::OK;
            }
            let Some(text) = text else {
                return code::ERROR;
            };
            fill(value, text);
        }
        code::OK
    })
}

/// # Safety
/// `value` is valid.
unsafe fn fill(value: *mut ngx_http_variable_value_t, text: ngx_str_t) {
    // SAFETY: the caller's promise.
    unsafe {
        (*value).data = text.data;
        (*value).set_len(u32::try_from(text.len).unwrap_or(0));
        (*value).set_valid(1);
        (*value).set_no_cacheable(0);
        (*value).set_not_found(0);
    }
}
