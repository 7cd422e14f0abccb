//! How far a worker has stopped, and how long its clients are waited for.

use crate::conn::{Connection, Phase};
use crate::settings::STOP_TIME;

/// Time for clients whose request is under way, in milliseconds: clients that were accepted and have sent nothing yet, and clients that
/// have sent a part of a head that another worker can take.
const STOP_TIME_HEAD: u64 = 1_000;

/// Interval of checks whether a successor is there for a response, in milliseconds.
const SUCCESSOR_LOOK: u64 = 100;

/// How far this worker has stopped.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    /// The time at which begun requests are cut off, in milliseconds of the monotonic clock; None before the stop.
    deadline: Option<u64>,
    /// The time until which heads under way are waited for. Then their connections go to another worker.
    head_deadline: u64,
    /// Whether the shared queue was full, and stayed full, when a connection was to be given away.
    pub queue_stayed_full: bool,
    /// Whether the process ends: each connection that comes in now is [handed off](super::Reactor::hand_off_all).
    pub is_handing_off: bool,
}

impl Stopping {
    pub fn is_begun(&self) -> bool {
        self.deadline.is_some()
    }

    /// The stop begins. Idle connections are kept for `idle_time` milliseconds.
    pub fn begin(&mut self, now: u64, idle_time: u64) {
        // A client that begins a request at the last moment also gets the time for it.
        self.deadline = Some(now + idle_time + STOP_TIME);
        self.head_deadline = now + STOP_TIME_HEAD;
    }

    #[cfg(test)]
    pub fn set_deadline(&mut self, deadline: u64) {
        self.deadline = Some(deadline);
    }

    /// The time at which begun requests are cut off.
    pub fn latest(&self) -> u64 {
        self.deadline.unwrap_or_default()
    }

    /// Whether the time for begun requests is over.
    pub fn is_overdue(&self, now: u64) -> bool {
        self.deadline.is_some_and(|end| end <= now)
    }

    /// Whether the client's request is under way, and is waited for.
    pub fn is_early(&self, phase: Phase, now: u64) -> bool {
        matches!(phase, Phase::Fresh | Phase::Head) && now < self.head_deadline
    }

    /// The time until which a connection is parked that is not idle.
    ///
    /// A client that takes a response keeps all of its time, and so does a client that goes on sending a body: if that takes too long, the
    /// master kills this worker.
    pub fn park_deadline(&self, connection: &Connection, has_successor: bool, now: u64) -> u64 {
        let latest = match connection.phase() {
            Phase::Fresh => self.head_deadline,
            phase @ Phase::Head if has_successor && self.is_early(phase, now) => self.head_deadline,
            Phase::Head | Phase::Idle => (now + STOP_TIME).min(self.latest()),
            Phase::Body => now + STOP_TIME,
            Phase::Sending if has_successor => now + SUCCESSOR_LOOK,
            Phase::Sending => u64::MAX,
            Phase::Draining => connection.drains_until().unwrap_or_default(),
        };
        latest.min(connection.deadline)
    }
}
