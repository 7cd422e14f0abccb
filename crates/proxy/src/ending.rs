//! The end of the process, as the master orders it: requests first, then streams and tunnels.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;

use crate::work::{Counts, Work};

/// Interval of looks at the requests that are left, and at streams and tunnels.
const LOOK: Duration = Duration::from_millis(10);
const LATER_LOOK: Duration = Duration::from_millis(100);

/// How long clients that were just accepted get for their first request.
const FRESH_TIME: Duration = Duration::from_secs(1);

/// How long tunnels that nobody waits for get to end in order.
const TIME_TO_CLOSE: Duration = Duration::from_secs(2);

/// Nobody is accepted any more, and clients that are there get the last response.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// Until when a kept connection waits for another request, whose response says `Connection: close`.
    pub kept_until: Instant,
    /// The same of a connection that has had no request yet.
    pub fresh_until: Instant,
}

/// The master's order. Times are in seconds after it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct End {
    /// How long kept connections wait for another request.
    idle: f64,
    /// How long streams and tunnels go on.
    linger: f64,
    /// How long their ends take then, one after the other.
    spread: f64,
    /// When everything is cut.
    cut: f64,
    /// Whether tunnels are waited for, too.
    tunnels: bool,
}

impl End {
    /// Without a master: streams have most of this time.
    pub fn within(seconds: f64) -> Self {
        let spread = (seconds / 4.0).min(1.5);
        End { idle: 0.25, linger: seconds - 2.0 * spread, spread, cut: seconds, tunnels: false }
    }
}

/// How far the process has ended.
#[derive(Debug)]
pub struct Ending {
    end: End,
    began: Instant,
    has_told: bool,
    /// When the next stream or tunnel is ended.
    next_end: Option<Instant>,
    /// Since when only tunnels are left that nobody waits for.
    left_since: Option<Instant>,
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Another look, after this time.
    Wait(Duration),
    /// The same, and the master is told that only streams and tunnels are left.
    Tell(Counts),
    /// The process ends. Whether connections with work are cut.
    Over { is_cut: bool },
}

impl Ending {
    /// The process is to end, by this order.
    pub fn new(end: End, now: Instant) -> Self {
        Ending { end, began: now, has_told: false, next_end: None, left_since: None }
    }

    /// What the connections are told.
    pub fn stop(&self) -> Stop {
        let kept_until = self.at(self.end.idle);
        Stop { kept_until, fresh_until: kept_until.max(self.began + FRESH_TIME) }
    }

    /// Looks at the work that is left, and at the number of open connections.
    pub fn step(&mut self, now: Instant, open: u64, work: &Arc<Work>) -> Step {
        let left = work.lasting();
        if open == 0 || now >= self.at(self.end.cut) {
            return Step::Over { is_cut: open > 0 };
        }
        if work.requests() > 0 || now < self.stop().fresh_until {
            self.end_due(now, work);
            return Step::Wait(LOOK);
        }
        if left == Counts::default() {
            return Step::Over { is_cut: false };
        }
        if left.streams == 0 && !self.end.tunnels {
            return self.leave(now, work);
        }
        if !std::mem::replace(&mut self.has_told, true) {
            return Step::Tell(left);
        }
        self.end_due(now, work);
        Step::Wait(
            LATER_LOOK
                .min(self.next_end.map_or(LATER_LOOK, |at| at.saturating_duration_since(now)))
                .max(LOOK),
        )
    }

    /// Ends the tunnels that nobody waits for.
    fn leave(&mut self, now: Instant, work: &Arc<Work>) -> Step {
        let since = *self.left_since.get_or_insert(now);
        while work.end_oldest().is_some() {}
        if now - since < TIME_TO_CLOSE {
            Step::Wait(LOOK)
        } else {
            Step::Over { is_cut: true }
        }
    }

    /// Ends the streams and tunnels whose time has come. The pauses between them are equal.
    fn end_due(&mut self, now: Instant, work: &Arc<Work>) {
        let (first, last) = (self.at(self.end.linger), self.at(self.end.linger + self.end.spread));
        while now >= self.next_end.unwrap_or(first) {
            let left = work.open();
            if work.end_oldest().is_none() {
                return;
            }
            let pause = last.saturating_duration_since(now) / u32::try_from(left).unwrap_or(u32::MAX);
            self.next_end = Some(now + pause);
        }
    }

