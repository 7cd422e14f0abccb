//! Whether requests are long or short, by how many begin in a tick of the clock: no exact clock is asked.

/// With no more requests than this in a millisecond they are long ones, and wait in the shared queue, where all workers' clients
/// are in one order. That costs some ten microseconds each, of 300 or more.
pub(super) const LONG_REQUESTS: u32 = 3;

/// Goes by ticks in which the worker has not waited for clients: few requests in others say nothing about how long they take.
#[derive(Debug)]
pub(super) struct RequestLength {
    /// The most requests in a tick that are long.
    most: u32,
    /// When the current tick began, in milliseconds; 0 before the first request.
    began: u64,
    /// Requests that began in it.
    count: u32,
    /// The worker has waited since the last request, or in the current tick before that.
    has_waited: bool,
    is_partial: bool,
    is_short: bool,
}

impl RequestLength {
    /// A tick of the clock takes so many milliseconds.
    pub fn new(tick: u32) -> Self {
        RequestLength {
            most: LONG_REQUESTS * tick,
            began: 0,
            count: 0,
            has_waited: false,
            is_partial: false,
            is_short: false,
        }
    }

    /// A request begins at this time, in milliseconds.
    #[inline]
    pub fn begin(&mut self, now: u64) {
        if now != self.began {
            if !(self.is_partial || self.has_waited) {
                self.is_short = self.count > self.most;
            }
            (self.began, self.count, self.is_partial) = (now, 0, false);
        }
        self.is_partial |= std::mem::take(&mut self.has_waited);
        self.count = self.count.saturating_add(1);
        self.is_short |= self.count > self.most;
    }

    /// The worker waits for clients.
    pub fn wait(&mut self) {
        self.has_waited = true;
    }

    /// False before the first request.
    pub fn is_long(&self) -> bool {
        self.began != 0 && !self.is_short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known after so many requests in each of some ticks of 4 ms. After a tick of a negative number the worker waits.
    fn after(ticks: &[i32]) -> bool {
        let mut length = RequestLength::new(4);
        for (number, count) in ticks.iter().enumerate() {
            (0..count.unsigned_abs()).for_each(|_| length.begin(1_000 + 4 * number as u64));
            if *count < 0 {
                length.wait();
            }
        }
        length.is_long()
    }

    #[test]
    fn no_more_than_three_in_a_millisecond_are_long() {
        assert_eq!([after(&[]), after(&[1]), after(&[12]), after(&[13])], [false, true, true, false]);
    }

    #[test]
    fn the_last_whole_tick_counts() {
        assert_eq!([after(&[40, 1]), after(&[40, 1, 1]), after(&[12, 1])], [false, true, true]);
    }

    #[test]
    fn few_short_requests_are_not_long_because_the_worker_has_waited_meanwhile() {
        assert_eq!(
            [after(&[40, -1, 1]), after(&[40, -1, 1, 1]), after(&[40, -1, 1, 1, 1])],
            [false, false, true]
        );
        assert!(after(&[2, -1, 1, -1, 1]));
    }
}
