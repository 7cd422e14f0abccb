//! The pipelined requests of one client in a row: they are answered one after the other, for a while, before others get theirs.
//!
//! They have come at the same time, so that they are next in any order of arrival, and their responses may leave in one packet.

/// The most requests in a row.
const REQUESTS: u32 = 16;

/// How long after its first request's beginning a row takes another one in, in milliseconds. A row that ends sooner has its client wait
/// behind all others once more; who comes behind one waits for so long at most, and for one request.
const TIME: u64 = 20;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pipeline {
    /// When the row has begun, in milliseconds.
    began: u64,
    /// The tick of the clock of the responses that are held back, to leave in one packet, in milliseconds.
    held: u64,
    /// How many have been answered, since it goes on.
    requests: u32,
    goes_on: bool,
}

impl Pipeline {
    /// Whether the response to a request that begins at this time may be held back for the next one's, which is there: only where
    /// that may be in the row, and for no longer than a tick of the clock.
    pub fn holds_back(&self, now: u64) -> bool {
        !self.goes_on || self.requests + 1 < REQUESTS && self.held == now
    }

    /// A request was answered that had `started` then, and the next one is there. Whether that belongs to the row.
    pub fn go_on(&mut self, started: u64, now: u64) -> bool {
        if !self.goes_on {
            (self.began, self.held, self.requests) = (started, started, 0);
        } else if self.held != started {
            // That response has left, with those before it.
            self.held = now;
        }
        self.requests += 1;
        self.goes_on = self.requests < REQUESTS && now < self.began + TIME;
        self.goes_on
    }

    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// The next request waits behind those of others.
    pub fn end(&mut self) {
        self.goes_on = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_lasts_for_so_many_requests_and_for_some_time() {
        let mut pipeline = Pipeline::default();
        for _ in 0..2 {
            assert_eq!((1..100).find(|_| !pipeline.go_on(5, 5)), Some(REQUESTS as usize));
        }
        assert!(pipeline.go_on(5, 5) && pipeline.go_on(5, 6) && pipeline.go_on(6, 5 + TIME - 1));
        assert!(!pipeline.go_on(6, 5 + TIME) && !pipeline.goes_on());
        assert!(pipeline.go_on(6, 5 + TIME) && !pipeline.go_on(6, 6 + TIME));
    }

    #[test]
    fn responses_are_held_back_for_as_many_requests_as_are_in_a_row() {
        let mut pipeline = Pipeline::default();
        for _ in 0..100 {
            let holds_back = pipeline.holds_back(5);
            assert_eq!(pipeline.go_on(5, 5), holds_back);
        }
    }

    #[test]
    fn responses_are_held_back_for_a_tick_of_the_clock() {
        let mut pipeline = Pipeline::default();
        // What each of a row's requests, one in a millisecond, finds where a tick takes four of them.
        let held = (0..16).map(|millis| {
            let (now, next) = (millis / 4 * 4, (millis + 1) / 4 * 4);
            let held = pipeline.holds_back(now);
            pipeline.go_on(now, next);
            held
        });
        // The first of a tick takes along those of the tick before.
        let (yes, no) = (true, false);
        assert_eq!(
            held.collect::<Vec<_>>(),
            [yes, yes, yes, yes, no, yes, yes, yes, no, yes, yes, yes, no, yes, yes, no]
        );
    }
}
