//! What workers have done, as others read it.

/// Upper bounds of the buckets of a [`Histogram`], in milliseconds. One more bucket has the rest.
pub const BUCKETS: [u64; 13] = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000];

/// Responses by the first digit of the status; the first place is of requests without one.
pub(super) const CLASSES: usize = 6;

/// How requests are distributed over the [`BUCKETS`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many there are in each bucket, not counting those of the buckets before it.
    pub buckets: [u64; BUCKETS.len() + 1],
    /// Of all together, in milliseconds.
    pub sum: u64,
}

impl Histogram {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Histogram) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(bucket, more)| *bucket += more);
        self.sum += other.sum;
    }
}

/// What a worker, or all workers, have done since the server was started, and their connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How long the application took, by the first digit of the status: `durations[2]` is of all responses from 200 to 299.
    /// `durations[0]` is of requests that ended without a response, or whose connection the application took over. Their
    /// counts add up to the number of requests.
    pub durations: [Histogram; CLASSES],
    /// How long requests had waited when the application was called.
    pub queue_times: Histogram,
    /// Bytes received from clients.
    pub bytes_in: u64,
    /// Bytes that the system has taken to be sent.
    pub bytes_out: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections put into the shared queue.
    pub handed_over: u64,
    /// Connections taken from it.
    pub taken_over: u64,
    /// Requests ended because they exceeded their time limit.
    pub timed_out: u64,
    /// Requests that were refused before the application was called: malformed or too large ones, and late ones.
    pub refused: u64,
    /// Those of them that had waited for longer than [`Settings::max_queue_time`](crate::Settings::max_queue_time).
    pub overloaded: u64,
    /// Requests whose client had left before it was their turn.
    pub dropped: u64,
    /// Responses that were cut off: the client had gone, or the application failed in the middle.
    pub aborted: u64,
    /// Connections that the application has taken over.
    pub hijacked: u64,
    /// Time that the garbage collector took while there was a request, in nanoseconds.
    pub gc_in_requests: u64,
    /// The same, while there was none.
    pub gc_outside: u64,
    /// Lines written to the access log.
    pub log_lines: u64,
    /// Lines that the access log did not take in time.
    pub log_lines_dropped: u64,
    /// What there is now.
    pub connections: Connections,
}

/// The connections of a worker, or of all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Kept alive between two requests.
    pub idle: u64,
    /// A request, or the rest of one, is to come.
    pub reading: u64,
    /// Their requests have come, or something of them, and nobody has time for them. Of all workers, those in the shared queue
    /// are among them.
    pub waiting: u64,
    /// The application answers their requests.
    pub in_app: u64,
    /// The client has yet to take a part of the response, or to close.
    pub writing: u64,
}

impl Counts {
    /// How many requests were answered, by the first digit of the status; see [`durations`](Self::durations).
    pub fn responses(&self) -> [u64; CLASSES] {
        self.durations.each_ref().map(Histogram::count)
    }

    /// How many requests there were.
    pub fn requests(&self) -> u64 {
        self.responses().iter().sum()
    }

    /// Adds another worker's.
    pub fn add(&mut self, other: &Counts) {
        self.durations.iter_mut().zip(&other.durations).for_each(|(one, other)| one.add(other));
        self.queue_times.add(&other.queue_times);
        let mut other = other.clone();
        self.singles().zip(other.singles()).for_each(|((_, number), (_, more))| *number += *more);
        self.connections.in_app += other.connections.in_app;
    }

    /// The numbers that a worker keeps by a [`Count`].
    pub(super) fn singles(&mut self) -> impl Iterator<Item = (Count, &mut u64)> {
        let Connections { idle, reading, writing, waiting, .. } = &mut self.connections;
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
            (Count::GcInRequests, &mut self.gc_in_requests),
            (Count::GcOutside, &mut self.gc_outside),
            (Count::LogLines, &mut self.log_lines),
            (Count::LogLinesDropped, &mut self.log_lines_dropped),
            (Count::Idle, idle),
            (Count::Reading, reading),
            (Count::Writing, writing),
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
    /// The helper's.
    TimedOut,
    Refused,
    Overloaded,
    Dropped,
    Aborted,
    Hijacked,
    GcInRequests,
    GcOutside,
    LogLines,
    LogLinesDropped,
    // From here on these go up and down.
    Idle,
    Reading,
    Writing,
    Waiting,
}

/// How long the garbage collector has run, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GcTime {
    /// While there was a request.
    pub in_requests: u64,
    /// While there was none.
    pub outside: u64,
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
