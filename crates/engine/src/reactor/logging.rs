//! Logging: the access log's lines, and warnings for the server's own log.

use std::io;

use fastrack_access_log::{Line, Request, Timings};
use fastrack_http::{error_body, Error, Forwarded, Head, Limits, Status};
use fastrack_sys::{epoch_millis, epoch_seconds, monotonic_millis};

use crate::access_log::AccessLog;
use crate::claim::{ActiveRequest, Claim};
use crate::conn::{Connection, Sent};
use crate::scoreboard::Counters;
use crate::settings::Settings;

/// Milliseconds for the last lines when the process ends in the middle of a request.
pub(super) const CUT_LOG_TIME: u64 = 50;

/// Lines that wait for the log's writer.
#[derive(Debug, Default)]
pub(super) struct Logging {
    access_log: Option<Box<AccessLog>>,
    /// See [`Settings::proxy_listener`].
    proxy_listener: Option<usize>,
    warnings: Vec<String>,
    /// The seconds since 1970 of two last warnings: of a failed call, and of a refused client.
    last_failure: u64,
    last_refusal: u64,
    /// Number of requests that have waited too long, and that no warning has counted yet.
    shed: u64,
}

/// A request that the application has finished.
pub(super) struct Answered<'a> {
    pub status: u16,
    pub sent: &'a Sent,
    /// Time in the application, in microseconds.
    pub duration: u64,
    pub timings: Option<Timings>,
}

impl Logging {
    #[inline]
    pub fn has_access_log(&self) -> bool {
        self.access_log.is_some()
    }

    /// Starts the access log's thread, if there is an access log.
    pub fn start(&mut self, settings: &Settings, counters: &Counters) -> io::Result<()> {
        let log = settings.access_log.as_ref().map(|log| AccessLog::start(log, counters)).transpose()?;
        self.access_log = log.map(Box::new);
        self.proxy_listener = settings.proxy_listener;
        Ok(())
    }

    /// The time at which lines are due to be written, in milliseconds of the monotonic clock.
    pub fn due(&self) -> Option<u64> {
        self.access_log.as_ref().and_then(|log| log.due())
    }

    /// Logs a request that the application has finished, at `now` in milliseconds of the monotonic clock.
    #[inline(never)]
    pub fn log_request(
        &mut self,
        connection: &Connection,
        answered: &Answered<'_>,
        now: u64,
        counters: &Counters,
    ) {
        let (Some(log), Some((head, bytes))) = (&mut self.access_log, connection.head()) else {
            return;
        };
        let Answered { status, sent, duration, timings } = *answered;
        let forwarded = self
            .proxy_listener
            .filter(|own| *own == connection.listener)
            .and_then(|_| Forwarded::of(head, bytes));
        let line = Line {
            request: Request::of(head, bytes),
            address: connection.peer.or(forwarded.map(|client| client.peer)).map(|peer| peer.ip()),
            protocol: forwarded.map(|client| client.protocol),
            status,
            length: sent.passed.saturating_sub(sent.head),
            time: epoch_millis(),
            duration,
            queue_time: sent.queued,
            timings,
        };
        log.add(&line, now, counters);
    }

    /// Logs an overdue request: with 504, or without a status if a part of the response was sent. Only the scoreboard's part of the request
    /// is known.
    pub fn log_overdue(&mut self, request: &ActiveRequest, claim: Claim, counters: &Counters) {
        let Some(log) = &mut self.access_log else { return };
        // The request was answered, and has its line.
        if request.is_in_callbacks() {
            return;
        }
        let bytes = request.as_head();
        let mut head = Head::default();
        if !matches!(head.parse(&bytes, Limits::default()), Ok(Status::Complete)) {
            return;
        }
        let now = monotonic_millis();
        let (is_answered, is_head) = (claim == Claim::Open, head.method.of_buffer(&bytes) == b"HEAD");
        let line = Line {
            request: Request::of(&head, &bytes),
            address: None,
            protocol: None,
            status: if is_answered { Error::Overdue.status() } else { 0 },
            length: if is_answered && !is_head { error_body(Error::Overdue).len() as u64 } else { 0 },
            time: epoch_millis(),
            duration: now.saturating_sub(request.started()) * 1000,
            queue_time: 0,
            timings: None,
        };
        log.add(&line, now, counters);
    }

    pub fn flush_if_due(&mut self, counters: &Counters) {
        let Some(log) = &mut self.access_log else { return };
        let now = monotonic_millis();
        log.flush_if_due(now, counters);
        if let Some(warning) = log.take_warning(now) {
            self.warnings.push(warning);
        }
    }

    pub fn flush_within(&mut self, millis: u64, counters: &Counters) {
        if let Some(log) = &mut self.access_log {
            log.flush_within(millis, counters);
        }
    }

    pub fn warn(&mut self, line: String) {
        self.warnings.push(line);
    }

    /// Warns of a failed call, once per second, because the call may fail again and again.
    pub fn warn_of_failure(&mut self, what: &str, error: &io::Error) {
        let now = epoch_seconds();
        if self.last_failure != now {
            self.last_failure = now;
            self.warn(format!("cannot {what}: {error}"));
        }
    }

    /// Warns why clients are refused, once per second, because there may be many.
    pub fn warn_of_refusal(&mut self, line: String) {
        let now = epoch_seconds();
        if self.last_refusal != now {
            self.last_refusal = now;
            self.warn(line);
        }
    }

    /// Counts a refused request that had waited for longer than `limit` milliseconds.
    pub fn count_shed(&mut self, limit: u64) {
        self.shed += 1;
        self.warn_of_shed(limit);
    }

    /// Warns of the requests that were refused since the last such warning, once per second.
    pub fn warn_of_shed(&mut self, limit: u64) {
        if self.shed == 0 || self.last_refusal == epoch_seconds() {
            return;
        }
        let (requests, has) = if self.shed == 1 { ("request", "has") } else { ("requests", "have") };
        let limit = limit as f64 / 1000.0;
        self.warn_of_refusal(format!(
            "{} {requests} {has} waited for more than {limit} s, and got 503: more workers, or fewer requests",
            self.shed
        ));
        self.shed = 0;
    }

    pub fn has_warnings(&self) -> bool {
        !self.warnings.is_empty()
    }

    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}
