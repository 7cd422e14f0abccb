//! The number of connections in the shared queue.
//!
//! The number and the queue cannot change in one step. A number that is too low would hide a client from busy workers,
//! so the number grows after a connection was sent and shrinks before one is received. A number that is too high is
//! corrected by the next worker that finds the queue empty. One case remains: a worker between the two steps, or killed
//! there, leaves the number too low by one until the queue is empty.

use crate::sync::{AtomicU32, Ordering};

#[derive(Default)]
#[repr(transparent)]
pub(super) struct QueueCount(AtomicU32);

impl QueueCount {
    /// For readers that do not change the number.
    pub fn number(&self) -> &AtomicU32 {
        &self.0
    }

    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Called after a connection was sent.
    pub fn sent(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Called before a connection is received. Returns false if the number was 0: a connection can be received before
    /// it is counted. An empty queue means that the number was too high.
    pub fn will_receive(&self) -> bool {
        let less = |count: u32| count.checked_sub(1);
        self.0.fetch_update(Ordering::SeqCst, Ordering::Relaxed, less).is_ok()
    }

    /// Called if no connection was received although the queue may hold some.
    pub fn not_received(&self) {
        self.sent();
    }
}
