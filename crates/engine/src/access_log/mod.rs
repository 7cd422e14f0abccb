//! The access log: a line for each request that the application has answered.
//!
//! The engine formats a line while it finishes the request, which is cheap, and collects lines into a batch. A thread of the
//! log's own writes one batch at a time, so that only this thread waits for a disk or a pipe. Lines that do not fit into memory
//! meanwhile are dropped and counted.

mod writer;

use std::os::fd::RawFd;
use std::time::Duration;

use fastrack_access_log::{Format, Line, LineWriter, LINE_LIMIT};

use crate::scoreboard::{Count, Counters};
use writer::{Batch, Writer};

/// The format of an access log's lines.
pub use fastrack_access_log::Format as LogFormat;

/// The access log's file and format.
#[derive(Clone, Copy, Debug)]
pub struct AccessLogSettings {
    /// A descriptor that stays open until the process ends, since nobody waits for the writing thread. dup2(2) may replace its
    /// file.
    pub fd: RawFd,
    /// The format of a line.
    pub format: Format,
    /// The worker's number.
    pub worker: u64,
}

/// A batch of this size goes to the writer at once, in bytes.
const BATCH_SIZE: usize = 32 * 1024;

/// The most memory for lines while the writer is stuck, in bytes.
const BATCH_LIMIT: usize = 1024 * 1024;

/// The age of a batch at which it goes to the writer, in milliseconds.
const BATCH_AGE: u64 = 200;

/// The least time between two warnings, in milliseconds.
const WARNING_INTERVAL: u64 = 60_000;

#[derive(Debug)]
pub(crate) struct AccessLog {
    line_writer: LineWriter,
    batch: Batch,
    /// The time of the batch's first line, in milliseconds of the monotonic clock.
    since: u64,
    /// Lines that were dropped since the last warning.
    dropped: u64,
    next_warning: u64,
    writer: Writer,
}

impl AccessLog {
    pub fn start(settings: &AccessLogSettings, counters: &Counters) -> std::io::Result<Self> {
        Ok(AccessLog {
            line_writer: LineWriter::new(settings.format, Some(settings.worker)),
            batch: Batch::default(),
            since: 0,
            dropped: 0,
            next_warning: 0,
            writer: Writer::start(settings.fd, counters.clone())?,
        })
    }

    /// Adds a line. `now` is in milliseconds of the monotonic clock.
    pub fn add(&mut self, line: &Line<'_>, now: u64, counters: &Counters) {
        if self.batch.count == 0 {
            self.since = now;
        } else if self.batch.lines.len() >= BATCH_SIZE || now >= self.since + BATCH_AGE {
            self.flush(now, counters);
        }
        let lines = &mut self.batch.lines;
        if lines.len() >= BATCH_LIMIT || fastrack_sys::reserve(lines, LINE_LIMIT).is_err() {
            self.dropped += 1;
            counters.add(Count::LogLinesDropped, 1);
            return;
        }
        self.line_writer.write(line, lines);
        self.batch.count += 1;
    }

    /// The time at which the batch goes to the writer, in milliseconds of the monotonic clock.
    pub fn due(&self) -> Option<u64> {
        (self.batch.count > 0).then_some(self.since + BATCH_AGE)
    }

    pub fn flush_if_due(&mut self, now: u64, counters: &Counters) {
        if self.due().is_some_and(|due| due <= now) {
            self.flush(now, counters);
        }
    }

    /// Gives the batch to the writer. While the writer is busy, the batch stays for another `BATCH_AGE`.
    fn flush(&mut self, now: u64, counters: &Counters) {
        if !self.writer.give(&mut self.batch) {
            self.since = now;
        }
        self.count_failed(counters);
    }

    fn count_failed(&mut self, counters: &Counters) {
        let failed = self.writer.take_failed();
        self.dropped += failed;
        counters.add(Count::LogLinesDropped, failed);
    }

    /// Writes all lines, within `millis` milliseconds. The process ends after that, and the remaining lines are lost.
    pub fn flush_within(&mut self, millis: u64, counters: &Counters) {
        let end = fastrack_sys::monotonic_millis() + millis;
        while !self.writer.is_done() || self.batch.count > 0 {
            if self.batch.count > 0 {
                self.flush(end, counters);
            }
            if fastrack_sys::monotonic_millis() >= end {
                let lost = std::mem::take(&mut self.batch.count) + self.writer.pending();
                counters.add(Count::LogLinesDropped, lost);
                break;
            }
            self.writer.wait(Duration::from_millis(1));
        }
        self.count_failed(counters);
    }

    /// A warning about dropped lines, once in a while.
    pub fn take_warning(&mut self, now: u64) -> Option<String> {
        if self.dropped == 0 || now < self.next_warning {
            return None;
        }
        self.next_warning = now + WARNING_INTERVAL;
        let dropped = std::mem::take(&mut self.dropped);
        let reason = self.writer.take_error().map_or("it is stuck".into(), |error| error.to_string());
        Some(format!("the access log has not taken {dropped} lines, which are dropped: {reason}"))
    }
}

#[cfg(test)]
mod tests;
