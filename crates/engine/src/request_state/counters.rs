//! What each worker has done, in memory shared with the master: counts that only grow, and how many connections it has.
//!
//! A worker writes its own counters, and with three exceptions only while it has the reactor locked. So there is one writer at
//! a time, which needs no more than plain loads and stores. The exceptions have numbers of their own: the time of the garbage
//! collector, which the thread writes that has the application's lock; lines of the access log, which its thread writes; and requests
//! that the application will not answer, which the helper counts, or a signal handler, when the process ends: of these, one may be lost.
//!
//! A worker goes on counting where the last one in its slot has ended, so that no total ever goes back.

use fastrack_sys::SharedMemory;

use super::counts::{Connections, Count, Counts, Histogram, BUCKETS, CLASSES};
use super::word::Word;

/// The numbers of one worker.
#[repr(C)]
pub(super) struct CounterWords {
    /// Of requests, by the first digit of the status; the first place is of requests without one.
    durations: [Row; CLASSES],
    /// Requests that the server has answered with 502 or 504 because their worker ends.
    lost: Row,
    queue_times: Row,
    /// By their [`Count`], whose last one is Waiting.
    singles: [Word; Count::Waiting as usize + 1],
}

/// A [`Histogram`].
#[repr(C)]
struct Row {
    buckets: [Word; BUCKETS.len() + 1],
    sum: Word,
}

impl CounterWords {
    /// The slot has a new worker, which has no connections.
    pub fn begin(&self) {
        self.singles[Count::Idle as usize..].iter().for_each(|number| number.set(0));
    }

    /// For how long the application was at requests that are over, in milliseconds.
    pub fn busy(&self) -> u64 {
        self.durations.iter().chain([&self.lost]).map(|row| row.sum.get()).sum()
    }

    /// `in_app` is how many requests the application is answering; None for a slot without a worker, which has no
    /// connections.
    pub fn read(&self, in_app: Option<u64>) -> Counts {
        let mut counts = Counts {
            durations: self.durations.each_ref().map(Row::read),
            queue_times: self.queue_times.read(),
            ..Counts::default()
        };
        counts.durations[5].add(&self.lost.read());
        counts.singles().for_each(|(count, number)| *number = self.singles[count as usize].get());
        match in_app {
            Some(in_app) => counts.connections.in_app = in_app,
            None => counts.connections = Connections::default(),
        }
        counts
    }
}

impl Row {
    #[inline]
    fn count(&self, millis: u64) {
        let bucket = if millis == 0 { 0 } else { self.bucket(millis) };
        self.buckets[bucket].add(1);
    }

    /// The bucket of a time, which it adds to the sum. The coarse clock shows 0 for most requests.
    #[cold]
    fn bucket(&self, millis: u64) -> usize {
        self.sum.add(millis);
        BUCKETS.iter().position(|bound| millis <= *bound).unwrap_or(BUCKETS.len())
    }

    fn read(&self) -> Histogram {
        Histogram { buckets: self.buckets.each_ref().map(Word::get), sum: self.sum.get() }
    }
}

/// The counters of one worker, from its side.
#[derive(Clone, Debug)]
pub(crate) struct Counters(SharedMemory<CounterWords>);

impl Counters {
    pub(super) fn new(words: SharedMemory<CounterWords>) -> Self {
        Counters(words)
    }

    /// A request is over: the first digit of its status or 0, how long the application took in
    /// milliseconds, how long the request had waited before in microseconds, and the bytes of its response.
    #[inline]
    pub fn count_request(&self, class: usize, millis: u64, queued: u64, bytes: u64) {
        self.0.durations[class.min(CLASSES - 1)].count(millis);
        self.0.queue_times.count(if queued == 0 { 0 } else { queued / 1000 });
        self.add(Count::BytesOut, bytes);
    }

    /// The application has not answered the request, and will not.
    pub fn count_lost(&self, is_answered: bool, millis: u64) {
        let row = if is_answered { &self.0.lost } else { &self.0.durations[0] };
        row.count(millis);
    }

    #[inline]
    pub fn add(&self, count: Count, more: u64) {
        self.0.singles[count as usize].add(more);
    }

    pub fn get(&self, count: Count) -> u64 {
        self.0.singles[count as usize].get()
    }

    #[inline]
    pub fn set(&self, count: Count, number: u64) {
        self.0.singles[count as usize].set(number);
    }

    /// How many requests there were.
    pub fn requests(&self) -> u64 {
        self.0.durations.iter().chain([&self.0.lost]).map(|row| row.read().count()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::cause::Cause;
    use super::super::scoreboard::Scoreboard;
    use super::*;

    #[test]
    fn a_request_is_counted_by_its_status_and_by_the_time_it_took_and_had_waited() {
        let board = Scoreboard::new().expect("memory");
        let index = board.reserve().expect("a slot");
        let counters = board.slot(index).expect("the slot").counters();
        for (class, millis, queued) in [(2, 0, 0), (2, 5, 6_000), (4, 60_001, 0), (9, 7, 30_000_000)] {
            counters.count_request(class, millis, queued, 100);
        }
        counters.count_lost(true, 2_000);
        counters.count_lost(false, 1);
        let counts = board.counts(index).expect("counts");
        assert_eq!(counts.responses(), [1, 0, 2, 0, 1, 2]);
        assert_eq!((counts.requests(), counters.requests(), counts.bytes_out), (6, 6, 400));
        assert_eq!((counts.durations[2].buckets[0], counts.durations[2].sum), (2, 5));
        assert_eq!((counts.durations[4].buckets[13], counts.durations[4].sum), (1, 60_001));
        assert_eq!((counts.durations[5].buckets[1], counts.durations[5].buckets[8]), (1, 1));
        assert_eq!(counts.queue_times.buckets, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!((counts.queue_times.sum, counts.queue_times.count()), (30_006, 4));
    }

    #[test]
    fn totals_never_go_back_when_workers_end_and_others_take_their_slots() {
        let board = Scoreboard::new().expect("memory");
        let mut last = Counts::default();
        for round in 1..=3 {
            let slots = [board.reserve(), board.reserve()].map(|index| index.expect("a slot"));
            assert_eq!(board.used(), 2);
            for index in slots {
                let counters = board.slot(index).expect("the slot").counters();
                counters.count_request(2, 1, 1_000, 10);
                counters.add(Count::Accepted, 1);
                counters.set(Count::Idle, 2);
                counters.set(Count::Waiting, 5);
            }
            let totals = board.totals();
            assert_eq!(
                (totals.requests(), totals.accepted, totals.bytes_out),
                (2 * round, 2 * round, 20 * round)
            );
            assert_eq!((totals.connections.idle, totals.connections.waiting), (4, 10));
            assert!(totals.queue_times.sum > last.queue_times.sum);
            slots.into_iter().for_each(|index| board.release(index));
            let after = board.totals();
            assert_eq!((after.requests(), after.connections), (totals.requests(), Connections::default()));
            last = after;
        }
    }

    #[test]
    fn restarts_are_counted_by_their_cause() {
        let board = Scoreboard::new().expect("memory");
        board.count_restart(Cause::Memory);
        board.count_restart(Cause::Exit);
        board.count_restart(Cause::Exit);
        let restarts: Vec<_> = board.restarts().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(restarts, [(Cause::Memory, 1), (Cause::Exit, 2)]);
        for (index, (cause, _)) in board.restarts().into_iter().enumerate() {
            assert_eq!(cause as usize, index, "{}", cause.name());
        }
    }
}
