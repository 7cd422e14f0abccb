//! The pipelined requests of one client in a row: they are answered one after the other, for a while, before others get theirs.
//!
//! They have come at the same time, so that they are next in any order of arrival, and their responses may leave in one packet.

/// The most requests in a row.
const REQUESTS: u32 = 16;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pipeline {
    /// The tick of the clock in which the row has begun, in milliseconds.
    began: u64,
    /// How many have been answered, since it goes on.
    requests: u32,
    goes_on: bool,
}

impl Pipeline {
    /// Whether the row may have room for another request after one that begins at this time.
    pub fn has_room(&self, now: u64) -> bool {
        !self.goes_on || self.requests + 1 < REQUESTS && self.began == now
    }

    /// A request was answered that had `started` then, and the next one is there. Whether that belongs to the row.
    pub fn go_on(&mut self, started: u64, now: u64) -> bool {
        if !self.goes_on {
            (self.began, self.requests) = (started, 0);
        }
        self.requests += 1;
        self.goes_on = self.requests < REQUESTS && self.began == now;
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
    fn a_row_lasts_for_a_tick_of_the_clock_and_for_so_many_requests() {
        let mut pipeline = Pipeline::default();
        for _ in 0..2 {
            assert_eq!((1..100).find(|_| !pipeline.go_on(5, 5)), Some(REQUESTS as usize));
        }
        assert!(pipeline.go_on(5, 5) && pipeline.goes_on() && pipeline.has_room(5) && !pipeline.has_room(6));
        assert!(!pipeline.go_on(5, 6) && !pipeline.goes_on() && pipeline.has_room(6));
        assert!(!pipeline.go_on(6, 7));
    }

    #[test]
    fn a_row_has_room_for_as_many_as_it_takes() {
        let mut pipeline = Pipeline::default();
        for _ in 0..100 {
            let had_room = pipeline.has_room(5);
            assert_eq!(pipeline.go_on(5, 5), had_room);
        }
    }
}
