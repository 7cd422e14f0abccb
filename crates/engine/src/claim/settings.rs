//! Settings of requests.

use std::fmt::Debug;
use std::sync::Arc;

use crate::scoreboard::Slot;

/// Dumps the application's threads when a request has exceeded its limit. The helper thread calls it.
pub trait ThreadDumper: Send + Sync + Debug {
    /// The application's own backtraces of its threads. None if they take longer than `millis` milliseconds.
    fn dump(&self, millis: u64) -> Option<String>;

    /// Has each thread write its stack frames to stderr, even from native code. Takes at most `millis` milliseconds.
    fn dump_frames(&self, millis: u64);

    /// The frames of one thread at this moment, even of one in native code: a line for each, the innermost first. None if the thread does
    /// not answer within `millis` milliseconds.
    fn frames(&self, _thread: i32, _millis: u64) -> Option<Vec<u8>> {
        None
    }
}

/// Limits of requests.
#[derive(Clone, Debug, Default)]
pub struct RequestSettings {
    /// Number of the application's threads that answer requests. It is clamped to 1 to [`MAX_THREADS`](crate::MAX_THREADS).
    pub threads: usize,
    /// Number of streams beside the requests of these threads. 0: a response that lasts counts as a request. At most
    /// [`MAX_STREAMS`](crate::MAX_STREAMS).
    pub streams: usize,
    /// Time limit of a stream from its beginning, in milliseconds. 0 is no limit.
    pub stream_timeout: u64,
    /// Time limit of the application for each request, in milliseconds. 0 is no limit.
    pub timeout: u64,
    /// Time limit of the application's thread between two requests, in milliseconds. 0 is no limit.
    pub stuck: u64,
    /// Whether the application's threads measure how the time of their requests is divided.
    pub timings: bool,
    /// Time in the application after which the log has a line about a request, in milliseconds. 0: no such lines.
    pub log_slow: u64,
    /// The worker's slot on the master's scoreboard. None without a master.
    pub slot: Option<Slot>,
    /// Dumps the threads when a request exceeds its limit.
    pub dumper: Option<Arc<dyn ThreadDumper>>,
}
