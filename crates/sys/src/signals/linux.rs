//! Real-time signals, and threads by their ids.

use nix::libc;
use nix::sys::signal::SigSet;

pub fn spare_signal(which: i32) -> i32 {
    libc::SIGRTMIN() + 9 + which
}

/// All threads are known anyway.
pub fn note_thread() {}

pub fn other_threads() -> Vec<i32> {
    let own = nix::unistd::gettid().as_raw();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let mut threads: Vec<i32> = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    threads.retain(|thread| *thread != own);
    threads.sort_unstable();
    threads
}

/// Takes a signal of these that this thread blocks and has got. Does not wait for one.
pub fn discard_pending(signals: &SigSet) {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both point to values that outlive the call, and nobody wants to know more of the signal.
    unsafe { libc::sigtimedwait(signals.as_ref(), std::ptr::null_mut(), &raw const now) };
}

/// tgkill(2).
pub fn signal_thread(thread: i32, signal: i32) -> bool {
    // SAFETY: tgkill takes any numbers, and reaches only threads of this process.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) == 0 }
}
