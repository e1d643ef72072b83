//! What the system says about processes: memory and CPU time.

use crate::BenchError;

/// Clock ticks per second of `/proc`; 100 on every Linux that runs on x86-64 or arm64.
const TICKS_PER_S: f64 = 100.0;

/// CPU seconds (user and system, all threads) that a process has used.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64, BenchError> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path)?;
    parse_cpu_ticks(&text)
        .map(|ticks| ticks as f64 / TICKS_PER_S)
        .ok_or_else(|| BenchError::Void(format!("{path} has another form than expected")))
}

/// Fields 14 and 15; the second field, the name, may hold spaces and brackets.
fn parse_cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat[stat.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// The most resident memory this process ever had, bytes.
pub(crate) fn resident_most_bytes() -> Result<u64, BenchError> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| {
        BenchError::Void("/proc/self/status does not name the resident memory".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_behind_any_process_name() {
        let stat = "7 (a) b) 1) S 1 7 7 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 1 0 5 0 0";
        assert_eq!(parse_cpu_ticks(stat), Some(42));
        assert_eq!(parse_cpu_ticks("7 (x) S 1"), None);
        assert_eq!(parse_cpu_ticks(""), None);
    }

    #[test]
    fn this_process_has_memory_and_cpu_time() {
        assert!(resident_most_bytes().unwrap() > 100_000);
        assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
    }
}
