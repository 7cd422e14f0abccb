//! The access log's part in answering requests.

use std::io;

use fastrack_http::{error_body, Error, Head, Limits, Status};
use fastrack_sys::{epoch_millis, monotonic_micros, monotonic_millis};

use super::Reactor;
use crate::access_log::{AccessLog, Line};
use crate::claim::{ActiveRequest, Claim};
use crate::conn::{Connection, Sent};

/// How long the last lines are waited for when the process ends in a request, in milliseconds.
pub(super) const LOG_TIME: u64 = 50;

impl Reactor {
    /// Starts the log's thread.
    pub fn start_log(&mut self) -> io::Result<()> {
        let log = self
            .settings
            .access_log
            .as_ref()
            .map(|log| AccessLog::start(log, self.control.counters()))
            .transpose()?;
        self.access_log = log.map(Box::new);
        Ok(())
    }

    #[inline]
    pub fn is_logging(&self) -> bool {
        self.access_log.is_some()
    }

    /// Logs a request that the application is done with, at this time of the monotonic clock in milliseconds.
    #[inline(never)]
    pub(super) fn log_request(&mut self, connection: &Connection, status: u16, sent: &Sent, now: u64) {
        let (Some(log), Some((head, bytes))) = (&mut self.access_log, connection.head()) else {
            return;
        };
        let line = Line {
            head,
            bytes,
            status,
            length: sent.passed.saturating_sub(sent.head),
            time: epoch_millis(),
            duration: monotonic_micros().saturating_sub(sent.began),
            queue_time: sent.queued,
        };
        log.add(&line, connection.peer.map(|peer| peer.ip()), now, self.control.counters());
    }

    /// Logs an overdue request: with 504, or without a status where a part of the response had been sent. No more is known of it
    /// than the scoreboard has.
    pub fn log_overdue(&mut self, request: &ActiveRequest, claim: Claim) {
        let Some(log) = &mut self.access_log else { return };
        // It was answered, and has its line.
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
            head: &head,
            bytes: &bytes,
            status: if is_answered { Error::Overdue.status() } else { 0 },
            length: if is_answered && !is_head { error_body(Error::Overdue).len() as u64 } else { 0 },
            time: epoch_millis(),
            duration: now.saturating_sub(request.started()) * 1000,
            queue_time: 0,
        };
        log.add(&line, None, now, self.control.counters());
    }

    /// Passes on lines that are old enough, and says what was lost.
    pub fn tend_log(&mut self) {
        let Some(log) = &mut self.access_log else { return };
        let now = monotonic_millis();
        log.flush_if_due(now, self.control.counters());
        if let Some(warning) = log.take_warning(now) {
            self.warnings.push(warning);
        }
    }

    /// Writes all lines that wait, for `millis` milliseconds at most.
    pub fn flush_log(&mut self, millis: u64) {
        if let Some(log) = &mut self.access_log {
            log.flush_within(millis, self.control.counters());
        }
    }
}
