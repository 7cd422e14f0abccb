//! Pauses between two requests, in which the application collects garbage, and whom they may keep waiting: nobody.

use std::sync::{MutexGuard, PoisonError};

use super::{Engine, GcPausePriority};

impl Engine {
    /// Whether the application may stand still now, for some milliseconds: no client waits here, no other thread has a
    /// request, no other worker does the same, and another one is idle, if there is any. Clients that wait here and can be served
    /// by idle workers go to those. If it is `urgent` the others may be busy, and are left some clients.
    ///
    /// If so, [`end_gc_pause`](Self::end_gc_pause) must follow.
    pub fn begin_gc_pause(&self, urgent: bool) -> bool {
        let control = &self.control;
        if control.is_closed() || control.is_stopping() || !self.is_alone() {
            return false;
        }
        let mut reactor = self.shared.reactor();
        let is_clear = reactor.clear_for_gc_pause(urgent, &|| control.is_poller_readable());
        let has_others = reactor.has_others();
        // Not while this thread has the lock.
        drop(reactor);
        if is_clear && has_others {
            self.priority().begin();
        }
        is_clear
    }

    /// Lets other workers pause.
    pub fn end_gc_pause(&self) {
        self.priority().end();
        if !self.control.is_closed() {
            self.shared.reactor().end_gc_pause();
        }
    }

    fn priority(&self) -> MutexGuard<'_, GcPausePriority> {
        self.priority.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
