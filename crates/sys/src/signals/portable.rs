//! Signals that are ignored by default, and are spare in most programs.

use std::sync::atomic::{AtomicUsize, Ordering};

use nix::libc;

pub fn spare_signal(which: i32) -> i32 {
    [libc::SIGIO, libc::SIGURG][which as usize % 2]
}

/// Stands for the thread that runs the application, or for one that the system chooses.
const APPLICATIONS: i32 = 0;

/// A pthread_t; 0 is none.
static THREAD: AtomicUsize = AtomicUsize::new(0);

pub fn note_thread() {
    // SAFETY: pthread_self has no conditions.
    THREAD.store(unsafe { libc::pthread_self() } as usize, Ordering::SeqCst);
}

pub fn other_threads() -> Vec<i32> {
    vec![APPLICATIONS]
}

pub fn signal_thread(_thread: i32, signal: i32) -> bool {
    match THREAD.load(Ordering::SeqCst) {
        // SAFETY: kill(2) takes any number. It fails if that is not a signal.
        0 => unsafe { libc::kill(libc::getpid(), signal) == 0 },
        // SAFETY: the thread lives: signals are sent while it runs the engine.
        thread => unsafe { libc::pthread_kill(thread as libc::pthread_t, signal) == 0 },
    }
}
