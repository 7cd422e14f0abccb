//! The counters of each worker, in memory shared with the master: totals that only grow, and numbers of connections.
//!
//! The thread that has the reactor's lock writes the counters, so that plain loads and stores suffice. Three numbers have other writers:
//! the thread that has the application's lock writes the time of the garbage collector, the access log's thread its lines, and the
//! helper the overdue requests. One overdue request may be lost in the count.
//!
//! A new worker adds to the counters of the last worker in its slot, so that no total ever goes back.

use fastrack_access_log::Timings;
use fastrack_sys::SharedMemory;

use super::words::Word;

/// Upper bounds of the buckets of a [`Histogram`], in milliseconds. One more bucket has all longer times.
pub const BUCKETS: [u64; 13] = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000];

/// Upper bounds of the buckets of the histograms of [`Timings`], in microseconds.
pub const FINE_BUCKETS: [u64; BUCKETS.len()] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000,
];

/// Number of classes of responses, by the first digit of the status. Class 0 is of requests without a status.
const CLASSES: usize = 6;

/// How requests are distributed over the [`BUCKETS`] or the [`FINE_BUCKETS`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Requests in each bucket, without those of the buckets before it.
    pub buckets: [u64; BUCKETS.len() + 1],
    /// Time of all requests together, in the unit of the buckets.
    pub sum: u64,
}

impl Histogram {
    /// Number of requests.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Histogram) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(bucket, more)| *bucket += more);
        self.sum += other.sum;
    }
}

/// Totals of a worker, or of all workers, since the server was started, and their connections of now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Time in the application, by the first digit of the status: `durations[2]` is of all responses from 200 to 299.
    /// `durations[0]` is of requests that ended without a response, or whose connection the application took over. The
    /// counts of all histograms add up to the number of requests.
    pub durations: [Histogram; CLASSES],
    /// Time that requests had waited when the application was called.
    pub queue_times: Histogram,
    /// Time in the application without the waits for slow clients, by the [`FINE_BUCKETS`]. Streams do not count. Empty unless
    /// [timings](crate::RequestSettings::timings) are on.
    pub app_times: Histogram,
    /// Time that requests waited for Ruby's GVL, as `app_times`. Empty before Ruby 3.2.
    pub gvl_waits: Histogram,
    /// Bytes received from clients.
    pub bytes_in: u64,
    /// Bytes that the system has taken to be sent.
    pub bytes_out: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections put into the shared queue.
    pub handed_over: u64,
    /// Connections taken from the shared queue.
    pub taken_over: u64,
    /// Requests ended because they exceeded their time limit.
    pub timed_out: u64,
    /// Requests that were refused before the application was called: malformed or too large ones, and late ones.
    pub refused: u64,
    /// Refused requests that had waited for longer than [`Settings::max_queue_time`](crate::Settings::max_queue_time).
    pub overloaded: u64,
    /// Requests whose client had left before it was their turn.
    pub dropped: u64,
    /// Responses that were cut off, because the client had gone or the application failed in the middle.
    pub aborted: u64,
    /// Connections that the application has taken over.
    pub hijacked: u64,
    /// Responses that have become streams.
    pub streams: u64,
    /// Time of the garbage collector while there was a request, in nanoseconds.
    pub gc_in_requests: u64,
    /// Time of the garbage collector while there was no request, in nanoseconds.
    pub gc_outside: u64,
    /// Lines written to the access log.
    pub log_lines: u64,
    /// Lines that the access log did not take in time.
    pub log_lines_dropped: u64,
    /// Connections of now.
    pub connections: Connections,
}

/// The connections of a worker, or of all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Kept alive between two requests.
    pub idle: u64,
    /// The server awaits a request, or the rest of one.
    pub reading: u64,
    /// A request, or a part of a request, waits for a thread. The total of all workers includes the shared queue.
    pub waiting: u64,
    /// The application answers the request. Streams do not count.
    pub in_app: u64,
    /// The response is a stream.
    pub streaming: u64,
    /// The client has yet to take a part of the response, or to close.
    pub writing: u64,
}

impl Counts {
    /// Number of requests by the first digit of the status, see [`durations`](Self::durations).
    pub fn responses(&self) -> [u64; CLASSES] {
        self.durations.each_ref().map(Histogram::count)
    }

    /// Number of requests.
    pub fn requests(&self) -> u64 {
        self.responses().iter().sum()
    }

    /// Adds the counts of another worker.
    pub fn add(&mut self, other: &Counts) {
        self.durations.iter_mut().zip(&other.durations).for_each(|(one, other)| one.add(other));
        self.queue_times.add(&other.queue_times);
        self.app_times.add(&other.app_times);
        self.gvl_waits.add(&other.gvl_waits);
        let mut other = other.clone();
        self.singles().zip(other.singles()).for_each(|((_, number), (_, more))| *number += *more);
        self.connections.in_app += other.connections.in_app;
    }

