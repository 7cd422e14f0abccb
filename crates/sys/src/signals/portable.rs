//! Signals that are ignored by default and unused in most programs.

use std::sync::atomic::{AtomicUsize, Ordering};

use nix::libc;

pub fn spare_signal(which: i32) -> i32 {
    [libc::SIGIO, libc::SIGURG][which as usize % 2]
}

/// The number that stands for the thread of the application, or for a thread that the system chooses.
const APPLICATION_THREAD: i32 = 0;

/// The pthread_t of the application's thread; 0 before one was noted.
static THREAD: AtomicUsize = AtomicUsize::new(0);

pub fn note_thread() {
    // SAFETY: pthread_self has no conditions.
    THREAD.store(unsafe { libc::pthread_self() } as usize, Ordering::SeqCst);
}

pub fn other_threads() -> Vec<i32> {
    vec![APPLICATION_THREAD]
}

pub fn signal_thread(_thread: i32, signal: i32) -> bool {
    match THREAD.load(Ordering::SeqCst) {
        // SAFETY: kill(2) accepts any number, and fails for one that is not a signal.
        0 => unsafe { libc::kill(libc::getpid(), signal) == 0 },
        // SAFETY: the thread has not ended, because signals are sent only while it runs the engine.
        thread => unsafe { libc::pthread_kill(thread as libc::pthread_t, signal) == 0 },
    }
}
