//! The priority of one thread among those that want a processor, and how long it has that in a row.

use std::time::Duration;

/// The shortest that Linux knows. The usual turn is up to 3 ms.
const SHORT_TURN: Duration = Duration::from_micros(100);

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
        crate::spawn_thread("fastrack trial", comes_back).is_ok_and(|trial| trial.join().unwrap_or(false))
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

/// Asks for short turns of the current thread on a processor. It gets them the sooner when it wakes up, also where all processors are
/// busy: for a thread that computes little at a time. Linux 6.12 and later go by that, for ordinary threads
/// (sched_setattr(2), `sched_runtime`); to others it means nothing.
///
/// Does nothing where a seccomp(2) filter is in place: that of a hardened systemd unit (`SystemCallFilter=~@resources`) kills who asks.
pub fn take_short_turns() {
    if !turns::may_be_killed() {
        turns::set(SHORT_TURN);
    }
}

/// How long the turns of this process's thread with this number are, 0 for the current one. None where the system does not tell.
pub fn turn_of(thread: u32) -> Option<Duration> {
    turns::get(thread)
}

#[cfg(target_os = "linux")]
mod turns {
    use std::time::Duration;

    use nix::libc;

    /// See sched_getattr(2).
    fn attributes(thread: u32) -> Option<libc::sched_attr> {
        // SAFETY: it consists of numbers, for which 0 is a value.
        let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::sched_attr>() as u32;
        // SAFETY: the kernel writes at most as many bytes as it is told, and there is room for them.
        let result = unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attributes, size, 0) };
        (result == 0 && attributes.sched_policy == libc::SCHED_OTHER as u32).then_some(attributes)
    }

    pub fn get(thread: u32) -> Option<Duration> {
        attributes(thread).map(|its| its.sched_runtime).filter(|nanos| *nanos > 0).map(Duration::from_nanos)
    }

    /// Whether a filter decides about system calls; by this file, because asking the kernel is also one (PR_GET_SECCOMP(2const)).
    pub fn may_be_killed() -> bool {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        !status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "0"))
    }

    pub fn set(turn: Duration) {
        let Some(mut attributes) = attributes(0) else { return };
        attributes.sched_runtime = turn.as_nanos() as u64;
        // SAFETY: the kernel only reads the attributes, as many bytes as they say.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

#[cfg(not(target_os = "linux"))]
mod turns {
    use std::time::Duration;

    pub fn get(_thread: u32) -> Option<Duration> {
        None
    }

    pub fn may_be_killed() -> bool {
        false
    }

    pub fn set(_turn: Duration) {}
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a thread's turns are before and after it has asked for short ones, and its priority.
    fn asked(prepare: fn()) -> [(Option<Duration>, Option<i32>); 2] {
        let ask = move || {
            prepare();
            let before = (turn_of(0), nice());
            take_short_turns();
            [before, (turn_of(0), nice())]
        };
        std::thread::spawn(ask).join().expect("no panic")
    }

    #[test]
    fn a_thread_has_short_turns_when_it_asks_for_them_and_its_priority_stays() {
        let usual = turn_of(0);
        let [before, after] = asked(|| ());
        assert_eq!((before.0, before.1), (usual, after.1));
        // Linux before 6.12 does not tell, nor do other systems.
        let expected = if turns::may_be_killed() { usual } else { usual.map(|_| SHORT_TURN) };
        assert_eq!((after.0, turn_of(0)), (expected, usual), "of that thread alone");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_does_not_ask_for_short_turns_where_a_filter_may_kill_it() {
        use nix::libc;
        // Allows everything.
        let filter = || {
            let mut rule = libc::sock_filter {
                code: (libc::BPF_RET | libc::BPF_K) as u16,
                jt: 0,
                jf: 0,
                k: libc::SECCOMP_RET_ALLOW,
            };
            let program = libc::sock_fprog { len: 1, filter: &raw mut rule };
            nix::sys::prctl::set_no_new_privs().expect("allowed");
            // SAFETY: the kernel only reads the program, which is one rule long.
            let result = unsafe {
                libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
            };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        };
        let [before, after] = asked(filter);
        assert_eq!(before, after);
    }
}
