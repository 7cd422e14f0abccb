//! When the helper looks at the leader.
//!
//! Each look compares the leader's epoch with that of the last look.
//!
//! | the leader since the last look | the helper |
//! | --- | --- |
//! | made steps | looks again in 1 to 4 ms |
//! | made none, and is busy | one thing lasts: drives, and sleeps until an event, a deadline or the leader's next step |
//! | made none, and is idle | sleeps until the leader's next step |
//!
//! Before the helper sleeps it says so in the [baton](Baton::fall_asleep). The leader's next step finds that, and sets the helper's
//! timer to [`FIRST_LOOK`]. No clock is asked.
//!
//! A single hello request costs one system call of the leader and one look: 20 to 27 microseconds on a virtual machine. A saturated
//! worker's helper looks 250 times a second. An idle worker's helper never looks. In an earlier version the leader also stopped the timer,
//! for two system calls a request and 300 lines: for eight of nine such requests the helper never looked.

use super::timer::FIRST_LOOK;
use crate::admission::{is_busy, Baton};

/// Longest time from one look to the next while few steps are made, in milliseconds. Benches: `bench/run --workload keepalive` (CPU) and
/// `mix-burn` (latency).
const RARE_LOOK: u64 = 2;

/// The same time while many steps are made: then hardly any request lasts.
const RAREST_LOOK: u64 = 4;

/// Number of steps from one look to the next that counts as many.
const MANY_STEPS: u64 = 64;

/// Most steps of one request. If the leader has made no more steps since the helper fell asleep, the leader's first request lasts, or was
/// the only one. Bench: the helper's wake-ups at 100 requests a second.
const STEPS_OF_A_REQUEST: u64 = 8;

/// The helper's work during a request, a pause or a stop.
pub(super) trait Work {
    /// Drives the connections, unless the leader has made a step since this epoch. Returns the time until the next look, in milliseconds.
    fn drive(&self, since: u64) -> Option<u64>;

    /// Watches the requests of threads other than the leader.
    fn watch(&self) {}

    /// The leader has made a step. There is nothing to watch until something lasts again.
    fn rest(&self) {}
}

/// How the helper waits for its next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Waits for this many milliseconds, because the leader makes steps.
    Looks(u64),
    /// Waits for events, and for this many milliseconds at most, because one thing lasts.
    Lasts(u64),
    /// Waits for the leader, which is idle.
    Sleeps,
}

pub(super) struct Tick<'a, W> {
    baton: &'a Baton,
    work: W,
    /// The epoch at the last look.
    seen: u64,
    wait: Wait,
}

impl<'a, W: Work> Tick<'a, W> {
    pub fn new(baton: &'a Baton, work: W) -> Self {
        Tick { baton, work, seen: baton.epoch(), wait: Wait::Looks(FIRST_LOOK) }
    }

    /// How long to wait for an event, in milliseconds; None to wait without end.
    pub fn next_look(&self) -> Option<u64> {
        match self.wait {
            Wait::Looks(millis) | Wait::Lasts(millis) => Some(millis),
            Wait::Sleeps => None,
        }
    }

    /// The wait is over.
    pub fn look(&mut self) {
        self.baton.wake_up();
        let epoch = self.baton.epoch();
        let before = std::mem::replace(&mut self.seen, epoch);
        let steps = epoch.wrapping_sub(before) / 2;
        let lasted = matches!(self.wait, Wait::Lasts(_));
        if !lasted {
            self.work.watch();
        }
        let is_same = epoch == before || self.wait == Wait::Sleeps && steps <= STEPS_OF_A_REQUEST;
        let wait = match is_busy(epoch) {
            true if is_same => self.drive(epoch),
            false if is_same => self.baton.fall_asleep(epoch).then_some(Wait::Sleeps),
            _ => None,
        };
        self.wait = wait.unwrap_or_else(|| self.next_wait(steps));
        if lasted && !matches!(self.wait, Wait::Lasts(_)) {
            self.work.rest();
        }
    }

    /// Something lasts, unless the leader makes a step meanwhile.
    fn drive(&self, since: u64) -> Option<Wait> {
        let next_look = self.work.drive(since)?;
        let lasts = self.baton.fall_asleep(since);
        if !lasts {
            self.work.rest();
        }
        lasts.then_some(Wait::Lasts(next_look))
    }

    /// The wait after a look that has seen this number of steps.
    fn next_wait(&self, steps: u64) -> Wait {
        let most = if steps < MANY_STEPS { RARE_LOOK } else { RAREST_LOOK };
        match self.wait {
            Wait::Looks(millis) => Wait::Looks((millis * 2).min(most)),
            _ => Wait::Looks(FIRST_LOOK),
        }
    }
}

// The model compiles this file by its path, where the tests would be looked for in another folder.
#[cfg(test)]
#[path = "tick/tests.rs"]
mod tests;
