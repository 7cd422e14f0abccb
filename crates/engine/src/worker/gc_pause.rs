//! Pauses between two requests, in which the application collects garbage.

use super::Engine;

/// A pause of this worker. Other workers may pause when it is dropped.
#[derive(Debug)]
pub struct GcPause<'a>(&'a Engine);

impl Engine {
    /// Begins a pause of some milliseconds, if no client has to wait for its end: no thread has a request, no client waits here, no other
    /// worker pauses, and another worker is idle, if there are other workers.
    pub fn begin_gc_pause(&self) -> Option<GcPause<'_>> {
        let control = &self.control;
        if control.is_closed() || control.is_stopping() || !self.is_alone() {
            return None;
        }
        let begins = self.shared.reactor().begin_gc_pause(&|| control.is_poller_readable());
        begins.then_some(GcPause(self))
    }
}

impl Drop for GcPause<'_> {
    fn drop(&mut self) {
        // A forked child has no reactor.
        if !self.0.control.is_closed() {
            self.0.shared.reactor().end_gc_pause();
        }
    }
}
