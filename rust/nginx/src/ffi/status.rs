//! `gabion_status`: a location that answers with the module's state.

use std::ffi::{c_char, c_void};

use nginx_sys::{
    ngx_command_t, ngx_conf_t, ngx_http_complex_value_t, ngx_http_conf_ctx_t,
    ngx_http_core_loc_conf_t, ngx_http_core_module, ngx_http_request_t, ngx_http_send_response,
    ngx_int_t, NGX_HTTP_GET, NGX_HTTP_HEAD,
};

use super::conf::{self, LocConf};
use super::{caught, code, guard, log, phase, pool};
use crate::error::ConfError;
use crate::report::View;

/// How it answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Prometheus,
}

const METHOD_NOT_ALLOWED: ngx_int_t = 405;
const INTERNAL_ERROR: ngx_int_t = 500;

/// `gabion_status [json|prometheus]`.
pub(super) unsafe extern "C" fn directive(
    cf: *mut ngx_conf_t,
    _command: *mut ngx_command_t,
    loc: *mut c_void,
) -> *mut c_char {
    let refused = usize::MAX as *mut c_char;
    caught(refused, || {
        // SAFETY: nginx hands what `create_loc` made, and a configuration at a directive; the
        // location's core part is in its context.
        unsafe {
            let loc = &mut *loc.cast::<LocConf>();
            let form = conf::words(cf).and_then(|words| match words.get(1).copied() {
                None | Some("json") => Ok(Form::Json),
                Some("prometheus") => Ok(Form::Prometheus),
                Some(word) => Err(ConfError::new(
                    "gabion_status",
                    word,
                    "it is neither json nor prometheus",
                )),
            });
            match form {
                Ok(form) => loc.report = Some(form),
                Err(error) => {
                    log::refuse(cf, &error.to_string());
                    return refused;
                }
            }
            let ctx = (*cf).ctx.cast::<ngx_http_conf_ctx_t>();
            let core = *(*ctx).loc_conf.add(ngx_http_core_module.ctx_index);
            (*core.cast::<ngx_http_core_loc_conf_t>()).handler = Some(handler);
        }
        std::ptr::null_mut()
    })
}

unsafe extern "C" fn handler(r: *mut ngx_http_request_t) -> ngx_int_t {
    caught(INTERNAL_ERROR, || {
        // SAFETY: nginx hands a valid request.
        let (ready, loc, method) = unsafe { (phase::main_of(r), phase::loc_of(r), (*r).method) };
        let form = loc.and_then(|loc| loc.report).unwrap_or(Form::Json);
        let Some(ready) = ready else {
            return INTERNAL_ERROR;
        };
        if method & (NGX_HTTP_GET | NGX_HTTP_HEAD) as usize == 0 {
            return METHOD_NOT_ALLOWED;
        }
        let view = View {
            settings: &ready.settings,
            catalog: &ready.catalog,
            zones: ready.zones.iter().map(|zone| zone.get().cloned()).collect(),
            built_for: guard::built_for(),
            pid: std::process::id(),
            now_mono_ns: gabion_driver::monotonic_ns(),
        };
        let (text, kind) = match form {
            Form::Json => (view.json(), "application/json"),
            Form::Prometheus => (view.prometheus(), "text/plain; version=0.0.4"),
        };
        // SAFETY: the request is valid; the text is copied into its pool, and a value without
        // variables is its text.
        unsafe {
            let Some(text) = pool::copied((*r).pool, text.as_bytes()) else {
                return code::ERROR;
            };
            let mut value: ngx_http_complex_value_t = std::mem::zeroed();
            value.value = text;
            ngx_http_send_response(r, 200, &mut pool::fixed(kind), &mut value)
        }
    })
}
