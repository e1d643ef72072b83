//! What nginx reads of a module: its name, its commands, its callbacks.
#![allow(non_upper_case_globals)] // names that nginx looks up
#![allow(missing_docs)]

use std::ffi::c_char;
use std::ptr;

use nginx_sys::{
    ngx_array_push, ngx_command_t, ngx_conf_t, ngx_http_conf_ctx_t, ngx_http_core_main_conf_t,
    ngx_http_core_module, ngx_http_handler_pt, ngx_http_module_t,
    ngx_http_phases_NGX_HTTP_LOG_PHASE as LOG,
    ngx_http_phases_NGX_HTTP_PREACCESS_PHASE as PREACCESS, ngx_http_request_t, ngx_int_t,
    ngx_module_t, ngx_str_t, ngx_uint_t, NGX_CONF_1MORE, NGX_CONF_NOARGS, NGX_CONF_TAKE1,
    NGX_CONF_TAKE12, NGX_HTTP_LOC_CONF, NGX_HTTP_LOC_CONF_OFFSET, NGX_HTTP_MAIN_CONF,
    NGX_HTTP_MAIN_CONF_OFFSET, NGX_HTTP_MODULE, NGX_HTTP_SRV_CONF,
};

use super::{caught, code, conf, phase, process, shm, status, vars};
use crate::{level, settings};

type Setter =
    unsafe extern "C" fn(*mut ngx_conf_t, *mut ngx_command_t, *mut std::ffi::c_void) -> *mut c_char;

const OF_MAIN: usize = settings::DIRECTIVES.len();
const OF_LEVEL: usize = level::DIRECTIVES.len();
const COUNT: usize = OF_MAIN + OF_LEVEL + 3;

/// Longest name of a directive, and the zero byte after it.
const NAME_BYTES: usize = 64;

/// The names as nginx compares them: up to a zero byte.
static NAMES: [[u8; NAME_BYTES]; COUNT] = {
    let mut all = [[0; NAME_BYTES]; COUNT];
    let mut i = 0;
    while i < COUNT {
        let name = name(i).as_bytes();
        assert!(name.len() < NAME_BYTES);
        let mut k = 0;
        while k < name.len() {
            all[i][k] = name[k];
            k += 1;
        }
        i += 1;
    }
    all
};

const fn name(i: usize) -> &'static str {
    if i < OF_MAIN {
        settings::DIRECTIVES[i]
    } else if i < OF_MAIN + OF_LEVEL {
        level::DIRECTIVES[i - OF_MAIN]
    } else if i == OF_MAIN + OF_LEVEL {
        "gabion_reject_body"
    } else if i == OF_MAIN + OF_LEVEL + 1 {
        "gabion_status"
    } else {
        "" // the end
    }
}

const fn command(i: usize, kind: u32, set: Setter, conf: usize) -> ngx_command_t {
    ngx_command_t {
        name: ngx_str_t {
            len: name(i).len(),
            data: ptr::addr_of!(NAMES[i]).cast::<u8>().cast_mut(), // nginx does not write to it
        },
        type_: kind as ngx_uint_t,
        set: Some(set),
        conf: conf as ngx_uint_t,
        offset: 0,
        post: ptr::null_mut(),
    }
}

const fn commands() -> [ngx_command_t; COUNT] {
    let mut all = [ngx_command_t::empty(); COUNT];
    let anywhere = NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF;
    let (main, loc) = (NGX_HTTP_MAIN_CONF_OFFSET, NGX_HTTP_LOC_CONF_OFFSET);
    let mut i = 0;
    while i < OF_MAIN {
        let kind = NGX_HTTP_MAIN_CONF | NGX_CONF_1MORE;
        all[i] = command(i, kind, conf::main_directive, main);
        i += 1;
    }
    while i < OF_MAIN + OF_LEVEL {
        let kind = anywhere | NGX_CONF_1MORE;
        all[i] = command(i, kind, conf::loc_directive, loc);
        i += 1;
    }
    let kind = anywhere | NGX_CONF_TAKE12;
    all[i] = command(i, kind, conf::body_directive, loc);
    let kind = NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS | NGX_CONF_TAKE1;
    all[i + 1] = command(i + 1, kind, status::directive, loc);
    all // the last stays empty: the end
}

static mut COMMANDS: [ngx_command_t; COUNT] = commands();

static CONTEXT: ngx_http_module_t = ngx_http_module_t {
    preconfiguration: Some(conf::before),
    postconfiguration: Some(after),
    create_main_conf: Some(conf::create_main),
    init_main_conf: Some(conf::init_main),
    create_srv_conf: None,
    merge_srv_conf: None,
    create_loc_conf: Some(conf::create_loc),
    merge_loc_conf: Some(conf::merge_loc),
};

type Handler = unsafe extern "C" fn(*mut ngx_http_request_t) -> ngx_int_t;

/// The whole configuration is read: the handlers of requests.
unsafe extern "C" fn after(cf: *mut ngx_conf_t) -> ngx_int_t {
    caught(code::ERROR, || {
        // SAFETY: within `http`, the core module's main part is there and holds the phases.
        unsafe {
            let ctx = (*cf).ctx.cast::<ngx_http_conf_ctx_t>();
            let core = *(*ctx).main_conf.add(ngx_http_core_module.ctx_index);
            let core = core.cast::<ngx_http_core_main_conf_t>();
            let ready = shm::main_conf_of(cf).and_then(|main| main.ready.as_ref());
            let (asks, logs) = (PREACCESS as usize, LOG as usize);
            let mut handlers: Vec<(usize, Handler)> = vec![(asks, phase::handler)];
            if ready.is_some_and(|ready| ready.status.is_some()) {
                handlers.push((logs, phase::log_handler));
            }
            for (phase, handler) in handlers {
                let entry = ngx_array_push(&mut (*core).phases[phase].handlers);
                if entry.is_null() {
                    return code::ERROR;
                }
                *entry.cast::<ngx_http_handler_pt>() = Some(handler);
            }
            if let Some(ready) = ready {
                vars::name_unknown(cf, ready);
            }
        }
        code::OK
    })
}

#[no_mangle]
pub static mut ngx_http_gabion_module: ngx_module_t = ngx_module_t {
    ctx: ptr::addr_of!(CONTEXT).cast_mut().cast(),
    commands: ptr::addr_of_mut!(COMMANDS).cast(),
    type_: NGX_HTTP_MODULE as ngx_uint_t,
    init_module: Some(process::init_module),
    init_process: Some(process::init_process),
    exit_process: Some(process::exit_process),
    ..ngx_module_t::default()
};

/// A list of pointers that nginx reads and nobody writes.
#[repr(transparent)]
pub struct List<T, const N: usize>([*const T; N]);
// SAFETY: the pointers are never changed, and what they point to is nginx's to guard.
unsafe impl<T, const N: usize> Sync for List<T, N> {}

#[no_mangle]
pub static ngx_modules: List<ngx_module_t, 2> =
    List([ptr::addr_of!(ngx_http_gabion_module), ptr::null()]);

#[no_mangle]
pub static ngx_module_names: List<c_char, 2> =
    List([c"ngx_http_gabion_module".as_ptr(), ptr::null()]);

/// No order is asked for.
#[no_mangle]
pub static ngx_module_order: List<c_char, 1> = List([ptr::null()]);
