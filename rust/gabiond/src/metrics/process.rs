//! What Prometheus expects to know of any process. A number that the system does not give is left
//! out.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{getrlimit, Resource};
use rustix::time::{clock_gettime, ClockId};

use super::page::Page;

pub(super) fn write(page: &mut Page<'_, '_>, started: SystemTime) -> fmt::Result {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    page.cpu_seconds(cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9)?;
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = pages.split(' ').map_while(|word| word.parse::<u64>().ok());
    let page_bytes = rustix::param::page_size() as u64;
    let bytes = |pages: u64| pages.saturating_mul(page_bytes);
    if let Some(size) = pages.next() {
        page.gauge(
            "process_virtual_memory_bytes",
            "Virtual memory",
            bytes(size),
        )?;
    }
    if let Some(resident) = pages.next() {
        page.gauge(
            "process_resident_memory_bytes",
            "Resident memory",
            bytes(resident),
        )?;
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        // Reading the directory holds one of them open.
        let open = (files.count() as u64).saturating_sub(1);
        page.gauge("process_open_fds", "Open file descriptors", open)?;
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        page.gauge("process_max_fds", "File descriptors that may be open", most)?;
    }
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count() as u64);
    page.gauge("process_threads", "Threads", threads)?;
    let since = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    page.gauge(
        "process_start_time_seconds",
        "Start of the process, seconds since 1970",
        since.as_secs_f64(),
    )
}
