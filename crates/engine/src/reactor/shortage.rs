//! Shortages: of this process's descriptors, or of a resource of the whole system.

use std::io;

use fastrack_sys::monotonic_millis;

use crate::settings::own_descriptors;

/// The resource that this worker lacks, until the shortage is over or logged.
#[derive(Debug)]
pub(super) struct Shortage {
    /// The most connections that are kept.
    capacity: usize,
    /// The end of the pause in which nobody is accepted, in milliseconds of the monotonic clock; 0 if there is no pause.
    pause: u64,
    /// The reason why a connection could not be taken from the shared queue at the last try.
    queue_failure: Option<io::Error>,
    /// Whether a connection had to stay in the shared queue, and the leader has not seen that yet.
    has_untaken: bool,
    /// Whether the application has closed a descriptor of the poller or of the shared queue.
    pub lost_descriptors: bool,
    /// Whether there was no memory for a request or a response.
    pub lacks_memory: bool,
}

impl Shortage {
    pub fn new() -> Self {
        Shortage {
            capacity: own_descriptors(),
            pause: 0,
            queue_failure: None,
            has_untaken: false,
            lost_descriptors: false,
            lacks_memory: false,
        }
    }

    /// Whether there is room for one more connection beside `connections`.
    pub fn has_room(&self, connections: usize) -> bool {
        connections < self.capacity
    }

    /// Begins a pause of `millis` milliseconds in which nobody is accepted.
    pub fn pause(&mut self, millis: u64) {
        self.pause = monotonic_millis() + millis;
    }

    /// Whether nobody is accepted for now.
    pub fn is_paused(&self) -> bool {
        self.pause > 0
    }

    /// When the pause is over, in milliseconds of the monotonic clock.
    pub fn pause_end(&self) -> Option<u64> {
        (self.pause > 0).then_some(self.pause)
    }

    pub fn end_pause_if_over(&mut self) {
        if self.pause > 0 && self.pause <= monotonic_millis() {
            self.pause = 0;
        }
    }

    /// A connection stays in the shared queue, for another worker or a later try.
    pub fn note_untaken(&mut self, error: io::Error) {
        self.queue_failure = Some(error);
        self.has_untaken = true;
    }

    /// A connection was taken from the shared queue, or the queue is empty.
    pub fn end_queue_failure(&mut self) {
        self.queue_failure = None;
    }

    /// Whether the last try to take a connection from the shared queue has failed.
    pub fn is_queue_stuck(&self) -> bool {
        self.queue_failure.is_some()
    }

    /// Whether a connection had to stay in the shared queue since the last call of [`take_untaken`](Self::take_untaken).
    pub fn has_untaken(&self) -> bool {
        self.has_untaken
    }

    /// As [`has_untaken`](Self::has_untaken), with the reason if the last try failed. Clears the note.
    pub fn take_untaken(&mut self) -> (bool, Option<&io::Error>) {
        let has_untaken = std::mem::take(&mut self.has_untaken);
        (has_untaken, self.queue_failure.as_ref().filter(|_| has_untaken))
    }
}
