//! Whether the machine's processors are busy, of late.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use fastrack_sys::Processors;

/// An average of looks is kept as a number up to this.
const ALL: u32 = 1 << 16;

/// How much one look changes the average: a worker looks every one to five milliseconds while requests wait,
/// and when it ends one.
const WEIGHT: u32 = 32;

/// Up to this share a worker begins further requests, and beyond the other one it gives them up.
const LOW: u32 = ALL / 8 * 7;
const HIGH: u32 = ALL / 16 * 15;

#[derive(Debug)]
pub(super) struct Load {
    /// None where nobody asks.
    processors: Option<Processors>,
    /// Of all looks the share that have seen no idle processor, the later ones weighing more.
    busy: AtomicU32,
}

impl Load {
    pub fn new(is_wanted: bool) -> Self {
        Load { processors: is_wanted.then(Processors::new), busy: AtomicU32::new(0) }
    }

    /// The descriptors that a forked child inherits.
    pub fn inherited_fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.processors.iter().flat_map(Processors::raw_fds)
    }

    /// How many processors are idle, the current thread's own included; 0 if too many looks have seen none. Where that is
    /// unknown, there are enough.
    pub fn idle_processors(&self) -> usize {
        let spare = self.look();
        if self.is_busy() {
            return 0;
        }
        spare.max(1)
    }

    /// Whether too many looks have seen no idle processor.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > LOW
    }

    /// Whether nearly all looks have seen none, this one included.
    pub fn is_high(&self) -> bool {
        self.look();
        self.busy.load(Ordering::Relaxed) > HIGH
    }

    fn look(&self) -> usize {
        let Some(spare) = self.processors.as_ref().and_then(Processors::spare) else { return usize::MAX };
        self.note(spare);
        spare as usize
    }

    pub fn note(&self, spare: u32) {
        let busy = self.busy.load(Ordering::Relaxed);
        let seen = if spare == 0 { ALL } else { 0 };
        // Another thread's look may be lost: they are many.
        self.busy.store(busy - busy / WEIGHT + seen / WEIGHT, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::patience::until;
    use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
    use std::sync::atomic::AtomicBool;

    /// As many threads compute as it takes to have none of the machine's processors idle. Does nothing where the system does not
    /// tell that.
    pub fn with_busy_processors(work: impl FnOnce()) {
        if Processors::new().spare().is_none() {
            return;
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let count = std::thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..count {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let result = catch_unwind(AssertUnwindSafe(work));
            is_over.store(true, Ordering::Relaxed);
            result.unwrap_or_else(|panic| resume_unwind(panic));
        });
    }

    #[test]
    fn a_look_sees_the_machines_processors() {
        with_busy_processors(|| {
            let load = Load::new(true);
            until(|| load.is_high());
            assert!(load.is_busy());
        });
    }

    #[test]
    fn processors_are_busy_when_many_looks_have_seen_that_and_idle_when_many_have_not() {
        let load = Load::new(false);
        let see = |spare, times| (0..times).for_each(|_| load.note(spare));
        assert!(!load.is_high() && load.idle_processors() == usize::MAX);
        see(0, 20);
        assert!(!load.is_high() && load.idle_processors() > 0);
        see(0, 50);
        assert!(!load.is_high() && load.idle_processors() == 0);
        see(0, 60);
        assert!(load.is_high() && load.idle_processors() == 0);
        see(1, 3);
        assert!(!load.is_high() && load.is_busy() && load.idle_processors() == 0);
        see(1, 3);
        assert!(!load.is_high() && !load.is_busy() && load.idle_processors() > 0);
    }
}
