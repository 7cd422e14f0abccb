//! What proc(5) says about processes.

use std::collections::HashMap;
use std::fs;

use fastrack_engine::Memory;
use fastrack_sys::{monotonic_micros, page_size, ProcStat};

/// What a process uses, in bytes and seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub cpu_seconds: f64,
    pub resident: u64,
    /// None if the kernel does not tell.
    pub memory: Option<Memory>,
}

/// proc(5) gives CPU time in hundredths of a second on all that Linux runs on today (USER_HZ).
const TICKS: f64 = 100.0;

/// None if there is no such process, or it has ended and is not reaped.
pub fn usage(pid: u32) -> Option<Usage> {
    let stat = ProcStat::of_process(pid).filter(|stat| !stat.has_ended())?;
    let cpu_seconds = (stat.number(14)? + stat.number(15)?) as f64 / TICKS;
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

/// Connections that found a full backlog, of all listeners of this network namespace.
pub fn listen_overflows() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/netstat").ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
    pairs.find(|(name, _)| *name == "ListenOverflows")?.1.parse().ok()
}

/// The memory of processes. The kernel walks through all of a process's pages to tell, which takes milliseconds: so each
/// is asked for seldom enough that all of them together take 1/2000 of a core.
#[derive(Debug, Default)]
pub struct MemoryBook {
    known: HashMap<u32, (u64, Option<Memory>)>,
    not_before: u64,
}

const REST: u64 = 2000;

/// In microseconds: what may be spent on processes that are new, at one time.
const FIRST: u64 = 20_000;

impl MemoryBook {
    /// Of each of these processes, what was last seen.
    pub fn of(&mut self, pids: &[u32]) -> Vec<Option<Memory>> {
        self.known.retain(|pid, _| pids.contains(pid));
        let start = monotonic_micros();
        let new = pids.iter().filter(|pid| !self.known.contains_key(pid)).copied().collect::<Vec<_>>();
        for pid in new {
            if monotonic_micros() - start < FIRST {
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
        self.not_before = self.not_before.max(now) + (now - before) * REST;
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn it_reads_what_this_process_uses() {
        let pid = std::process::id();
        let usage = usage(pid).expect("this process");
        let memory = memory(pid).expect("its memory");
        assert!(usage.resident > 1 << 16 && memory.proportional > 1 << 16, "{usage:?} {memory:?}");
        assert!(memory.private <= memory.proportional);
        assert!(super::usage(u32::MAX).is_none());
    }

    #[test]
    fn it_asks_for_memory_once_and_then_seldom() {
        let pid = std::process::id();
        let mut book = MemoryBook::default();
        let first = book.of(&[pid, u32::MAX]);
        assert!(first[0].is_some() && first[1].is_none());
        let known = book.known[&pid].0;
        assert_eq!(book.of(&[pid]), vec![first[0]]);
        assert_eq!((book.known[&pid].0, book.known.len()), (known, 1));
    }
}
