//! The time that a request waits for the application.
//!
//! A router may report the time at which it received the request, in `X-Request-Start` or `X-Queue-Start`: the time
//! since 1970 in seconds, milliseconds or microseconds, with or without `t=`. This server knows when the request became
//! readable. The longer of both waits counts, so a client cannot shorten its wait by such a field.
//!
//! The time in which the client sent its body is no queue time: the application could not have begun. Puma calls that
//! time `puma.request_body_wait`.

use fastrack_http::{Head, KnownName};
use fastrack_sys::epoch_micros;

/// The earliest time of a router, in seconds since 1970: the year 2000. A number above a thousand times this is in
/// milliseconds, and so on.
const EARLIEST_ROUTER_TIME: f64 = 946_684_800.0;

/// The longest wait that is believed, in microseconds: a day. A longer one comes from a wrong clock.
const MAX_QUEUE_MICROS: f64 = 86_400e6;

/// When a request arrived, and how long its body took. All times are in milliseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// When the request became readable, plus the time for the body; 0 without a request, or if unknown.
    pub at: u64,
    /// When the wait for the rest of the body began; 0 if the body came with the head.
    pub body_since: u64,
    /// How long the server waited for the rest of the body.
    pub body_wait: u64,
}

impl Arrival {
    /// The head is complete at `now`, and a part of the body is missing.
    pub fn wait_for_body(&mut self, now: u64) {
        if self.body_since == 0 {
            self.body_since = now;
            self.at = if self.at == 0 { now } else { self.at };
        }
    }

    /// The last part of the body arrived at `time`.
    pub fn end_body(&mut self, time: u64) {
        if self.body_since != 0 {
            self.body_wait = time.saturating_sub(self.body_since);
            self.at += self.body_wait;
        }
    }

    /// The next request was received together with this one.
    pub fn begin_pipelined(&mut self) {
        if self.body_since != 0 {
            (self.body_since, self.body_wait) = (0, 0);
        }
    }
}

/// How long the request has waited at `now`, in microseconds, without the time for its body.
#[inline]
pub(crate) fn queue_time(head: &Head, bytes: &[u8], arrival: &Arrival, now: u64) -> u64 {
    let own = if arrival.at == 0 { 0 } else { now.saturating_sub(arrival.at) * 1000 };
    if head.has(KnownName::XRequestStart) || head.has(KnownName::XQueueStart) {
        let since_router = since_router(head, bytes, epoch_micros()).unwrap_or_default();
        return own.max(since_router.saturating_sub(arrival.body_wait * 1000));
    }
    own
}

#[cold]
fn since_router(head: &Head, bytes: &[u8], now: u64) -> Option<u64> {
    [KnownName::XRequestStart, KnownName::XQueueStart].into_iter().find_map(|name| {
        let field = head.fields.iter().find(|field| field.known == Some(name))?;
        let waited = now as f64 - micros(field.value.of_buffer(bytes))?;
        (0.0..=MAX_QUEUE_MICROS).contains(&waited).then_some(waited.round() as u64)
    })
}

