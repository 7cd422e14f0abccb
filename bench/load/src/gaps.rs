//! How long each client went without an answer while it was asking.
//!
//! A latency is known only of requests that are answered. A client that sits in the accept queue while others are
//! served again and again has none, and the percentiles look as if it did not exist. Here it shows.

use std::time::{Duration, Instant};

/// A client that waits longer than this is not served every second.
const SECOND: Duration = Duration::from_secs(1);

/// The waits of one client.
#[derive(Debug, Clone, Copy, Default)]
pub struct Gap {
    asking_since: Option<Instant>,
    longest: Duration,
}

impl Gap {
    /// The client sends a request. After one that failed, it has been asking since that one.
    pub fn asks(&mut self, now: Instant) {
        self.asking_since.get_or_insert(now);
    }

    /// It has its answer. The time that the app took for it, as far as the app says, is no wait.
    pub fn is_answered(&mut self, now: Instant, service: Duration) {
        if let Some(since) = self.asking_since.take() {
            self.longest = self.longest.max(now.duration_since(since).saturating_sub(service));
        }
    }

    /// The run is over: a client without an answer by now gets none.
    pub fn ends(&mut self, now: Instant) {
        self.is_answered(now, Duration::ZERO);
    }
}

/// The sum of several clients' gaps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// How many clients there were.
    pub clients: usize,
    /// How many of them never waited for longer than a second.
    pub every_second: usize,
    /// The longest wait of any.
    pub longest: Duration,
}

impl Served {
    /// Adds a client whose gap has ended.
    pub fn add(&mut self, gap: &Gap) {
        self.add_wait(gap.longest);
    }

    /// Adds a client by its longest wait.
    pub fn add_wait(&mut self, longest: Duration) {
        self.clients += 1;
        self.every_second += usize::from(longest <= SECOND);
        self.longest = self.longest.max(longest);
    }

    /// Adds a client that asked once and got no answer, however soon it gave up.
    pub fn add_unanswered(&mut self, wait: Duration) {
        self.clients += 1;
        self.longest = self.longest.max(wait);
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            clients: self.clients + other.clients,
            every_second: self.every_second + other.every_second,
            longest: self.longest.max(other.longest),
        }
    }

    /// The fields of a JSON object.
    pub fn json(&self) -> String {
        format!(
            r#""clients":{},"served_every_second":{},"longest_gap_us":{}"#,
            self.clients,
            self.every_second,
            self.longest.as_micros()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn counts_from_the_first_request_that_failed_and_not_what_the_app_took() {
        let (start, mut gap) = (Instant::now(), Gap::default());
        for asked in [0, 400, 800] {
            gap.asks(start + ms(asked));
        }
        gap.is_answered(start + ms(2_500), ms(1_000));
        gap.asks(start + ms(3_000));
        gap.ends(start + ms(3_030));
        let mut served = Served::default();
        served.add(&gap);
        assert_eq!(served, Served { clients: 1, every_second: 0, longest: ms(1_500) });
    }

    #[test]
    fn adds_up_and_takes_a_client_that_never_asked_for_one_that_is_served() {
        let (mut one, mut other) = (Served::default(), Served::default());
        one.add_wait(ms(1_500));
        one.add(&Gap::default());
        other.add_unanswered(ms(3));
        let both = one.plus(other);
        assert_eq!(both.json(), r#""clients":3,"served_every_second":1,"longest_gap_us":1500000"#);
    }
}
