//! The scoreboard as a worker writes it.

use std::ops::Range;

use fastrack_http::{Head, KnownName};
use fastrack_sys::SharedMemory;

use super::counters::Counters;
use super::layout::{State, ThreadSlot, WorkerSlot, MAX_SEATS};

/// The slot of one worker on the master's scoreboard.
#[derive(Clone, Debug)]
pub struct Slot(SharedMemory<WorkerSlot>);

impl Slot {
    pub(super) fn new(slot: SharedMemory<WorkerSlot>) -> Self {
        Slot(slot)
    }

    /// The counters of the worker.
    pub(crate) fn counters(&self) -> Counters {
        Counters::new(self.0.part(|slot| &slot.counters))
    }

    /// The parts of so many seats, the first thread's first. At most [`MAX_SEATS`].
    pub(crate) fn for_seats(&self, seats: usize) -> Vec<SharedMemory<ThreadSlot>> {
        let threads = seats.clamp(1, MAX_SEATS);
        // The first thread's part has been in use since the slot was reserved.
        self.0.threads[1..threads].iter().for_each(ThreadSlot::begin);
        self.0.other_threads.publish(threads as u64 - 1);
        (0..threads).map(|thread| self.0.part(|slot| &slot.threads[thread])).collect()
    }
}

impl ThreadSlot {
    /// A request begins. Returns a number that no other request of this thread has.
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

    /// The callbacks of the last request begin. Returns another number of the same kind.
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

    /// The same for logs and the monitor, without the query: it may have secrets.
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
