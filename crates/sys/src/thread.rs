//! Native threads of the server.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{sleep, Builder, JoinHandle};
use std::time::Duration;

use crate::process::exit_at_once;
use crate::signals::with_signals_blocked;
use crate::stderr::write_stderr_all;

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

/// If this process still runs after the time, writes `line` to stderr and ends the process with `status`, even if the
/// application hangs. A later call replaces an earlier call. Fails if no thread can be started.
pub fn end_within(limit: Duration, status: i32, line: String) -> io::Result<()> {
    static NEWEST: AtomicUsize = AtomicUsize::new(0);
    let own = NEWEST.fetch_add(1, Ordering::Relaxed) + 1;
    let wait = move || {
        sleep(limit);
        if NEWEST.load(Ordering::Relaxed) == own {
            write_stderr_all(line.as_bytes());
            exit_at_once(status);
        }
    };
    spawn_thread("fastrack end", wait).map(drop)
}
