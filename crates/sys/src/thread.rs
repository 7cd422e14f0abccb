//! Native threads of the server.

use std::io;
use std::thread::{Builder, JoinHandle};

use crate::signals::with_signals_blocked;

/// The size of a stack, in bytes. The kernel provides only the pages that are used.
const STACK_SIZE: usize = 256 * 1024;

/// Starts a thread. The system shows the first 15 bytes of its name (pthread_setname_np(3)). All signals are blocked in
/// the thread, so that signal handlers of the application run in its own thread.
pub fn spawn_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = Builder::new().name(name.into()).stack_size(STACK_SIZE);
    with_signals_blocked(|| builder.spawn(work))
}
