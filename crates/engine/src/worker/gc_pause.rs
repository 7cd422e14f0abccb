//! Pauses between two requests, in which the application collects garbage, and whom they may keep waiting: nobody.

use std::sync::{MutexGuard, PoisonError};

use super::{Engine, GcPausePriority, LockedReactor};

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
        self.lower_priority(reactor, is_clear)
    }

    /// Whether the application may stand still now for a millisecond: no client waits here, and no other thread has a request. The
    /// worker counts as idle meanwhile: others give it requests, which it sees before the next such step.
    ///
    /// If so, [`end_step`](Self::end_step) must follow.
    pub fn begin_step(&self) -> bool {
        let control = &self.control;
        if control.is_closed() || control.is_stopping() || !self.is_alone() {
            return false;
        }
        let mut reactor = self.shared.reactor();
        let is_clear = reactor.clear_for_step(&|| control.is_poller_readable());
        self.lower_priority(reactor, is_clear)
    }

    /// The step is over: the worker is busy again.
    pub fn end_step(&self) {
        self.priority().end();
        if !self.control.is_closed() {
            self.shared.reactor().end_step();
        }
    }

    /// Lets other workers pause.
    pub fn end_gc_pause(&self) {
        self.priority().end();
        if !self.control.is_closed() {
            self.shared.reactor().end_gc_pause();
        }
    }

    /// Of a pause that begins, if it does: requests of other workers come first, where there are any. Not while this thread has the lock.
    fn lower_priority(&self, reactor: LockedReactor<'_>, begins: bool) -> bool {
        let comes_last = begins && reactor.has_others();
        drop(reactor);
        if comes_last {
            self.priority().begin();
        }
        begins
    }

    fn priority(&self) -> MutexGuard<'_, GcPausePriority> {
        self.priority.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
