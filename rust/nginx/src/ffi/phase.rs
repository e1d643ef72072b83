//! The handler of a request, in the phase before access checks.
//!
//! I own when a request is asked: once for a client's request, whatever it is redirected to. I
//! promise that what fails admits, that nothing is taken from the system's heap, and that no system
//! call is made unless a line is logged.

use std::ffi::c_void;
use std::ptr;

use nginx_sys::{ngx_http_request_t, ngx_int_t, ngx_pool_cleanup_add};

use super::ask::Asked;
use super::conf::{LocConf, MainConf, Ready};
use super::tables::ngx_http_gabion_module;
use super::{caught, code};
use crate::answer::Answer;

/// Our part of the configuration a request is under.
///
/// # Safety
/// `r` is a valid request.
pub(super) unsafe fn main_of<'r>(r: *mut ngx_http_request_t) -> Option<&'r Ready> {
    // SAFETY: a request's configuration has a place for each module, and outlives the request.
    unsafe {
        let conf = *(*r).main_conf.add(ngx_http_gabion_module.ctx_index);
        conf.cast::<MainConf>().as_ref()?.ready.as_ref()
    }
}

/// # Safety
/// `r` is a valid request.
pub(super) unsafe fn loc_of<'r>(r: *mut ngx_http_request_t) -> Option<&'r LocConf> {
    // SAFETY: as in `main_of`.
    unsafe {
        let conf = *(*r).loc_conf.add(ngx_http_gabion_module.ctx_index);
        conf.cast::<LocConf>().as_ref()
    }
}

/// Marks an answer in a request's pool; internal redirects clear the modules' own contexts.
unsafe extern "C" fn mark(_: *mut c_void) {}

/// The answer that a client's request was given, if it was asked.
///
/// # Safety
/// `r` is a valid request.
pub(super) unsafe fn answered<'r>(r: *mut ngx_http_request_t) -> Option<&'r Answer> {
    // SAFETY: a request's pool and its chain of cleanups are valid; an entry with our mark holds
    // an answer, which is written before the mark is set.
    unsafe {
        let mut at = (*(*(*r).main).pool).cleanup;
        while let Some(entry) = at.as_ref() {
            let ours = entry.handler.is_some_and(|handler| {
                ptr::fn_addr_eq(handler, mark as unsafe extern "C" fn(*mut c_void))
            });
            if ours {
                return entry.data.cast::<Answer>().as_ref();
            }
            at = entry.next;
        }
    }
    None
}

/// # Safety
/// `r` is a valid request.
pub(super) unsafe fn remember(r: *mut ngx_http_request_t, answer: Answer) -> bool {
    // SAFETY: the pool gives memory aligned for it, or null. Dropping an answer does nothing.
    unsafe {
        let entry = ngx_pool_cleanup_add((*r).pool, std::mem::size_of::<Answer>());
        if entry.is_null() {
            return false;
        }
        (*entry).data.cast::<Answer>().write(answer);
        (*entry).handler = Some(mark);
    }
    true
}

pub(super) unsafe extern "C" fn handler(r: *mut ngx_http_request_t) -> ngx_int_t {
    caught(code::DECLINED, || {
        // SAFETY: nginx hands a valid request.
        unsafe {
            let Some(loc) = loc_of(r).filter(|loc| !loc.rules.is_empty()) else {
                return code::DECLINED;
            };
            if r != (*r).main || answered(r).is_some() {
                return code::DECLINED;
            }
            match main_of(r) {
                Some(ready) => Asked { r, loc, ready }.ask(),
                None => code::DECLINED,
            }
        }
    })
}
