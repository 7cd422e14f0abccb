//! Signals.

use nix::sys::signal::SigSet;

/// Runs `work` with all signals blocked in this thread. A thread that is started meanwhile has them blocked for good:
/// the application's handlers run in the application's thread.
pub fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    // Neither call fails with valid arguments (pthread_sigmask(3)).
    let before = SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
    let result = work();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    result
}
