//! Pauses between two requests, in which the application collects garbage, and whom they may keep waiting: nobody.

use fastrack_sys::{monotonic_micros, thread_cpu_micros, LowPriority};

use super::Engine;

/// A pause, for the thread that has [begun](Engine::begin_gc_pause) it: no other one may end it.
#[derive(Debug)]
pub struct GcPause {
    /// None where it has the usual priority.
    low: Option<Low>,
}

/// What the application's thread computes takes no processor from the requests of other workers.
#[derive(Debug)]
struct Low {
    priority: LowPriority,
    /// When it began, and what the thread had computed, in microseconds.
    began: u64,
    computed: u64,
}

impl Low {
    fn begin() -> Option<Self> {
        let (began, computed) = (monotonic_micros(), thread_cpu_micros());
        LowPriority::take().map(|priority| Low { priority, began, computed })
    }

    /// The thread has its usual priority again. Returns for how long it has waited for a processor, in microseconds.
    fn end(self) -> u64 {
        drop(self.priority);
        let computed = thread_cpu_micros().saturating_sub(self.computed);
        monotonic_micros().saturating_sub(self.began).saturating_sub(computed)
    }
}

impl Engine {
    /// Whether the application may stand still now, for some milliseconds: no client waits here, no other thread has a
    /// request, no other worker does the same, and another one is idle, if there is any. Clients that wait here and can be served
    /// by idle workers go to those. If it is `urgent` the others may be busy, and are left some clients.
    ///
    /// If so, [`end_gc_pause`](Self::end_gc_pause) must follow.
    pub fn begin_gc_pause(&self, urgent: bool) -> Option<GcPause> {
        let control = &self.control;
        if control.is_closed() || control.is_stopping() || !self.is_alone() {
            return None;
        }
        let mut reactor = self.shared.reactor();
        let is_clear = reactor.clear_for_gc_pause(urgent, &|| control.is_poller_readable());
        let may_be_low = is_clear && reactor.may_lower_gc_pause();
        // Not while this thread has the lock.
        drop(reactor);
        let is_low = may_be_low && *self.low_priority_is_allowed.get_or_init(LowPriority::is_allowed);
        is_clear.then(|| GcPause { low: is_low.then(Low::begin).flatten() })
    }

    /// Lets other workers pause.
    pub fn end_gc_pause(&self, pause: GcPause) {
        let waited = pause.low.map(Low::end);
        if !self.control.is_closed() {
            let mut reactor = self.shared.reactor();
            waited.into_iter().for_each(|micros| reactor.note_wait_in_gc_pause(micros));
            reactor.end_gc_pause();
        }
    }
}
