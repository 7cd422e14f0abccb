//! Threads that have requests, and requests that take longer than the operator likes.

use std::sync::atomic::Ordering;

use fastrack_sys::ThreadId;

use super::{is_seizable, ActiveRequest, Claim, NUMBER, STREAM};

impl ActiveRequest {
    // --- the application's thread

    /// The current thread begins to answer requests.
    pub fn set_thread(&self) {
        let number = ThreadId::current().and_then(|id| i32::try_from(id.number()).ok());
        self.thread.store(number.unwrap_or(0), Ordering::Relaxed);
    }

    // --- the helper

    /// The system's number of the thread. None if the system does not tell.
    pub fn thread(&self) -> Option<i32> {
        Some(self.thread.load(Ordering::Relaxed)).filter(|thread| *thread != 0)
    }

    /// Whether the request has lasted for `limit` milliseconds at `now`. True once for each request. Streams and callbacks may last.
    pub fn note_slow(&self, now: u64, limit: u64) -> bool {
        let claim = self.claim.load(Ordering::Acquire);
        if !is_seizable(claim) || claim & STREAM != 0 || claim >> NUMBER == self.slow.load(Ordering::Relaxed)
        {
            return false;
        }
        let slot = self.slot_of(claim);
        let is_slow = now >= slot.started.get().saturating_add(limit) && !slot.is_in_callbacks();
        // The thread may have begun another request meanwhile.
        let is_same = self.claim.load(Ordering::Acquire) >> NUMBER == claim >> NUMBER;
        if is_slow && is_same {
            self.slow.store(claim >> NUMBER, Ordering::Relaxed);
        }
        is_slow && is_same
    }

    // --- any thread

    /// Whether there is a request, and no callbacks of one.
    pub fn is_in_application(&self) -> bool {
        self.is_seizable() && !self.slot().is_in_callbacks()
    }

    /// Whether the request that [`note_slow`](Self::note_slow) has found last is still in progress.
    pub fn is_still_slow(&self) -> bool {
        let claim = self.claim.load(Ordering::Acquire);
        Claim::of(claim) != Claim::None && claim >> NUMBER == self.slow.load(Ordering::Relaxed)
    }
}
