//! What each worker is doing, from the worker's side.

use std::ops::Range;

use fastrack_http::{Head, KnownName};
use fastrack_sys::SharedMemory;

use super::board::{State, ThreadSlot, WorkerSlot, MAX_THREADS};
use super::counters::Counters;

/// A worker's slot on the master's scoreboard.
#[derive(Clone, Debug)]
pub struct Slot(SharedMemory<WorkerSlot>);

impl Slot {
    pub(super) fn new(slot: SharedMemory<WorkerSlot>) -> Self {
        Slot(slot)
    }

    /// Those of its worker.
    pub(crate) fn counters(&self) -> Counters {
        Counters::new(self.0.part(|slot| &slot.counters))
    }

    /// One for each of `threads` threads, from the first thread's on; at most [`MAX_THREADS`].
    pub(super) fn for_threads(&self, threads: usize) -> Vec<SharedMemory<ThreadSlot>> {
        let threads = threads.clamp(1, MAX_THREADS);
        // The first one's has been in use since the slot was reserved.
        self.0.threads[1..threads].iter().for_each(ThreadSlot::begin);
        self.0.other_threads.publish(threads as u64 - 1);
        (0..threads).map(|thread| self.0.part(|slot| &slot.threads[thread])).collect()
    }
}

impl WorkerSlot {
    /// A worker is about to be forked.
    pub fn begin(&self) {
        self.worker.pid.set(0);
        self.memory.proportional.set(0);
        self.other_threads.set(0);
        self.counters.begin();
        self.busy_before.set(self.counters.busy());
        self.threads[0].begin();
    }

    /// Those that there are.
    pub fn threads(&self) -> &[ThreadSlot] {
        let others = self.other_threads.published() as usize;
        &self.threads[..=others.min(MAX_THREADS - 1)]
    }

    /// How many threads have requests; None without a worker.
    pub fn serving(&self) -> Option<u64> {
        let is_serving = |thread: &&ThreadSlot| thread.state.get() == State::Serving;
        let serving = || self.threads().iter().filter(is_serving).count() as u64;
        (self.threads[0].state.get() != State::Free).then(serving)
    }

    /// For how long the worker has been in the application, all threads together, in milliseconds: requests that are over, and those in
    /// progress by now. Without callbacks, whose time is not counted as a request's.
    pub fn busy(&self, now: u64) -> u64 {
        let is_serving =
            |thread: &&ThreadSlot| thread.state.get() == State::Serving && !thread.is_in_callbacks();
        let in_progress =
            self.threads().iter().filter(is_serving).map(|thread| now.saturating_sub(thread.started.get()));
        self.counters.busy().saturating_sub(self.busy_before.get()) + in_progress.sum::<u64>()
    }
}

impl ThreadSlot {
    /// A request begins. Returns a number that no other request of this worker has.
    pub fn begin_request(&self, head: &Head, bytes: &[u8], now: u64, deadline: u64) -> u64 {
        let number = self.sequence.write(|| {
            self.started.set(now);
            self.deadline.set(deadline);
            self.in_callbacks.set(0);
            self.line.set(bytes, line(head));
            self.id.set(bytes, id(head));
        });
        self.state.set(State::Serving);
        number
    }

    /// The callbacks of the last request begin. Returns a number as [`begin_request`](Self::begin_request) does.
    pub fn begin_callbacks(&self, now: u64, deadline: u64) -> u64 {
        let number = self.sequence.write(|| {
            self.started.set(now);
            self.deadline.set(deadline);
            self.in_callbacks.set(1);
        });
        self.state.set(State::Serving);
        number
    }

    /// The request is over.
    pub fn end_request(&self) {
        self.state.set(State::Waiting);
        self.requests.add(1);
    }

    pub fn is_head_request(&self) -> bool {
        self.line.get().starts_with(b"HEAD ")
    }

    pub fn is_in_callbacks(&self) -> bool {
        self.in_callbacks.get() != 0
    }

    /// Method and target, and the request's id.
    pub fn texts(&self) -> (Vec<u8>, Vec<u8>) {
        (self.line.get(), self.id.get())
    }

    /// The same for whoever looks at the log, or at the server. What follows the `?` of the target may be secret.
    pub fn texts_without_query(&self) -> (Vec<u8>, Vec<u8>) {
        let (mut line, id) = self.texts();
        line.truncate(line.iter().position(|byte| *byte == b'?').unwrap_or(line.len()));
        (line, id)
    }
}

/// Method and target are adjacent (RFC 9112 §3).
fn line(head: &Head) -> Range<usize> {
    Range::from(head.method).start..Range::from(head.target).end
}

fn id(head: &Head) -> Range<usize> {
    if !head.has(KnownName::XRequestId) {
        return 0..0;
    }
    let field = head.fields.iter().find(|field| field.known == Some(KnownName::XRequestId));
    field.map_or(0..0, |field| field.value.into())
}