    fn at(&self, seconds: f64) -> Instant {
        // A day is for ever.
        self.began
            + Duration::try_from_secs_f64(seconds)
                .unwrap_or(Duration::ZERO)
                .min(Duration::from_secs(86_400 * 365))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::{Kind, Lasting};

    const END: End = End { idle: 0.25, linger: 20.0, spread: 10.0, cut: 40.0, tunnels: true };

    /// The steps of an end at these seconds after the order.
    struct Trial {
        ending: Ending,
        work: Arc<Work>,
    }

    impl Trial {
        fn new(end: End) -> Self {
            Trial { ending: Ending::new(end, Instant::now()), work: Arc::default() }
        }

        fn lasting<const N: usize>(&self, kind: Kind) -> [Lasting; N] {
            std::array::from_fn(|_| self.work.begin_lasting(kind))
        }

        fn step(&mut self, seconds: f64, open: u64) -> Step {
            let now = self.ending.began + Duration::from_secs_f64(seconds);
            self.ending.step(now, open, &self.work)
        }
    }

    #[test]
    fn the_process_waits_for_requests_and_not_for_connections() {
        let mut trial = Trial::new(END);
        assert_eq!(trial.step(0.1, 0), Step::Over { is_cut: false });
        assert_eq!(trial.step(0.9, 1), Step::Wait(LOOK), "its first request may be on its way");
        trial.work.begin_request();
        assert_eq!(trial.step(5.0, 2), Step::Wait(LOOK));
        trial.work.end_request();
        assert_eq!(trial.step(5.0, 2), Step::Over { is_cut: false });
    }

    #[test]
    fn everything_is_cut_when_its_time_is_over() {
        let mut trial = Trial::new(END);
        trial.work.begin_request();
        assert_eq!(trial.step(39.9, 1), Step::Wait(LOOK));
        assert_eq!(trial.step(40.0, 1), Step::Over { is_cut: true });
    }

    #[test]
    fn streams_and_tunnels_end_one_after_the_other_when_they_have_lingered() {
        let mut trial = Trial::new(END);
        let _lasting: ([_; 2], [_; 3]) = (trial.lasting(Kind::Stream), trial.lasting(Kind::Tunnel));
        assert_eq!(trial.step(1.0, 5), Step::Tell(Counts { streams: 2, tunnels: 3 }));
        let mut open = |seconds| (trial.step(seconds, 5), trial.work.open()).1;
        assert_eq!([19.9, 20.0, 21.9, 22.0, 24.0, 26.1, 28.1, 30.0].map(&mut open), [5, 4, 4, 3, 2, 1, 0, 0]);
    }

    #[test]
    fn requests_that_last_longer_do_not_keep_streams() {
        let mut trial = Trial::new(END);
        trial.work.begin_request();
        let _streams: [_; 1] = trial.lasting(Kind::Stream);
        assert_eq!((trial.step(20.0, 2), trial.work.open()), (Step::Wait(LOOK), 0));
    }

    #[test]
    fn tunnels_that_nobody_waits_for_end_in_order_once_streams_have_ended() {
        let mut trial = Trial::new(End { tunnels: false, ..END });
        let (streams, tunnels): ([_; 1], [_; 2]) = (trial.lasting(Kind::Stream), trial.lasting(Kind::Tunnel));
        assert_eq!(trial.step(2.0, 3), Step::Tell(Counts { streams: 1, tunnels: 2 }));
        drop(streams);
        assert_eq!((trial.step(3.0, 2), trial.work.open()), (Step::Wait(LOOK), 0));
        assert_eq!(trial.step(4.9, 2), Step::Wait(LOOK));
        assert_eq!(trial.step(5.0, 2), Step::Over { is_cut: true });
        drop(tunnels);
        assert_eq!(trial.step(4.0, 0), Step::Over { is_cut: false });
    }
}
