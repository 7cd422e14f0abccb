//! The access log: a line for each request that the application has answered.
//!
//! Lines are made while a request is finished, which costs little, and collected. A thread of its own writes them, a batch
//! at a time: only that thread waits for a disk or a pipe. What does not fit meanwhile is dropped and counted.

mod escape;
mod line;
mod writer;

use std::net::IpAddr;
use std::os::fd::RawFd;

use crate::scoreboard::{Count, Counters};

pub(crate) use line::Line;
use line::{Format, Texts};
use writer::Writer;

/// The format of an access log's lines.
pub use line::Format as LogFormat;

/// Where the access log goes.
#[derive(Clone, Copy, Debug)]
pub struct AccessLogSettings {
    /// A descriptor that others may replace (dup2(2)), and that stays open until the process ends: nobody waits for the thread
    /// that writes.
    pub fd: RawFd,
    /// How its lines look.
    pub format: Format,
    /// The worker's number.
    pub worker: u64,
}

/// A batch that is as long as this goes to the writer at once, in bytes.
const BATCH: usize = 32 * 1024;

/// What is kept while the writer is stuck, in bytes.
const MOST: usize = 1024 * 1024;

/// How old a line gets before it goes to the writer, in milliseconds.
const AGE: u64 = 200;

/// The least time between two warnings, in milliseconds.
const QUIET: u64 = 60_000;

#[derive(Debug)]
pub(crate) struct AccessLog {
    format: Format,
    texts: Texts,
    /// Whole lines, and how many.
    lines: Vec<u8>,
    count: u64,
    /// When the first of these was added, in milliseconds of the monotonic clock.
    since: u64,
    /// Lines that were dropped, and not yet reported.
    dropped: u64,
    next_warning: u64,
    writer: Writer,
}

impl AccessLog {
    pub fn start(settings: &AccessLogSettings, counters: &Counters) -> std::io::Result<Self> {
        Ok(AccessLog {
            format: settings.format,
            texts: Texts::new(settings.worker),
            lines: Vec::new(),
            count: 0,
            since: 0,
            dropped: 0,
            next_warning: 0,
            writer: Writer::start(settings.fd, counters.clone())?,
        })
    }

    /// Adds a line, at this time of the monotonic clock in milliseconds.
    pub fn add(&mut self, line: &Line<'_>, address: Option<IpAddr>, now: u64, counters: &Counters) {
        if self.lines.is_empty() {
            self.since = now;
        } else if self.lines.len() >= BATCH || now >= self.since + AGE {
            self.flush(now, counters);
        }
        if self.lines.len() >= MOST || fastrack_sys::reserve(&mut self.lines, line::LONGEST).is_err() {
            self.dropped += 1;
            counters.add(Count::LogLinesDropped, 1);
            return;
        }
        self.texts.write(self.format, line, address, &mut self.lines);
        self.count += 1;
    }

    /// When the next batch is due, in milliseconds of the monotonic clock.
    pub fn due(&self) -> Option<u64> {
        (!self.lines.is_empty()).then_some(self.since + AGE)
    }

    pub fn flush_if_due(&mut self, now: u64, counters: &Counters) {
        if self.due().is_some_and(|due| due <= now) {
            self.flush(now, counters);
        }
    }

    /// Gives the lines to the writer, unless that is still at the last ones.
    fn flush(&mut self, now: u64, counters: &Counters) {
        if !self.writer.give(&mut self.lines, self.count) {
            // Not with each line.
            self.since = now;
            return;
        }
        self.count = 0;
        self.count_failed(counters);
    }

    fn count_failed(&mut self, counters: &Counters) {
        let failed = self.writer.take_failed();
        self.dropped += failed;
        counters.add(Count::LogLinesDropped, failed);
    }

    /// Writes all lines that wait, for `millis` milliseconds at most. The rest is lost: the process
    /// ends.
    pub fn flush_within(&mut self, millis: u64, counters: &Counters) {
        let end = fastrack_sys::monotonic_millis() + millis;
        while !self.lines.is_empty() || !self.writer.is_done() {
            if !self.lines.is_empty() {
                self.flush(end, counters);
            }
            if fastrack_sys::monotonic_millis() >= end {
                counters.add(Count::LogLinesDropped, std::mem::take(&mut self.count) + self.writer.give_up());
                break;
            }
            self.writer.wait(1);
        }
        self.count_failed(counters);
    }

    /// What is to be said of lines that were dropped, now and then.
    pub fn take_warning(&mut self, now: u64) -> Option<String> {
        if self.dropped == 0 || now < self.next_warning {
            return None;
        }
        self.next_warning = now + QUIET;
        let dropped = std::mem::take(&mut self.dropped);
        let reason = self.writer.error().map_or("it is stuck".into(), |error| error.to_string());
        Some(format!("the access log has not taken {dropped} lines, which are dropped: {reason}"))
    }
}

#[cfg(test)]
mod tests;
