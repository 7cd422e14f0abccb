//! Whether a worker may begin a further request beside those in progress.

use std::sync::atomic::Ordering;

use super::Crew;
use crate::clock::Clock;
use crate::watch::SHORTEST;

/// While no processor is idle a wait is long after this time, in microseconds, for each thread that has a request: then the worker
/// begins another one, though that takes time of those. Where the machine is busy a wait of a millisecond or two lasts longer;
/// and the more requests there are, the longer they make each other's waits.
pub(super) const LONG_WAIT: u64 = 30_000;
/// The same where most waits that are not over by then have been long: there is time for another one. And where requests hardly
/// wait, even while processors are idle.
pub(super) const LIKELY_LONG_WAIT: u64 = 3_000;

/// When a worker has begun no request for so long, in microseconds, it begins one also while no processor is idle, as soon as all
/// those that it has wait: some wait often, and never for long.
pub(super) const LONG_PAUSE: u64 = 100_000;

impl<C: Clock> Crew<C> {
    /// How many more threads may have requests. There is one that sleeps, all those that have requests wait, and processors are
    /// idle. Otherwise the requests would be in each other's way: who waits for a moment only would have to wait for the
    /// application's lock then. Many short waits count as well, when they leave the worker little to compute.
    pub fn room(&self) -> usize {
        let (serving, is_free) = {
            let state = self.state();
            (state.serving, state.is_lead_free() && !state.sleepers.is_empty())
        };
        match self.shortest_wait(serving) {
            _ if !is_free => 0,
            _ if serving == 0 => 1,
            0 => usize::from(self.hardly_computes(serving)),
            waited => {
                let is_long = self.is_long(waited, serving) || self.has_paused();
                let idle = self.load.idle_processors();
                let idle = if self.is_too_short(waited, serving) { 0 } else { idle };
                idle.max(usize::from(is_long))
            }
        }
    }

    /// How long it takes at least until there is [room](Self::room) if there is none now, in microseconds: on a busy machine until
    /// all threads that have requests have waited for long. Without end while one computes: the helper is told when it has waited.
    /// None where nothing is known.
    pub fn time_until_room(&self) -> Option<u64> {
        let serving = self.state().serving;
        let long = match (self.load.is_busy(), self.hardly_wait(serving)) {
            (true, _) => Some(self.long_wait(serving)),
            (false, true) => Some(for_each(serving, LIKELY_LONG_WAIT)),
            (false, false) => None,
        };
        let least = long.unwrap_or(SHORTEST);
        let is_told = self.waits.tell_after(least) && self.say(serving);
        let waits = self.threads_in(serving).map(|thread| self.activity(thread).waits_for(&self.clock));
        match waits.min().flatten() {
            None if is_told => Some(u64::MAX),
            Some(waited) if is_told && waited < least => Some(least - waited),
            waited => long.map(|long| long.saturating_sub(waited.unwrap_or(0))),
        }
    }

    /// Whether a worker that has answered a request may begin another one beside those in progress.
    pub(super) fn has_room_beside(&self, serving: u64) -> bool {
        let waited = self.shortest_wait(serving);
        self.is_long(waited, serving) || !(self.is_in_the_way() || self.is_too_short(waited, serving))
    }

    /// Whether another request would be in the way of those in progress, which have not waited for long, because of others.
    pub(super) fn is_in_the_way(&self) -> bool {
        self.load.is_high() || self.load.is_busy() && self.waits.are_short()
    }

    /// Whether it would be so even while processors are idle: the requests would take turns with the application's lock, and each
    /// turn of a thread on another processor finds that processor's caches cold.
    fn is_too_short(&self, waited: u64, serving: u64) -> bool {
        waited < for_each(serving, LIKELY_LONG_WAIT) && self.hardly_wait(serving)
    }

    /// Whether requests of late have hardly waited, as their threads say.
    fn hardly_wait(&self, serving: u64) -> bool {
        self.say(serving) && self.wait_share.is_small(self.waits.total(), &self.clock)
    }

    /// Whether the worker has hardly computed of late, and none of these threads wants to.
    fn hardly_computes(&self, serving: u64) -> bool {
        self.cpu_share.is_low(self.begun.load(Ordering::Relaxed), &self.clock)
            && !self.threads_in(serving).any(|thread| self.activity(thread).is_runnable())
    }

    /// Whether these threads say when they wait.
    fn say(&self, serving: u64) -> bool {
        self.threads_in(serving).all(|thread| self.activity(thread).is_said())
    }

    /// For how long all of these threads have waited at least, in microseconds; 0 if one computes.
    fn shortest_wait(&self, serving: u64) -> u64 {
        // Each is asked, for the next time.
        let waits =
            self.threads_in(serving).map(|thread| self.activity(thread).waited(&self.clock).unwrap_or(0));
        waits.min().unwrap_or(0)
    }

    fn is_long(&self, waited: u64, serving: u64) -> bool {
        waited >= self.long_wait(serving)
    }

    /// How long a wait of all these threads is long.
    fn long_wait(&self, serving: u64) -> u64 {
        for_each(serving, if self.waits.are_long() { LIKELY_LONG_WAIT } else { LONG_WAIT })
    }

    fn has_paused(&self) -> bool {
        self.clock.micros() >= self.begun.load(Ordering::Relaxed) + LONG_PAUSE
    }
}

fn for_each(serving: u64, wait: u64) -> u64 {
    wait * u64::from(serving.count_ones())
}
