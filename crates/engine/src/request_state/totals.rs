//! What all workers have done, from the master's side.

use super::cause::Cause;
use super::counts::Counts;
use super::scoreboard::Scoreboard;

impl Scoreboard {
    /// What the workers of a slot have done, one after the other, and the connections of the present one. None if there is
    /// no such slot.
    pub fn counts(&self, index: usize) -> Option<Counts> {
        let slot = self.board.slots.get(index)?;
        Some(slot.counters.read(slot.serving()))
    }

    /// For how long the requests that the worker of a slot is answering have lasted by now, all together, in milliseconds.
    pub fn in_progress(&self, index: usize, now: u64) -> u64 {
        self.board.slots.get(index).map_or(0, |slot| slot.in_progress(now))
    }

    /// What all workers have done since the scoreboard was made, and their connections. Those in the shared queue also wait,
    /// though no worker has them.
    pub fn totals(&self) -> Counts {
        let mut totals = Counts::default();
        (0..self.used()).filter_map(|index| self.counts(index)).for_each(|counts| totals.add(&counts));
        totals.connections.waiting += self.queued();
        totals
    }

    /// A worker was replaced. For the master only.
    pub fn count_restart(&self, cause: Cause) {
        self.board.restarts[cause as usize].add(1);
    }

    /// How many workers were replaced, by the cause.
    pub fn restarts(&self) -> [(Cause, u64); Cause::ALL.len()] {
        Cause::ALL.map(|cause| (cause, self.board.restarts[cause as usize].get()))
    }
}
