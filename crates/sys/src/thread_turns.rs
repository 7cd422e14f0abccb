//! How long a thread has a processor in a row.

use std::time::Duration;

/// The shortest turn that Linux knows. The usual one lasts up to 3 ms.
const SHORT_TURN: Duration = Duration::from_micros(100);

/// Asks for short turns of the current thread on a processor. A thread with short turns gets a processor sooner when it wakes up, also
/// where all processors are busy. Linux 6.12 and later know such turns, for ordinary threads (sched_setattr(2), `sched_runtime`).
///
/// Does nothing where a seccomp(2) filter is in place: the filter of a hardened systemd unit (`SystemCallFilter=~@resources`) kills a
/// process that asks.
pub fn take_short_turns() {
    if !turns::may_be_killed() {
        turns::set(SHORT_TURN);
    }
}

/// The length of a thread's turns. `thread` is its number (gettid(2)), 0 the current thread. None where the system does not tell.
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

    /// Whether a filter decides about system calls. The file tells without the system call PR_GET_SECCOMP(2const).
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

#[cfg(test)]
mod tests {
    use super::*;

    /// In Linux each thread has a nice value of its own, and None is the current thread.
    fn nice() -> Option<i32> {
        rustix::process::getpriority_process(None).ok()
    }

    /// The length of a thread's turns and its nice value, before and after it has asked for short turns.
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
