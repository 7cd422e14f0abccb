//! The priority of one thread among those that want a processor.

/// Has the current thread compute only when a processor is idle, or nearly so, until this is dropped. Another thread must not drop it.
#[derive(Debug)]
pub struct LowPriority {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    usual: i32,
}

/// The lowest there is (setpriority(2)): a seventieth of what a thread with the usual one gets beside it.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LOWEST: i32 = 19;

#[cfg(any(target_os = "linux", target_os = "android"))]
impl LowPriority {
    /// Whether a thread of this process can come back from it: that takes `CAP_SYS_NICE`, or an `RLIMIT_NICE` of 20 or more
    /// (getrlimit(2)). Tried in a thread that ends then.
    pub fn is_allowed() -> bool {
        let comes_back = || LowPriority::take().is_some_and(LowPriority::restore);
        crate::with_signals_blocked(|| std::thread::Builder::new().spawn(comes_back))
            .is_ok_and(|trial| trial.join().unwrap_or(false))
    }

    /// Only where that [is allowed](Self::is_allowed). None if the thread has it anyhow, or the system does not tell.
    pub fn take() -> Option<Self> {
        // In Linux a thread has its own, and None is the current one.
        let usual = rustix::process::getpriority_process(None).ok().filter(|usual| *usual < LOWEST)?;
        rustix::process::setpriority_process(None, LOWEST).ok()?;
        Some(LowPriority { usual })
    }

    fn restore(self) -> bool {
        let restored = rustix::process::setpriority_process(None, self.usual);
        std::mem::forget(self);
        restored.is_ok()
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Drop for LowPriority {
    fn drop(&mut self) {
        let _ = rustix::process::setpriority_process(None, self.usual);
    }
}

/// Elsewhere a priority is that of a process.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl LowPriority {
    pub fn is_allowed() -> bool {
        false
    }

    pub fn take() -> Option<Self> {
        None
    }
}
