//! Figures of processes, from proc(5).

use std::collections::HashMap;
use std::fs;

use fastrack_engine::Memory;
use fastrack_sys::{monotonic_micros, page_size, ProcStat};

/// The memory and CPU time of a process, in bytes and seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub cpu_seconds: f64,
    pub resident: u64,
    /// None if the kernel does not report it.
    pub memory: Option<Memory>,
}

/// Units of CPU time in proc(5) per second (USER_HZ): 100 on all platforms of Linux today.
const USER_HZ: f64 = 100.0;

/// None if there is no such process, or if it has ended and was not reaped.
pub fn usage(pid: u32) -> Option<Usage> {
    let stat = ProcStat::of_process(pid).filter(|stat| !stat.has_ended())?;
    let cpu_seconds = (stat.number(14)? + stat.number(15)?) as f64 / USER_HZ;
    Some(Usage { cpu_seconds, resident: stat.number(24)? * page_size(), memory: None })
}

fn memory(pid: u32) -> Option<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let of = |name: &str| -> u64 {
        let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        lines.filter_map(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()).sum::<u64>() * 1024
    };
    Some(Memory { proportional: of("Pss"), private: of("Private_Clean") + of("Private_Dirty") })
}

/// CPU seconds that this thread has used.
pub fn own_cpu_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_ascii_whitespace().next()?.parse::<f64>().ok()? / 1e9)
}

/// The number of connections that found a full backlog, over all listeners of this network namespace.
pub fn listen_overflows() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/netstat").ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    pairs.find(|(name, _)| *name == "ListenOverflows")?.1.parse().ok()
}

/// The last known memory of processes. A reading takes milliseconds, because the kernel walks through all pages of the
/// process. So processes are read in turn, and all readings together take 1 / [`COST_RATIO`] of a core.
#[derive(Debug, Default)]
pub struct PssCache {
    /// By pid: the time of the reading, in microseconds of the monotonic clock, and its result.
    known: HashMap<u32, (u64, Option<Memory>)>,
    /// The earliest time of the next reading.
    not_before: u64,
}

/// After a reading, the next one waits for this many times its duration. Bench: `bench/instructions` (worker with monitor).
const COST_RATIO: u64 = 2000;

/// Time for the first readings of new processes in one call, in microseconds.
const FIRST_BUDGET: u64 = 20_000;

impl PssCache {
    /// Returns the last known memory of each of these processes.
    pub fn get(&mut self, pids: &[u32]) -> Vec<Option<Memory>> {
        self.known.retain(|pid, _| pids.contains(pid));
        let start = monotonic_micros();
        let new = pids.iter().filter(|pid| !self.known.contains_key(pid)).copied().collect::<Vec<_>>();
        for pid in new {
            if monotonic_micros() - start < FIRST_BUDGET {
                self.read(pid);
            }
        }
        if start >= self.not_before {
            let oldest = self.known.iter().min_by_key(|(_, (at, _))| *at).map(|(pid, _)| *pid);
            if let Some(pid) = oldest.filter(|pid| self.known[pid].0 < start) {
                self.read(pid);
            }
        }
        pids.iter().map(|pid| self.known.get(pid)?.1).collect()
    }

    fn read(&mut self, pid: u32) {
        let before = monotonic_micros();
        let memory = memory(pid);
        let now = monotonic_micros();
        self.known.insert(pid, (now, memory));
        self.not_before = self.not_before.max(now) + (now - before) * COST_RATIO;
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_this_process_is_read() {
        let pid = std::process::id();
        let usage = usage(pid).expect("this process");
        let memory = memory(pid).expect("its memory");
        assert!(usage.resident > 1 << 16 && memory.proportional > 1 << 16, "{usage:?} {memory:?}");
        assert!(memory.private <= memory.proportional);
        assert!(super::usage(u32::MAX).is_none());
    }

    #[test]
    fn memory_is_read_once_and_then_seldom() {
        let pid = std::process::id();
        let mut cache = PssCache::default();
        let first = cache.get(&[pid, u32::MAX]);
        assert!(first[0].is_some() && first[1].is_none());
        let known = cache.known[&pid].0;
        assert_eq!(cache.get(&[pid]), vec![first[0]]);
        assert_eq!((cache.known[&pid].0, cache.known.len()), (known, 1));
    }
}
