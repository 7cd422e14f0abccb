//! How many connections are in the shared queue.
//!
//! The number and the queue cannot change in one step. Where they differ the number is too high, and the next worker that
//! finds the queue empty corrects it. A number that is too low would hide a client from busy workers. So it grows after a
//! connection was sent, and shrinks before one is received. (Only while a worker is between the two, or was killed there,
//! it is too low, by one, until the queue is empty.)

use crate::sync::{AtomicU32, Ordering};

#[derive(Default)]
#[repr(transparent)]
pub(super) struct QueueCount(AtomicU32);

impl QueueCount {
    /// For those who only look.
    pub fn number(&self) -> &AtomicU32 {
        &self.0
    }

    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// A connection was sent.
    pub fn sent(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// A connection is about to be received. If there turns out to be none the number was too high. It may be 0
    /// already: a connection can be received before it is counted.
    pub fn will_receive(&self) -> bool {
        let less = |count: u32| count.checked_sub(1);
        self.0.fetch_update(Ordering::SeqCst, Ordering::Relaxed, less).is_ok()
    }

    /// Nothing was received, and the queue may not be empty.
    pub fn not_received(&self) {
        self.sent();
    }
}
