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

    /// For how long the present worker of a slot has been in the application, all its threads together, in milliseconds; requests in
    /// progress count up to `now`. None if there is no such slot.
    pub fn busy(&self, index: usize, now: u64) -> Option<u64> {
        Some(self.board.slots.get(index)?.busy(now))
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