/// Parses a time since 1970, in microseconds; None for any other text.
fn micros(value: &[u8]) -> Option<f64> {
    // The first router of several counts.
    let value = value.split(|byte| *byte == b',').next()?.trim_ascii();
    let digits = value.strip_prefix(b"t=").unwrap_or(value);
    if digits.len() > 32 || !digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') {
        return None;
    }
    let number: f64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let units = [(1.0, 1e6), (1e3, 1e3), (1e6, 1.0), (1e9, 1e-3)];
    units
        .into_iter()
        .rev()
        .find(|(factor, _)| number >= EARLIEST_ROUTER_TIME * factor)
        .map(|(_, unit)| number * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &str) -> (Head, Vec<u8>) {
        let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n").into_bytes();
        let mut head = Head::default();
        head.parse(&bytes, fastrack_http::Limits::default()).expect("a good head");
        (head, bytes)
    }

    fn at(time: u64) -> Arrival {
        Arrival { at: time, ..Arrival::default() }
    }

    fn waited(fields: &str) -> Option<u64> {
        let (head, bytes) = head(fields);
        since_router(&head, &bytes, 1_512_379_168_000_000)
    }

    #[test]
    fn a_router_may_say_seconds_milliseconds_microseconds_or_nanoseconds() {
        for value in
            ["t=1512379167.574", "1512379167.574", "1512379167574", "t=1512379167574", "t=1512379167574000"]
        {
            assert_eq!(waited(&format!("X-Request-Start: {value}\r\n")), Some(426_000), "{value}");
        }
        for value in ["t=1512379167.574, t=1512379167.9", "1512379167574000", "1512379167574000000"] {
            assert_eq!(waited(&format!("X-Queue-Start: {value}\r\n")), Some(426_000), "{value}");
        }
        assert_eq!(
            waited("x-request-start: t=1512379167\r\nX-Queue-Start: t=1512379160\r\n"),
            Some(1_000_000)
        );
    }

    #[test]
    fn nonsense_and_the_future_are_ignored() {
        for value in [
            "",
            "t=",
            "t=abc",
            "-1",
            "1",
            "1e12",
            "inf",
            "NaN",
            "t=1512379168.001",
            "t=1512292767.9",
            "1.2.3",
            "t=t=1",
        ] {
            assert_eq!(waited(&format!("X-Request-Start: {value}\r\n")), None, "{value}");
        }
        assert_eq!(waited(&format!("X-Request-Start: {}\r\n", "9".repeat(40))), None);
        assert_eq!(waited("X-Request-Start: t=1512292768\r\n"), Some(86_400_000_000));
        assert_eq!(waited("X-Request-Start: x\r\nX-Queue-Start: t=1512379167.5\r\n"), Some(500_000));
    }

    #[test]
    fn a_field_makes_a_wait_longer_and_never_shorter() {
        let micros = |ahead: i64| epoch_micros().saturating_add_signed(ahead * 1_000_000);
        for (ahead, expected) in [(0, 5_000), (2, 5_000), (-60, 60_000_000)] {
            for name in ["X-Request-Start", "X-Queue-Start"] {
                let (head, bytes) = head(&format!("{name}: t={}\r\n", micros(ahead)));
                let waited = queue_time(&head, &bytes, &at(1_007), 1_012);
                // The clock advances during the test.
                assert!((expected..expected + 5_000_000).contains(&waited), "{ahead}: {waited}");
            }
        }
        let (head, bytes) = head(&format!("X-Request-Start: t={}\r\n", micros(0)));
        assert_eq!(queue_time(&head, &bytes, &at(7), 60_007), 60_000_000);
    }

    #[test]
    fn without_a_router_it_is_the_time_since_the_request_became_readable() {
        let (head, bytes) = head("");
        assert_eq!(queue_time(&head, &bytes, &at(7), 12), 5_000);
        assert_eq!((queue_time(&head, &bytes, &at(0), 12), queue_time(&head, &bytes, &at(13), 12)), (0, 0));
    }

    #[test]
    fn the_time_for_the_body_is_no_queue_time() {
        // Readable at 1,000 ms and read at 1,200 ms; the body ends at 5,200 ms.
        let mut arrival = at(1_000);
        arrival.wait_for_body(1_200);
        arrival.wait_for_body(3_000);
        arrival.end_body(5_200);
        assert_eq!((arrival.at, arrival.body_wait), (5_000, 4_000));
        let (plain, bytes) = head("");
        assert_eq!(queue_time(&plain, &bytes, &arrival, 5_500), 500_000);
        // The router saw the head 4.6 s ago.
        let (head, bytes) = head(&format!("X-Request-Start: t={}\r\n", epoch_micros() - 4_600_000));
        let waited = queue_time(&head, &bytes, &arrival, 5_200);
        assert!((600_000..2_000_000).contains(&waited), "{waited}");
        arrival.begin_pipelined();
        assert_eq!(arrival, at(5_000));
    }

    #[test]
    fn a_body_that_comes_with_the_head_has_no_time_of_its_own() {
        let mut arrival = at(7);
        arrival.end_body(12);
        assert_eq!(arrival, at(7));
        let mut unknown = at(0);
        unknown.wait_for_body(5);
        unknown.end_body(9);
        assert_eq!((unknown.at, unknown.body_wait), (9, 4));
    }
}