    /// The numbers that a worker keeps by [`Count`].
    fn singles(&mut self) -> impl Iterator<Item = (Count, &mut u64)> {
        let Connections { idle, reading, writing, waiting, streaming, .. } = &mut self.connections;
        [
            (Count::BytesIn, &mut self.bytes_in),
            (Count::BytesOut, &mut self.bytes_out),
            (Count::Accepted, &mut self.accepted),
            (Count::HandedOver, &mut self.handed_over),
            (Count::TakenOver, &mut self.taken_over),
            (Count::TimedOut, &mut self.timed_out),
            (Count::Refused, &mut self.refused),
            (Count::Overloaded, &mut self.overloaded),
            (Count::Dropped, &mut self.dropped),
            (Count::Aborted, &mut self.aborted),
            (Count::Hijacked, &mut self.hijacked),
            (Count::Streams, &mut self.streams),
            (Count::GcInRequests, &mut self.gc_in_requests),
            (Count::GcOutside, &mut self.gc_outside),
            (Count::LogLines, &mut self.log_lines),
            (Count::LogLinesDropped, &mut self.log_lines_dropped),
            (Count::Idle, idle),
            (Count::Reading, reading),
            (Count::Writing, writing),
            (Count::Streaming, streaming),
            (Count::Waiting, waiting),
        ]
        .into_iter()
    }
}

/// A number that a worker counts.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(crate) enum Count {
    BytesIn,
    BytesOut,
    Accepted,
    HandedOver,
    TakenOver,
    /// Only the helper writes this number.
    TimedOut,
    Refused,
    Overloaded,
    Dropped,
    Aborted,
    Hijacked,
    Streams,
    GcInRequests,
    GcOutside,
    LogLines,
    LogLinesDropped,
    // From here on the numbers go up and down.
    Idle,
    Reading,
    Writing,
    Streaming,
    Waiting,
}

/// Time of the garbage collector, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcTime {
    /// Time while there was a request.
    pub in_requests: u64,
    /// Time while there was none.
    pub outside: u64,
}

/// The counters of one worker, in shared memory.
#[repr(C)]
pub struct CounterWords {
    /// Time in the application, by the first digit of the status. Class 0 is of requests without a status.
    durations: [Row; CLASSES],
    /// Overdue requests that the helper has answered with 504.
    lost: Row,
    queue_times: Row,
    /// By the [`FINE_BUCKETS`].
    app_times: Row,
    gvl_waits: Row,
    /// Numbers by [`Count`], whose last variant is Waiting.
    singles: [Word; Count::Waiting as usize + 1],
}

/// A [`Histogram`] in shared memory.
#[repr(C)]
struct Row {
    buckets: [Word; BUCKETS.len() + 1],
    sum: Word,
}

impl CounterWords {
    /// Clears the connections, for a new worker in the slot.
    pub fn begin(&self) {
        self.singles[Count::Idle as usize..].iter().for_each(|number| number.set(0));
    }

    /// Time in the application of requests that are over, in milliseconds.
    pub fn busy(&self) -> u64 {
        self.durations.iter().chain([&self.lost]).map(|row| row.sum.get()).sum()
    }

    /// `in_app` is the number of requests in the application. None for a slot without a worker, which has no connections.
    pub fn read(&self, in_app: Option<u64>) -> Counts {
        let mut counts = Counts {
            durations: self.durations.each_ref().map(Row::read),
            queue_times: self.queue_times.read(),
            app_times: self.app_times.read(),
            gvl_waits: self.gvl_waits.read(),
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
        let bucket = if millis == 0 { 0 } else { self.bucket(millis, &BUCKETS) };
        self.buckets[bucket].add(1);
    }

    #[inline]
    fn count_fine(&self, micros: u64) {
        let bucket = if micros == 0 { 0 } else { self.bucket(micros, &FINE_BUCKETS) };
        self.buckets[bucket].add(1);
    }

    /// Adds a time to the sum, and returns its bucket. The coarse clock shows 0 for most requests.
    #[cold]
    fn bucket(&self, time: u64, bounds: &[u64; BUCKETS.len()]) -> usize {
        self.sum.add(time);
        bounds.iter().position(|bound| time <= *bound).unwrap_or(BUCKETS.len())
    }

    fn read(&self) -> Histogram {
        Histogram { buckets: self.buckets.each_ref().map(Word::get), sum: self.sum.get() }
    }
}

/// The counters of one worker, as the worker writes them.
#[derive(Clone, Debug)]
pub(crate) struct Counters(SharedMemory<CounterWords>);

impl Counters {
    pub fn new(words: SharedMemory<CounterWords>) -> Self {
        Counters(words)
    }

    /// Counts a request that is over: its `class` (first digit of the status, or 0), its time in the application in
    /// milliseconds, its wait before that in microseconds, and the bytes of its response.
    #[inline]
    pub fn count_request(&self, class: usize, millis: u64, queued: u64, bytes: u64) {
        self.0.durations[class.min(CLASSES - 1)].count(millis);
        self.0.queue_times.count(if queued == 0 { 0 } else { queued / 1000 });
        self.add(Count::BytesOut, bytes);
    }

    /// Counts how the time of a request was divided.
    #[inline]
    pub fn count_timings(&self, timings: &Timings) {
        self.0.app_times.count_fine(timings.app);
        if let Some(gvl) = timings.gvl {
            self.0.gvl_waits.count_fine(gvl.wait);
        }
    }

    /// Counts an overdue request. `is_answered` says whether the client got a 504.
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

    /// Number of requests.
    pub fn requests(&self) -> u64 {
        self.0.durations.iter().chain([&self.0.lost]).map(|row| row.read().count()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_is_of_one_number() {
        let mut counts = Counts::default();
        let places: Vec<_> = counts.singles().map(|(count, _)| count as usize).collect();
        assert_eq!(places, (0..=Count::Waiting as usize).collect::<Vec<_>>());
    }
}
