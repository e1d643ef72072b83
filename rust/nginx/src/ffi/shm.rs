//! Zones in shared memory: adding, making, finding again.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use gabion_driver::{monotonic_ns, random_incarnation, random_node_id, ClusterClock};
use gabion_rule::{CounterIdentity, KeyHasher};
use gabion_table::{carry, RawMem, Table};
use nginx_sys::{
    ngx_conf_t, ngx_cycle, ngx_cycle_t, ngx_http_conf_ctx_t, ngx_http_module, ngx_int_t,
    ngx_pagesize, ngx_shared_memory_add, ngx_shm_zone_t, ngx_slab_alloc, ngx_slab_pool_t,
};

use super::conf::{MainConf, Ready, SharedZone};
use super::tables::ngx_http_gabion_module;
use super::{caught, code, log, pool};
use crate::catalog::ZonePlan;
use crate::error::ConfError;
use crate::orders;
use crate::zone::{words_before_table, Kept, Zone};

/// What a zone's callback needs.
struct Place {
    main: *const MainConf,
    index: usize,
}

/// Asks nginx for the memory of every zone that holds a rule.
///
/// # Safety
/// `cf` is valid, and `main` lives as long as its cycle.
pub(super) unsafe fn add_zones(cf: *mut ngx_conf_t, main: &MainConf) -> Result<(), ConfError> {
    let plans = main.ready.iter().flat_map(|ready| &ready.catalog.zones);
    for (index, plan) in plans.enumerate().filter(|(_, plan)| !plan.rules.is_empty()) {
        let fault = |why: &str| ConfError::new("gabion_limit_zone", &plan.name, why);
        let size = usize::try_from(plan.bytes).map_err(|_| fault("it is too large"))?;
        // SAFETY: the caller's promise. The name is copied, since nginx keeps it.
        unsafe {
            let name = pool::copied((*cf).pool, plan.memory_name.as_bytes());
            let mut name = name.ok_or_else(|| fault("nginx has no memory"))?;
            let tag = ptr::addr_of_mut!(ngx_http_gabion_module).cast::<c_void>();
            let zone = ngx_shared_memory_add(cf, &mut name, size, tag);
            if zone.is_null() {
                return Err(fault("nginx refuses the shared memory; see the line above"));
            }
            (*zone).init = Some(init);
            (*zone).data = pool::boxed((*cf).pool, Place { main, index }).cast();
            if (*zone).data.is_null() {
                return Err(fault("nginx has no memory"));
            }
        }
    }
    Ok(())
}

unsafe extern "C" fn init(zone: *mut ngx_shm_zone_t, old: *mut c_void) -> ngx_int_t {
    caught(code::ERROR, || {
        // SAFETY: nginx hands a zone of ours whose memory is mapped; `data` is what `add_zones` put
        // there, and the configuration it names lives as long as the zone's object.
        unsafe {
            let place = &*(*zone).data.cast::<Place>();
            let Some(ready) = &(*place.main).ready else {
                return code::ERROR;
            };
            let plan = &ready.catalog.zones[place.index];
            let exists = !old.is_null() || (*zone).shm.exists != 0;
            let made = match exists {
                true => find(zone, plan),
                false => make(zone, plan, ready),
            };
            match made {
                Ok(found) => {
                    let secret = found.kept().secret;
                    ready.hasher.get_or_init(|| KeyHasher::new(secret));
                    // Set once: nginx calls once for each configuration.
                    let _ = ready.zones[place.index].set(Arc::new(found));
                    code::OK
                }
                Err(why) => {
                    let text = format!("\"gabion_limit_zone\" value \"{}\": {why}", plan.name);
                    log::line((*zone).shm.log, nginx_sys::NGX_LOG_EMERG as _, &text);
                    code::ERROR
                }
            }
        }
    })
}

/// Words at an address of a mapped zone.
///
/// # Safety
/// `start` points to `words` words that stay mapped as long as the zone, 8-byte aligned, and used
/// as atomics only.
unsafe fn words(start: *mut u64, words: usize) -> Result<RawMem, String> {
    let start = NonNull::new(start).ok_or("no memory")?;
    // SAFETY: the caller's promise. A configuration, whose zones these are, ends before its memory
    // is unmapped, or does not touch it any more.
    Ok(unsafe { RawMem::from_raw(start, words) })
}

