//! A thread of the server's own.

use std::io;
use std::thread::{Builder, JoinHandle};

use crate::signals::with_signals_blocked;

/// In bytes. The kernel provides the pages that are used.
const STACK: usize = 256 * 1024;

/// Starts a thread of this name, at most 15 bytes (pthread_setname_np(3)) of which are seen. All signals are blocked in it: the
/// application's signal handlers run in the application's thread.
pub fn spawn_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = Builder::new().name(name.into()).stack_size(STACK);
    with_signals_blocked(|| builder.spawn(work))
}
