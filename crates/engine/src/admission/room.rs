//! How many requests and streams a worker has room for.

use crate::scoreboard::{MAX_STREAMS, MAX_THREADS};

/// The numbers of requests, streams and threads that a worker may have.
///
/// Without streams the main thread answers requests, as one of the threads. With streams the main thread answers none, so that no stream
/// keeps it: it starts threads, interrupts streams whose clients are gone, and stops the worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    requests: usize,
    streams: usize,
}

impl Room {
    pub fn new(requests: usize, streams: usize) -> Self {
        Room { requests: requests.clamp(1, MAX_THREADS), streams: streams.min(MAX_STREAMS) }
    }

    /// Most requests at a time.
    pub fn requests(self) -> usize {
        self.requests
    }

    /// Most streams at a time.
    pub fn streams(self) -> usize {
        self.streams
    }

    /// Number of seats: one for each thread that has a request or waits for one, and one for the main thread. A thread whose stream is over
    /// keeps running if a seat is free, so that streams that follow each other start no threads.
    pub fn seats(self) -> usize {
        match self.streams {
            0 => self.requests,
            _ => 1 + (2 * self.requests).min(MAX_THREADS),
        }
    }

    /// Most threads, the main thread included.
    pub fn threads(self) -> usize {
        self.seats() + self.streams
    }

    /// Whether there is a single thread.
    pub fn is_for_one(self) -> bool {
        self.threads() == 1
    }
}