/// The zone that an earlier configuration made. Nothing is written: this reload may still fail.
///
/// # Safety
/// `zone` is a mapped zone of ours.
unsafe fn find(zone: *mut ngx_shm_zone_t, plan: &ZonePlan) -> Result<SharedZone, String> {
    // SAFETY: a mapped zone starts with the slab pool; `data` is what `make` stored there. Both
    // pieces are within the zone: `check` has seen our header, and the sum is compared.
    unsafe {
        let slab = (*zone).shm.addr.cast::<ngx_slab_pool_t>();
        let start = (*slab).data.cast::<u64>();
        let before = words_before_table(plan.subs.len(), plan.bytes);
        let head = words(start, before)?;
        Zone::check(&head).map_err(|error| error.to_string())?;
        let count = Zone::table_words(&head);
        let room = ((*slab).end as usize).saturating_sub(start as usize) / 8;
        if before.saturating_add(count) > room {
            return Err("its memory is smaller than it says; restart nginx".to_owned());
        }
        let table = Table::attach(words(start.add(before), count)?, &plan.subs);
        let table = table.map_err(|error| error.to_string())?;
        Ok(Zone::attach(head, table, plan.subs.len()))
    }
}

/// A zone in new memory, with the counts of the configuration in force, if there is one.
///
/// # Safety
/// `zone` is a mapped zone of ours that nobody used yet.
unsafe fn make(
    zone: *mut ngx_shm_zone_t,
    plan: &ZonePlan,
    ready: &Ready,
) -> Result<SharedZone, String> {
    // SAFETY: a mapped zone starts with the slab pool. All its pages but one are taken in one
    // piece, which is aligned to a page; the slab's own header and page list stay as they are.
    let (slab, start, bytes) = unsafe {
        let slab = (*zone).shm.addr.cast::<ngx_slab_pool_t>();
        let bytes = (*slab).pfree.saturating_sub(1) * ngx_pagesize;
        (slab, ngx_slab_alloc(slab, bytes).cast::<u64>(), bytes)
    };
    let before = words_before_table(plan.subs.len(), plan.bytes);
    let Some(rest) = (bytes / 8).checked_sub(before).filter(|_| !start.is_null()) else {
        return Err(format!("{} bytes are too few; enlarge it", plan.bytes));
    };
    let previous = previous(ready);
    let kept = *ready.identity.get_or_init(|| identity(ready, previous));
    // SAFETY: the piece has `bytes` bytes, is aligned, and ours alone.
    let (head, memory) = unsafe { (words(start, before)?, words(start.add(before), rest)?) };
    let mut table = Table::format(memory, &plan.subs).map_err(|error| error.to_string())?;
    if let Some(old) = previous.filter(|old| same_keys(old, ready)) {
        let now_ns = monotonic_ns().saturating_add_signed(kept.offset_ns);
        let zones = old.catalog.zones.iter().zip(&old.zones);
        let zones = zones.filter_map(|(old_plan, zone)| Some((old_plan, zone.get()?)));
        let rows: u64 = zones
            .map(|(old_plan, zone)| {
                let from = (&zone.table, &*old_plan.subs);
                carry(from, (&mut table, &plan.subs), now_ns).rows
            })
            .sum();
        let text = format!(
            "zone \"{}\" is new, since its size or rules changed; the counts of {rows} keys were \
             carried over",
            plan.name
        );
        // SAFETY: the log of a zone that is being made.
        unsafe { log::line((*zone).shm.log, log::NOTICE, &text) };
    }
    let made = Zone::format(head, table, plan.subs.len(), &kept);
    if let Some(old) = previous.filter(|old| same_keys(old, ready)) {
        let zones = old.catalog.zones.iter().zip(&old.zones);
        let zones = zones.filter_map(|(plan, zone)| Some((&**zone.get()?, &*plan.order_names)));
        orders::carry(&zones.collect::<Vec<_>>(), (&made, &plan.order_names));
    }
    // SAFETY: the pool's user pointer is for us.
    unsafe { (*slab).data = start.cast() };
    Ok(made)
}

