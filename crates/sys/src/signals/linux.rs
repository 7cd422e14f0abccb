//! Real-time signals, and threads by id.

use nix::libc;
use nix::sys::signal::SigSet;

pub fn spare_signal(which: i32) -> i32 {
    libc::SIGRTMIN() + 9 + which
}

/// Does nothing: Linux lists all threads.
pub fn note_thread() {}

pub fn other_threads() -> Vec<i32> {
    let own = nix::unistd::gettid().as_raw();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let mut threads: Vec<i32> = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    threads.retain(|thread| *thread != own);
    threads.sort_unstable();
    threads
}

/// Discards one pending signal of the set, which this thread must block. Does not wait.
pub fn discard_pending(signals: &SigSet) {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both pointers are to values that outlive the call. The result may be null.
    unsafe { libc::sigtimedwait(signals.as_ref(), std::ptr::null_mut(), &raw const now) };
}

/// By tgkill(2).
pub fn signal_thread(thread: i32, signal: i32) -> bool {
    // SAFETY: tgkill accepts any numbers, and reaches only threads of this process.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) == 0 }
}
