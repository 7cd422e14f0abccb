//! Pauses of the application between two requests, to collect garbage. Other workers serve this worker's clients meanwhile.

use super::Reactor;
use crate::handoff::QueueHandle;

impl Reactor {
    /// Whether a pause begins. The conditions: no client waits for this worker, no other worker pauses, and another worker is idle, if
    /// there are other workers. Clients with connections here do not wait if as many workers are idle: their connections go to those
    /// workers now.
    ///
    /// Clients in the backlog and in the shared queue are not counted, so there may be more of them than idle workers.
    pub fn begin_gc_pause(&mut self, is_poller_readable: &dyn Fn() -> bool) -> bool {
        if self.is_stopping() || self.poll().is_err() {
            return false;
        }
        let here = self.table.events() + self.ready.len();
        let idle = self.queue_handle.as_ref().map_or(0, QueueHandle::idle_others);
        let is_served = here <= idle && (idle > 0 || !self.has_others());
        let elsewhere = here == 0 && is_poller_readable();
        is_served && !elsewhere && self.claim_gc_pause() && self.hand_over(here)
    }

    /// Whether no other worker pauses.
    fn claim_gc_pause(&self) -> bool {
        self.queue_handle.as_ref().is_none_or(QueueHandle::claim_collection)
    }

    /// Puts the requests on `here` connections into the shared queue. If other requests have arrived by then, the pause is over.
    fn hand_over(&mut self, here: usize) -> bool {
        if here > 0 {
            self.drive(&|| false, &|_| false);
        }
        let is_clear = !self.has_pending();
        if !is_clear {
            self.end_gc_pause();
        }
        is_clear
    }

    /// Lets other workers pause.
    pub fn end_gc_pause(&self) {
        self.queue_handle.iter().for_each(QueueHandle::release_collection);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::tests::{kept, reactor, REQUEST};
    use super::*;
    use crate::handoff::SharedQueue;

    /// Number of clients whose requests wait for this worker.
    fn waiting(count: usize, reactor: &mut Reactor) -> Vec<std::os::unix::net::UnixStream> {
        let clients: Vec<_> = (0..count).map(|_| kept(reactor)).collect();
        clients.iter().for_each(|mut client| client.write_all(REQUEST).expect("write"));
        clients
    }

    fn workers() -> (Reactor, QueueHandle) {
        let queue = SharedQueue::new().expect("a queue");
        let queue_handle = || queue.handle().expect("a member").expect("free");
        (Reactor { queue_handle: Some(queue_handle()), ..reactor() }, queue_handle())
    }

    #[test]
    fn a_pause_needs_another_worker_that_is_idle_where_there_are_others() {
        let (mut reactor, other) = workers();
        assert!(reactor.begin_gc_pause(&|| false), "no other worker serves");
        reactor.end_gc_pause();
        other.set_serving(true);
        assert!(!reactor.begin_gc_pause(&|| false));
        other.set_idle(true);
        assert!(reactor.begin_gc_pause(&|| false));
    }

    #[test]
    fn a_pause_needs_an_empty_backlog_and_no_other_pause() {
        let (mut reactor, other) = workers();
        assert!(!reactor.begin_gc_pause(&|| true), "somebody is in the backlog");
        assert!(other.claim_collection());
        assert!(!reactor.begin_gc_pause(&|| false));
        other.release_collection();
        assert!(reactor.begin_gc_pause(&|| false) && !other.claim_collection());
        reactor.end_gc_pause();
        assert!(other.claim_collection());
    }

    #[test]
    fn a_pause_gives_its_clients_to_idle_workers() {
        let (mut reactor, other) = workers();
        other.set_serving(true);
        other.set_idle(true);
        let _one = waiting(1, &mut reactor);
        assert!(reactor.begin_gc_pause(&|| true));
        assert_eq!((other.queued(), reactor.has_pending()), (1, false));
        reactor.end_gc_pause();
        let _two = waiting(2, &mut reactor);
        assert!(!reactor.begin_gc_pause(&|| true), "more than idle workers");
        assert!(other.claim_collection());
    }
}