/// The configuration in force, while another one is made.
fn previous<'a>(ready: &Ready) -> Option<&'a Ready> {
    // SAFETY: while a configuration is built the one in force stays; both are used here only.
    let in_force = unsafe { main_conf_in(ngx_cycle) }?.ready.as_ref()?;
    (!ptr::eq(in_force, ready)).then_some(in_force)
}

/// Whether keys name the same counters in both: keys of another secret name other ones, whose
/// counts cannot be carried.
fn same_keys(old: &Ready, ready: &Ready) -> bool {
    let probe = |ready: &Ready| {
        let hasher = ready.hasher.get();
        hasher.map(|hasher| hasher.key(&CounterIdentity([0; 16]), &[], 0))
    };
    let shared =
        |ready: &Ready| ready.settings.bind.is_some() || ready.settings.key_secret.is_some();
    (!shared(old) && !shared(ready)) || probe(old) == probe(ready)
}

/// What all zones of a configuration are: one member with one secret. It lives on from
/// configuration to configuration, unless the keys change, which loses all counts.
fn identity(ready: &Ready, previous: Option<&Ready>) -> Kept {
    let zones = previous.iter().flat_map(|old| &old.zones);
    let zones: Vec<Kept> = zones.filter_map(|zone| Some(zone.get()?.kept())).collect();
    let (Some(old), Some(first)) = (previous, zones.first()) else {
        return fresh();
    };
    let session = zones.iter().map(|kept| kept.session).max().unwrap_or(0);
    match same_keys(old, ready) {
        true => Kept { session, ..*first },
        false => Kept {
            node: first.node,
            offset_ns: first.offset_ns,
            ..fresh()
        },
    }
}

fn fresh() -> Kept {
    let (a, b) = (random_incarnation(), random_incarnation());
    Kept {
        incarnation: random_incarnation(),
        node: random_node_id(),
        offset_ns: ClusterClock::from_wall_clock().offset_ns(),
        secret: (u128::from(a) << 64 | u128::from(b)).to_be_bytes(),
        session: 0,
    }
}

/// Our part of the configuration that is being read; `None` outside of `http`.
///
/// # Safety
/// `cf` is valid and within `http`.
pub(super) unsafe fn main_conf_of<'a>(cf: *mut ngx_conf_t) -> Option<&'a MainConf> {
    // SAFETY: within `http`, `ctx` is the http modules' context, with a place for each of them.
    unsafe { main_conf_at(cf).as_ref() }
}

/// The same, to be written to while directives are read; null outside of `http`.
///
/// # Safety
/// As [`main_conf_of`].
pub(super) unsafe fn main_conf_at(cf: *mut ngx_conf_t) -> *mut MainConf {
    // SAFETY: as in `main_conf_of`.
    unsafe {
        let ctx = (*cf).ctx.cast::<ngx_http_conf_ctx_t>();
        (*(*ctx).main_conf.add(ngx_http_gabion_module.ctx_index)).cast::<MainConf>()
    }
}

/// Our part of a cycle's configuration; `None` when it has none.
///
/// # Safety
/// `cycle` is null or valid.
pub(super) unsafe fn main_conf_in<'a>(cycle: *const ngx_cycle_t) -> Option<&'a MainConf> {
    // SAFETY: the caller's promise. The first cycle of a process has no modules and no contexts. A
    // cycle that does not list us was read before we were loaded, and has no place for us.
    unsafe {
        let cycle = cycle.as_ref()?;
        if cycle.modules.is_null() || cycle.conf_ctx.is_null() {
            return None;
        }
        let ours = ptr::addr_of_mut!(ngx_http_gabion_module);
        let mut at = cycle.modules;
        while *at != ours {
            if (*at).is_null() {
                return None;
            }
            at = at.add(1);
        }
        let ctx = (*cycle.conf_ctx.add(ngx_http_module.index)).cast::<ngx_http_conf_ctx_t>();
        let ctx = ctx.as_ref()?;
        (*ctx.main_conf.add((*ours).ctx_index))
            .cast::<MainConf>()
            .as_ref()
    }
}
