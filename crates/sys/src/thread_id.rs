//! Ids of threads, as the system has them.

use crate::proc_stat::ProcStat;

/// A thread's id.
#[derive(Clone, Copy, Debug)]
pub struct ThreadId(u32);

impl ThreadId {
    /// The id of the current thread; None on systems without proc(5).
    pub fn current() -> Option<Self> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        return u32::try_from(nix::unistd::gettid().as_raw()).ok().map(ThreadId);
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        None
    }

    /// The id as a number, never 0.
    pub fn number(self) -> u64 {
        self.0.into()
    }

    /// The id with this number; None for 0.
    pub fn of_number(number: u64) -> Option<Self> {
        u32::try_from(number).ok().filter(|id| *id != 0).map(ThreadId)
    }

    /// Whether the thread runs or waits for a processor (proc(5)).
    pub fn is_runnable(self) -> bool {
        ProcStat::of_thread(self.0).is_some_and(|stat| stat.state() == Some('R'))
    }
}
