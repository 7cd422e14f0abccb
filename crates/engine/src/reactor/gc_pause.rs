//! Pauses of the application between two requests, to collect garbage: who may be kept waiting, and who serves meanwhile.

use fastrack_sys::Processors;

use super::Reactor;
use crate::handoff::QueueHandle;

/// Clients for each other worker that an urgent pause may leave to it.
const LEFT_TO_EACH: usize = 2;

/// Urgent pauses in a row for which clients may be left to others. Those may be busy for long.
const LEFT_IN_A_ROW: u32 = 8;

/// Microseconds that a pause with a low priority may wait for a processor. In the worst case, where other programs keep all
/// processors busy, it would last for seventy times as long as it computes, and all that time this worker would serve nobody.
const MOST_WAITED: u64 = 50_000;

/// Pauses with the usual priority after one that has waited for longer than [`MOST_WAITED`].
const USUAL: u32 = 1_000;

impl Reactor {
    /// Whether this worker may stand still for a while: no client waits for it. One whose connection is here need not wait if
    /// another worker is idle, and gets the connection now.
    ///
    /// Where there are more workers than processors, one of those must also be free.
    ///
    /// If it is `urgent`, the application will otherwise collect in one of the next requests, whose client waits for all of it. So the
    /// other workers may be busy: each is left up to `LEFT_TO_EACH` of the clients here, and serves them sooner than this worker could.
    ///
    /// Clients in the backlog and the shared queue are not counted by anybody, so that there may be more than idle
    /// workers.
    pub fn clear_for_gc_pause(&mut self, urgent: bool, is_poller_readable: &dyn Fn() -> bool) -> bool {
        if self.is_stopping() || self.poll().is_err() {
            return false;
        }
        let here = self.table.events() + self.ready.len();
        let elsewhere = here == 0 && is_poller_readable();
        let idle = self.queue_handle.as_ref().map_or(0, QueueHandle::idle_others);
        let nobody_waits = here <= idle
            && !elsewhere
            && (idle > 0 || urgent || !self.has_others())
            && (urgent || self.has_processor());
        let may_pause = nobody_waits || urgent && self.leaves_clients(here, elsewhere);
        let is_clear = may_pause && self.claim_gc_pause() && self.hand_over(here);
        self.left_in_a_row = if is_clear && !nobody_waits { self.left_in_a_row + 1 } else { 0 };
        is_clear
    }

    /// Whether a processor is free besides those that other workers have. Where there is one for each worker those who are idle leave
    /// theirs.
    fn has_processor(&mut self) -> bool {
        let others = self.queue_handle.as_ref().map_or(0, QueueHandle::serving_others);
        let processors = self.processors.get_or_insert_with(Processors::new);
        others < processors.online() || processors.spare() != Some(0)
    }

    /// Whether no other worker pauses.
    fn claim_gc_pause(&self) -> bool {
        self.queue_handle.as_ref().is_none_or(QueueHandle::claim_collection)
    }

    /// Puts the requests that have come on `here` connections into the shared queue. If there are others by then, the pause is over.
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

    /// Whether other workers may be left the clients that wait here, and in the backlog or the shared queue.
    fn leaves_clients(&self, here: usize, elsewhere: bool) -> bool {
        let Some(queue_handle) = &self.queue_handle else { return false };
        let waiting = here + usize::from(elsewhere).max(queue_handle.queued() as usize);
        self.left_in_a_row < LEFT_IN_A_ROW && waiting <= queue_handle.serving_others() * LEFT_TO_EACH
    }

    /// Whether the pause that begins may have a low priority: other workers serve meanwhile, and none of the last `USUAL` pauses
    /// has waited longer than `MOST_WAITED` for a processor.
    pub fn may_lower_gc_pause(&mut self) -> bool {
        if !self.has_others() {
            return false;
        }
        let is_usual = self.usual_pauses > 0;
        self.usual_pauses = self.usual_pauses.saturating_sub(1);
        !is_usual
    }

    /// A pause with a low priority has `waited` for a processor, in microseconds.
    pub fn note_wait_in_gc_pause(&mut self, waited: u64) {
        if waited > MOST_WAITED {
            self.usual_pauses = USUAL;
        }
    }

