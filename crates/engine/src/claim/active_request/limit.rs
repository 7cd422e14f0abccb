//! The time limit of a request while it runs.

use std::sync::atomic::Ordering;

use fastrack_sys::monotonic_millis;

use super::{ActiveRequest, ALLOWED, RUNNING, STOPPED, STREAM};
use crate::scoreboard::NEVER;

impl ActiveRequest {
    // --- the application's thread

    /// Runs `wait`, which waits for the client. The time does not count towards the application's time limit.
    pub fn while_stopped<T>(&self, wait: impl FnOnce() -> T) -> T {
        // From here on the response does not become a stream, so that the slot is the same.
        let claim = self.claim.fetch_or(STOPPED, Ordering::AcqRel);
        let slot = self.slot_of(claim);
        let deadline = slot.deadline.get();
        let left = if deadline == NEVER { NEVER } else { deadline.saturating_sub(monotonic_millis()) };
        self.left.store(left, Ordering::SeqCst);
        slot.deadline.set(NEVER);
        let result = wait();
        // Another thread may set a limit at this moment: either that changes `left`, or it sees that the limit runs.
        loop {
            let left = self.left.load(Ordering::SeqCst);
            slot.deadline.set(monotonic_millis().saturating_add(left));
            if self.left.compare_exchange(left, RUNNING, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                self.claim.fetch_and(!STOPPED, Ordering::AcqRel);
                return result;
            }
        }
    }

    // --- any thread of the application

    /// Sets the request's time limit, in milliseconds from now; 0 is none. Does nothing between requests.
    pub fn allow(&self, millis: u64) {
        if !self.is_seizable() {
            return;
        }
        let millis = if millis == 0 { NEVER } else { millis };
        let change = |left| (left != RUNNING).then_some(millis);
        let mut claim = self.claim.fetch_or(ALLOWED, Ordering::AcqRel);
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change).is_ok() {
            return;
        }
        loop {
            self.slot_of(claim).deadline.set(monotonic_millis().saturating_add(millis));
            // The response may have become a stream meanwhile.
            let now = self.claim.load(Ordering::Acquire);
            if now & STREAM == claim & STREAM {
                return;
            }
            claim = now;
        }
    }
}
