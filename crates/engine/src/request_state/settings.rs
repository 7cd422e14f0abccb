//! How requests are watched.

use std::fmt::Debug;
use std::sync::Arc;

use super::slot::Slot;

/// Dumps the application's threads when a request has exceeded its limit. Called from the helper thread.
pub trait ThreadDumper: Send + Sync + Debug {
    /// The application's own backtraces of its threads; None if they take longer than `millis` milliseconds.
    fn dump(&self, millis: u64) -> Option<String>;

    /// Has each thread write its stack frames to stderr, even from native code. Takes at most `millis` milliseconds.
    fn dump_frames(&self, millis: u64);
}

/// How requests are watched.
#[derive(Clone, Debug, Default)]
pub struct RequestSettings {
    /// How many threads of the application answer requests: at least 1, whatever this is, and at most
    /// [`MAX_THREADS`](crate::MAX_THREADS).
    pub threads: usize,
    /// Time limit for the application per request, in milliseconds; 0 is no limit.
    pub timeout: u64,
    /// How long the application's thread may be stuck between two requests, in milliseconds; 0 is no limit.
    pub stuck: u64,
    /// This worker's slot on the master's scoreboard; None without a master.
    pub slot: Option<Slot>,
    /// Asked for a thread dump when a request exceeds its limit.
    pub dumper: Option<Arc<dyn ThreadDumper>>,
}
