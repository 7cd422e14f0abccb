//! How far a worker has stopped, and how long its clients are waited for.

use crate::conn::{Connection, Phase};
use crate::settings::STOP_TIME;

/// How long clients get here whose request is on its way, in milliseconds: those that were accepted and have sent nothing
/// yet, and those that have sent a part of a head if another worker can take it.
const STOP_TIME_HEAD: u64 = 1_000;

/// How often to look whether a successor is there for a response, in milliseconds.
const SUCCESSOR_LOOK: u64 = 100;

/// How far this worker has stopped.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    /// When requests that have begun are cut off, in milliseconds of the monotonic clock; None before the stop.
    deadline: Option<u64>,
    /// Until when heads that are under way are waited for, before their connections go to another worker.
    head_deadline: u64,
    /// The shared queue was full, and stayed so, when a connection was to be given away.
    pub queue_stayed_full: bool,
    /// The process ends: whatever comes in now is [handed off](super::Reactor::hand_off_all).
    pub is_handing_off: bool,
}

impl Stopping {
    pub fn is_begun(&self) -> bool {
        self.deadline.is_some()
    }

    /// The stop begins. Idle connections are kept for `idle_time` milliseconds.
    pub fn begin(&mut self, now: u64, idle_time: u64) {
        // Also a client that begins a request at the last moment gets the time for it.
        self.deadline = Some(now + idle_time + STOP_TIME);
        self.head_deadline = now + STOP_TIME_HEAD;
    }

    #[cfg(test)]
    pub fn set_deadline(&mut self, deadline: u64) {
        self.deadline = Some(deadline);
    }

    /// When requests that have begun are cut off.
    pub fn latest(&self) -> u64 {
        self.deadline.unwrap_or_default()
    }

    /// Whether the time for requests that have begun is over.
    pub fn is_overdue(&self, now: u64) -> bool {
        self.deadline.is_some_and(|end| end <= now)
    }

    /// Whether the client's request is under way, and is waited for.
    pub fn is_early(&self, phase: Phase, now: u64) -> bool {
        matches!(phase, Phase::Fresh | Phase::Head) && now < self.head_deadline
    }

    /// Until when a connection is parked that is not idle.
    ///
    /// A client that takes a response gets all the time that it has anyway, and so does one that goes on sending a
    /// body: whoever told this worker to stop kills it when that takes too long.
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
