//! Signals that are ignored by default, and are spare in most programs.

use nix::libc;

pub fn spare_signal(which: i32) -> i32 {
    [libc::SIGIO, libc::SIGURG][which as usize % 2]
}

/// Stands for a thread that the system chooses: the main thread, mostly.
const ANY: i32 = 0;

pub fn other_threads() -> Vec<i32> {
    vec![ANY]
}

pub fn signal_thread(_thread: i32, signal: i32) -> bool {
    // SAFETY: kill(2) takes any number. It fails if that is not a signal.
    unsafe { libc::kill(libc::getpid(), signal) == 0 }
}
