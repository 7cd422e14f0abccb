//! Whether the system may hold back small parts of a response, so that they leave in one packet (MSG_MORE, send(2)).
//!
//! Nobody knows whether an application that has passed a part passes the next one at once or in a minute. So the helper
//! ends it at its first look at a request that lasts: after one to eight milliseconds.

use std::sync::atomic::{AtomicU8, Ordering};

/// Nothing is held back, but may be.
const OPEN: u8 = 0;
/// Something is held back.
const CORKED: u8 = 1;
/// All of this request is sent at once.
const OVER: u8 = 2;

/// Of one request.
#[derive(Debug, Default)]
pub(crate) struct Cork(AtomicU8);

impl Cork {
    /// A request begins on a connection on which something of the response before it may be held back.
    pub fn begin(&self, is_corked: bool) {
        self.0.store(if is_corked { CORKED } else { OPEN }, Ordering::Relaxed);
    }

    /// Whether bytes that are about to be sent may be held back.
    pub fn set(&self) -> bool {
        let order = Ordering::SeqCst;
        match self.0.compare_exchange(OPEN, CORKED, order, order) {
            Ok(_) | Err(CORKED) => true,
            Err(_) => false,
        }
    }

    /// They have been sent. Whether they may be held back still: the helper may have ended that before they were.
    pub fn stays(&self) -> bool {
        self.0.load(Ordering::SeqCst) == CORKED
    }

    /// From now on nothing is held back. Whether something was.
    pub fn end(&self) -> bool {
        self.0.swap(OVER, Ordering::SeqCst) == CORKED
    }
}
