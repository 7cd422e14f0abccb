//! Whether the machine has a processor to spare.

/// The machine's processors, and how many threads of all its processes want one.
#[derive(Debug)]
pub struct Processors {
    /// Whether this process may use all of them.
    #[cfg(not(portable))]
    has_all: bool,
    online: u32,
}

impl Processors {
    /// They are counted now. Where this process may use only some of them (cgroup, affinity), what the others do says nothing.
    pub fn new() -> Self {
        let online = online();
        Processors {
            #[cfg(not(portable))]
            has_all: has_all(online),
            online,
        }
    }

    /// How many there are; 1 where nobody asks.
    pub fn online(&self) -> usize {
        self.online as usize
    }

    /// How many are idle, and the current thread's own; 0 if threads wait for one. None where the system does not tell.
    pub fn spare(&self) -> Option<u32> {
        self.runnable().map(|runnable| (self.online + 1).saturating_sub(runnable))
    }

    /// How many threads of all processes compute or would like to, the current one among them (proc_loadavg(5)).
    #[cfg(not(portable))]
    fn runnable(&self) -> Option<u32> {
        let load = self.has_all.then(|| std::fs::read("/proc/loadavg").ok()).flatten()?;
        runnable_of(&load)
    }

    #[cfg(portable)]
    fn runnable(&self) -> Option<u32> {
        None
    }
}

impl Default for Processors {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(portable))]
fn online() -> u32 {
    let count = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN);
    count.ok().flatten().and_then(|count| u32::try_from(count).ok()).unwrap_or(1)
}

/// Nobody asks: see `runnable`.
#[cfg(portable)]
fn online() -> u32 {
    1
}

#[cfg(not(portable))]
fn has_all(online: u32) -> bool {
    std::thread::available_parallelism().is_ok_and(|usable| usable.get() >= online as usize)
}

/// The fourth field's first number, as in `0.20 0.18 0.12 1/80 11206`.
#[cfg(not(portable))]
fn runnable_of(text: &[u8]) -> Option<u32> {
    let field = text.split(|byte| *byte == b' ').nth(3)?;
    let number = field.split(|byte| *byte == b'/').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
#[cfg(not(portable))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::patience::until;

    #[test]
    fn none_is_spare_while_more_threads_compute_than_there_are_processors() {
        let processors = Processors::new();
        if !processors.has_all {
            assert_eq!(processors.spare(), None);
            return;
        }
        assert!(processors.online > 0 && processors.runnable().is_some_and(|runnable| runnable > 0));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..=processors.online {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            until(|| processors.spare() == Some(0));
            is_over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn what_is_no_load_says_nothing() {
        assert_eq!(runnable_of(b"0.20 0.18 0.12 1/80 11206\n"), Some(1));
        for text in ["", "0.20 0.18 0.12", "a b c d/80 1", "a b c /80 1"] {
            assert_eq!(runnable_of(text.as_bytes()), None, "{text}");
        }
    }
}
