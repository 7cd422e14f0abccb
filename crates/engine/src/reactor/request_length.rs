//! How long requests are, by how many begin in a tick of the clock: no exact clock is asked.

/// With no more requests than this in a millisecond they are long ones, and wait in the shared queue, where all workers' clients
/// are in one order. That costs some fifteen microseconds each.
pub(super) const LONG_REQUESTS: u32 = 1;

/// With no more than this they are of medium length. Only some of them wait there: enough that no worker's clients wait for much
/// longer than another's.
pub(super) const MEDIUM_REQUESTS: u32 = 3;

/// Goes by ticks in which the worker has not waited for clients: few requests in others say nothing about how long they take.
#[derive(Debug)]
pub(super) struct RequestLength {
    /// Milliseconds in a tick.
    tick: u32,
    /// When the current tick began, in milliseconds; 0 before the first request.
    began: u64,
    /// Requests that began in it, and in the last tick that counts.
    count: u32,
    last: u32,
    /// The worker has waited since the last request, or in the current tick before that.
    has_waited: bool,
    is_partial: bool,
}

impl RequestLength {
    /// What a tick of the clock takes, in milliseconds.
    pub fn new(tick: u32) -> Self {
        RequestLength { tick, began: 0, count: 0, last: 0, has_waited: false, is_partial: false }
    }

    /// A request begins at this time, in milliseconds.
    #[inline]
    pub fn begin(&mut self, now: u64) {
        if now != self.began {
            // Many requests are short ones in any tick; few, only in a whole one, are long.
            let is_whole = !(self.is_partial || self.has_waited);
            self.last = if is_whole { self.count } else { self.most() };
            (self.began, self.count, self.is_partial) = (now, 0, false);
        }
        self.is_partial |= std::mem::take(&mut self.has_waited);
        self.count = self.count.saturating_add(1);
    }

    /// The worker waits for clients.
    pub fn wait(&mut self) {
        self.has_waited = true;
    }

    /// False before the first request.
    pub fn is_long(&self) -> bool {
        self.began != 0 && self.most() <= LONG_REQUESTS * self.tick
    }

    /// Longer than short ones, and not [long](Self::is_long).
    pub fn is_medium(&self) -> bool {
        !self.is_long() && self.began != 0 && self.most() <= MEDIUM_REQUESTS * self.tick
    }

    fn most(&self) -> u32 {
        self.count.max(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum Length {
        Unknown,
        Short,
        Medium,
        Long,
    }
    use Length::{Long, Medium, Short, Unknown};

    /// What is known after these numbers of requests, one for each tick of 4 ms. After a tick of a negative number the worker waits.
    fn after(ticks: &[i32]) -> Length {
        let mut length = RequestLength::new(4);
        for (number, count) in ticks.iter().enumerate() {
            (0..count.unsigned_abs()).for_each(|_| length.begin(1_000 + 4 * number as u64));
            if *count < 0 {
                length.wait();
            }
        }
        match (length.is_long(), length.is_medium()) {
            (true, _) => Long,
            (_, true) => Medium,
            _ if length.began == 0 => Unknown,
            _ => Short,
        }
    }

    #[test]
    fn one_in_a_millisecond_is_long_and_three_are_of_medium_length() {
        assert_eq!([after(&[]), after(&[1]), after(&[4])], [Unknown, Long, Long]);
        assert_eq!([after(&[5]), after(&[12]), after(&[13])], [Medium, Medium, Short]);
    }

    #[test]
    fn the_last_whole_tick_counts() {
        assert_eq!([after(&[40, 1]), after(&[40, 1, 1]), after(&[4, 1])], [Short, Long, Long]);
        assert_eq!([after(&[12, 1]), after(&[1, 12])], [Medium, Medium]);
    }

    #[test]
    fn few_short_requests_are_not_long_because_the_worker_has_waited_meanwhile() {
        assert_eq!(
            [after(&[40, -1, 1]), after(&[40, -1, 1, 1]), after(&[40, -1, 1, 1, 1])],
            [Short, Short, Long]
        );
        assert_eq!(after(&[2, -1, 1, -1, 1]), Long);
        assert_eq!([after(&[-40, 1]), after(&[-12, 1]), after(&[-12, -40, -1, 1])], [Short, Medium, Short]);
    }
}
