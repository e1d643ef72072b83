//! The handlers of a request: before access checks, and when its response is known.
//!
//! I own when a request is asked: once for a client's request, whatever it is redirected to. I
//! promise that what fails admits, that nothing is taken from the system's heap, and that no system
//! call is made unless a line is logged.

use std::ffi::c_void;
use std::ptr;

use gabion_rule::Counted;
use nginx_sys::{ngx_http_request_t, ngx_int_t, ngx_palloc, ngx_pool_cleanup_add};

use super::ask::Asked;
use super::conf::{LocConf, MainConf, Ready};
use super::tables::ngx_http_gabion_module;
use super::{caught, code};
use crate::answer::{Answer, Asks, Status};

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

/// What a client's request was told.
struct Told {
    answer: Answer,
    /// What is charged once the response is known, in the same pool; null: nothing.
    late: *const Asks,
}

/// The answer that a client's request was given, if it was asked.
///
/// # Safety
/// `r` is a valid request.
pub(super) unsafe fn answered<'r>(r: *mut ngx_http_request_t) -> Option<&'r Answer> {
    // SAFETY: the caller's promise.
    unsafe { told(r) }.map(|told| &told.answer)
}

/// # Safety
/// `r` is a valid request.
unsafe fn told<'r>(r: *mut ngx_http_request_t) -> Option<&'r Told> {
    // SAFETY: a request's pool and its chain of cleanups are valid; an entry with our mark holds
    // what was told, which is written before the mark is set.
    unsafe {
        let mut at = (*(*(*r).main).pool).cleanup;
        while let Some(entry) = at.as_ref() {
            let ours = entry.handler.is_some_and(|handler| {
                ptr::fn_addr_eq(handler, mark as unsafe extern "C" fn(*mut c_void))
            });
            if ours {
                return entry.data.cast::<Told>().as_ref();
            }
            at = entry.next;
        }
    }
    None
}

/// Keeps the answer, and what is to be charged when the response is known.
///
/// # Safety
/// `r` is a valid request.
pub(super) unsafe fn remember(r: *mut ngx_http_request_t, answer: Answer, asks: &Asks) -> bool {
    // spec: pol-16. What is denied is never charged.
    let reads = asks.iter().any(|ask| ask.counted == Counted::Read);
    let wanted = reads && answer.status != Status::Rejected;
    // SAFETY: the pool gives memory aligned for both, or null. Dropping them does nothing.
    unsafe {
        let mut late = ptr::null_mut();
        if wanted {
            late = ngx_palloc((*r).pool, std::mem::size_of::<Asks>()).cast::<Asks>();
            if late.is_null() {
                return false;
            }
            let reads = asks.iter().filter(|ask| ask.counted == Counted::Read);
            late.write(reads.copied().collect());
        }
        let entry = ngx_pool_cleanup_add((*r).pool, std::mem::size_of::<Told>());
        if entry.is_null() {
            return false;
        }
        (*entry).data.cast::<Told>().write(Told { answer, late });
        (*entry).handler = Some(mark);
    }
    true
}

/// The response is known, or there will be none.
pub(super) unsafe extern "C" fn log_handler(r: *mut ngx_http_request_t) -> ngx_int_t {
    caught(code::OK, || {
        // SAFETY: nginx hands a valid request; what is charged late is in its pool.
        unsafe {
            let late = told(r).filter(|_| r == (*r).main);
            let late = late.and_then(|told| told.late.as_ref());
            if let (Some(late), Some(loc), Some(ready)) = (late, loc_of(r), main_of(r)) {
                Asked { r, loc, ready }.charge_late(late);
            }
        }
        code::OK
    })
}

pub(super) unsafe extern "C" fn handler(r: *mut ngx_http_request_t) -> ngx_int_t {
    caught(code::DECLINED, || {
        // SAFETY: nginx hands a valid request.
        unsafe {
            let Some(loc) = loc_of(r).filter(|loc| loc.asks) else {
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