    pub fn end_gc_pause(&self) {
        self.queue_handle.iter().for_each(QueueHandle::release_collection);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::tests::{kept, reactor, REQUEST};
    use super::*;
    use crate::handoff::SharedQueue;
    use crate::patience::until;

    /// As many threads compute as it takes to have none of the machine's processors idle. Does nothing where the system does not
    /// tell that.
    fn with_busy_processors(work: impl FnOnce()) {
        if Processors::new().spare().is_none() {
            return;
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let count = std::thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..count {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let result = catch_unwind(AssertUnwindSafe(work));
            is_over.store(true, Ordering::Relaxed);
            result.unwrap_or_else(|panic| resume_unwind(panic));
        });
    }

    /// Clients whose requests wait for this worker.
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
    fn a_pause_leaves_its_clients_to_idle_workers_and_an_urgent_one_some_to_those_who_are_busy() {
        let (mut reactor, other) = workers();
        other.set_serving(true);
        let _some = waiting(LEFT_TO_EACH, &mut reactor);
        assert!(!reactor.clear_for_gc_pause(false, &|| true), "nobody is idle");
        assert_eq!(other.queued(), 0);
        assert!(reactor.clear_for_gc_pause(true, &|| true));
        assert_eq!((other.queued() as usize, reactor.has_pending()), (LEFT_TO_EACH, false));
        reactor.end_gc_pause();
        let _one = waiting(1, &mut reactor);
        assert!(!reactor.clear_for_gc_pause(true, &|| true), "too many");
        other.set_idle(true);
        assert!(reactor.clear_for_gc_pause(false, &|| true));
        assert_eq!(other.queued() as usize, LEFT_TO_EACH + 1);
    }

    #[test]
    fn a_pause_needs_a_free_processor_where_there_are_more_workers_unless_it_is_urgent() {
        let queue = SharedQueue::new().expect("a queue");
        let queue_handle = || queue.handle().expect("a member").expect("free");
        let mut reactor = Reactor { queue_handle: Some(queue_handle()), ..reactor() };
        let mut others: Vec<_> = (0..Processors::new().online()).map(|_| queue_handle()).collect();
        others.iter().for_each(|other| other.set_serving(true));
        others[0].set_idle(true);
        let mut clear = |urgent| {
            let is_clear = reactor.clear_for_gc_pause(urgent, &|| false);
            reactor.end_gc_pause();
            is_clear
        };
        with_busy_processors(|| {
            until(|| !clear(false));
            assert!((0..=LEFT_IN_A_ROW).all(|_| clear(true)));
            others.pop();
            assert!(clear(false), "a processor for each worker");
        });
    }

    #[test]
    fn an_urgent_pause_leaves_nobody_to_a_worker_that_does_not_serve() {
        let (mut reactor, other) = workers();
        assert!(reactor.clear_for_gc_pause(true, &|| false));
        reactor.end_gc_pause();
        assert!(!reactor.clear_for_gc_pause(true, &|| true), "somebody is in the backlog");
        other.set_serving(true);
        assert!(reactor.clear_for_gc_pause(true, &|| true));
        reactor.end_gc_pause();
        assert!(!reactor.clear_for_gc_pause(false, &|| true));
    }

    #[test]
    fn clients_are_left_to_others_for_a_few_pauses_in_a_row() {
        let (mut reactor, other) = workers();
        other.set_serving(true);
        let mut pauses = |waits: bool, most: u32| {
            let clear = |_: &u32| {
                let clear = reactor.clear_for_gc_pause(true, &|| waits);
                reactor.end_gc_pause();
                clear
            };
            (0..most).take_while(clear).count() as u32
        };
        assert_eq!(pauses(true, 100), LEFT_IN_A_ROW);
        assert_eq!(pauses(true, LEFT_IN_A_ROW - 1), LEFT_IN_A_ROW - 1);
        // Meanwhile nobody waited.
        assert_eq!((pauses(false, 1), pauses(true, 100)), (1, LEFT_IN_A_ROW));
        assert_eq!(pauses(true, LEFT_IN_A_ROW - 1), LEFT_IN_A_ROW - 1);
        // While another worker also pauses.
        assert!(other.claim_collection());
        assert_eq!((pauses(true, 1), pauses(true, 100)), (0, LEFT_IN_A_ROW));
    }

    #[test]
    fn a_pause_that_waited_for_too_long_is_followed_by_some_with_the_usual_priority() {
        let (mut reactor, other) = workers();
        other.set_serving(true);
        reactor.note_wait_in_gc_pause(MOST_WAITED);
        assert!(reactor.may_lower_gc_pause() && reactor.may_lower_gc_pause());
        reactor.note_wait_in_gc_pause(MOST_WAITED + 1);
        assert!((0..USUAL).all(|_| !reactor.may_lower_gc_pause()));
        assert!(reactor.may_lower_gc_pause());
        other.set_serving(false);
        assert!(!reactor.may_lower_gc_pause(), "no other worker serves meanwhile");
    }
}
