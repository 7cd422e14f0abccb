//! The priority of one thread among those that want a processor.

/// The lowest there is (setpriority(2)): a seventieth of what a thread with the usual one gets beside it.
const LOWEST: i32 = 19;

/// Has the current thread compute only when a processor is idle, or nearly so, until this is dropped. Another thread must not drop it.
#[derive(Debug)]
pub struct LowPriority {
    usual: i32,
}

impl LowPriority {
    /// Whether a thread of this process can come back from it: in Linux, with `CAP_SYS_NICE` or an `RLIMIT_NICE` of 20 or more
    /// (getrlimit(2)). Tried in a thread that ends then.
    pub fn is_allowed() -> bool {
        let comes_back = || LowPriority::take().is_some_and(|low| low.restore().is_some());
        crate::with_signals_blocked(|| std::thread::Builder::new().spawn(comes_back))
            .is_ok_and(|trial| trial.join().unwrap_or(false))
    }

    /// Only where that [is allowed](Self::is_allowed). None if the thread has it anyhow, or the system does not tell.
    pub fn take() -> Option<Self> {
        let usual = nice().filter(|usual| *usual < LOWEST)?;
        set_nice(LOWEST)?;
        Some(LowPriority { usual })
    }

    fn restore(&self) -> Option<()> {
        set_nice(self.usual)
    }
}

impl Drop for LowPriority {
    fn drop(&mut self) {
        let _ = self.restore();
    }
}

// In Linux each thread has its own, and None is the current one; elsewhere a process has one.

fn nice() -> Option<i32> {
    rustix::process::getpriority_process(None)
        .ok()
        .filter(|_| cfg!(any(target_os = "linux", target_os = "android")))
}

fn set_nice(nice: i32) -> Option<()> {
    rustix::process::setpriority_process(None, nice).ok()
}
