//! The life of a worker: its gossip thread starts with it and ends with it.

use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use nginx_sys::{
    ngx_cycle_t, ngx_exiting, ngx_int_t, ngx_process, ngx_quit, ngx_terminate, ngx_uint_t,
    NGX_PROCESS_SINGLE, NGX_PROCESS_WORKER,
};

use super::conf::MainConf;
use super::{ask, caught, code, log, planted, shm};
use crate::gossip::{Leader, Part, Say, Stop};

/// The gossip thread of this process.
static RUNNING: Mutex<Option<(Arc<Stop>, JoinHandle<()>)>> = Mutex::new(None);

/// A new configuration is in force in this process.
pub(super) unsafe extern "C" fn init_module(cycle: *mut ngx_cycle_t) -> ngx_int_t {
    caught(code::OK, || {
        // SAFETY: nginx hands a valid cycle; its log outlives it in every process. The cycle before
        // is dropped, and its memory unmapped, only after this.
        unsafe {
            log::use_log((*cycle).log);
            retire_zones((*cycle).old_cycle, cycle);
        }
        // A single process has no worker that ends with the old configuration, whose memory is
        // about to be unmapped: its thread must not outlive it.
        if stop() {
            // SAFETY: nginx hands a valid cycle.
            unsafe { start(cycle) };
        }
        code::OK
    })
}

pub(super) unsafe extern "C" fn init_process(cycle: *mut ngx_cycle_t) -> ngx_int_t {
    caught(code::OK, || {
        // SAFETY: nginx hands a valid cycle and has set what this process is.
        unsafe {
            log::use_log((*cycle).log);
            // Not in the cache's helpers, which have number 0 as well.
            let kinds = [NGX_PROCESS_WORKER, NGX_PROCESS_SINGLE];
            if kinds.iter().any(|kind| ngx_process == *kind as ngx_uint_t) {
                start(cycle);
            }
        }
        code::OK
    })
}

pub(super) unsafe extern "C" fn exit_process(_cycle: *mut ngx_cycle_t) {
    caught((), || {
        stop();
        if let late @ 1.. = ask::counted_late() {
            let text = format!(
                "{late} requests were counted in memory that a reload had replaced; their hits are \
                 not in the new counters"
            );
            log::say(log::NOTICE, &text);
        }
    });
}

/// Marks the zones of the configuration before that the one in force now does not go on with.
///
/// # Safety
/// Both are null or valid cycles whose memory is mapped.
unsafe fn retire_zones(before: *const ngx_cycle_t, now: *const ngx_cycle_t) {
    // SAFETY: the caller's promise.
    let both = unsafe { (shm::main_conf_in(before), shm::main_conf_in(now)) };
    let ready_of = |main: Option<&'static MainConf>| main.and_then(|main| main.ready.as_ref());
    let (Some(old), new) = (ready_of(both.0), ready_of(both.1)) else {
        return;
    };
    for (plan, zone) in old.catalog.zones.iter().zip(&old.zones) {
        let goes_on = new.is_some_and(|new| {
            let mut plans = new.catalog.zones.iter();
            plans.any(|p| p.memory_name == plan.memory_name && p.bytes == plan.bytes)
        });
        if let (false, Some(zone)) = (goes_on, zone.get()) {
            zone.retire();
        }
    }
}

/// # Safety
/// `cycle` is valid and in force.
unsafe fn start(cycle: *mut ngx_cycle_t) {
    // SAFETY: the caller's promise.
    let Some(ready) = unsafe { shm::main_conf_in(cycle) }.and_then(|main| main.ready.as_ref())
    else {
        return;
    };
    let plans = ready.catalog.zones.iter().zip(&ready.zones);
    let parts: Vec<_> = plans
        .filter_map(|(plan, zone)| {
            Some(Part {
                zone: Arc::clone(zone.get()?),
                names: plan.names(&ready.catalog),
                subs: plan.pump.clone(),
                limiters: plan.limiters.clone(),
                order_names: plan.order_names.clone(),
            })
        })
        .collect();
    if ready.settings.bind.is_none() || parts.is_empty() {
        return;
    }
    let random = gabion_driver::random_node_id();
    let leader = Leader {
        parts,
        pid: std::process::id(),
        me: u32::try_from(random & u64::from(u32::MAX))
            .unwrap_or(1)
            .max(1),
    };
    let settings = Arc::clone(&ready.settings);
    let stop = Arc::new(Stop::default());
    let told = Arc::clone(&stop);
    log::listen_to_driver();
    let thread = without_signals(|| {
        std::thread::Builder::new()
            .name("gabion-lease".to_owned())
            .spawn(move || {
                let say = |what: &Say<'_>| match what {
                    Say::Notice(text) => log::say(log::NOTICE, text),
                    Say::Failure(text) => log::say(log::ERROR, text),
                };
                leader.run(&settings, &told, &leaving, &say);
            })
    });
    match thread {
        Ok(thread) => {
            let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            *running = Some((stop, thread));
        }
        Err(error) => log::say(
            log::ERROR,
            &format!("no thread for gossip, this worker counts on: {error}"),
        ),
    }
}

/// Whether the worker takes no new requests any more. Called by the gossip thread.
fn leaving() -> bool {
    planted("gossip");
    // SAFETY: flags that nginx's main thread sets once; a stale look only delays the hand-over.
    unsafe {
        ptr::read_volatile(ptr::addr_of!(ngx_exiting)) != 0
            || ptr::read_volatile(ptr::addr_of!(ngx_quit)) != 0
            || ptr::read_volatile(ptr::addr_of!(ngx_terminate)) != 0
    }
}

/// Ends the thread and waits for it; returns whether there was one.
fn stop() -> bool {
    let running = RUNNING
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some((stop, thread)) = running else {
        return false;
    };
    stop.ask();
    let _ = thread.join(); // a panic ended it: there is nothing more to end
    true
}

/// Runs `body` with all signals blocked, so that threads it starts never run nginx's handlers.
fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are of this frame; the mask is the calling thread's and is put back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = body();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
        result
    }
}
