//! Writes the access log, in a thread of its own.

use std::io;
use std::os::fd::RawFd;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::time::Duration;

use crate::scoreboard::{Count, Counters};
use fastrack_access_log::LINE_LIMIT;
use fastrack_sys::{borrow_fd, is_regular, spawn_thread, write_once};

/// Whole lines.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub lines: Vec<u8>,
    pub count: u64,
}

/// The thread's answer to a batch.
#[derive(Debug)]
struct Written {
    /// The batch's buffer, for the next one.
    lines: Vec<u8>,
    /// Lines that could not be written, and the reason.
    failure: Option<(u64, io::ErrorKind)>,
}

/// The engine's side of the thread. The thread gets one batch at a time.
#[derive(Debug)]
pub(super) struct Writer {
    /// None after `drop`.
    channels: Option<(SyncSender<Batch>, Receiver<Written>)>,
    /// Lines of the batch that the thread has. None: the thread waits.
    pending: Option<u64>,
    spare: Vec<u8>,
    /// Lines that could not be written, since `take_failed` was last called.
    failed: u64,
    error: Option<io::ErrorKind>,
    pid: u32,
}

impl Writer {
    /// Starts the thread, with all signals blocked in the thread. The process must not fork itself later. The thread counts the
    /// lines that are written. Nobody joins the thread, since a disk may keep it waiting for ever.
    ///
    /// # Errors
    ///
    /// The system has no thread to give (pthread_create(3)).
    pub fn start(fd: RawFd, counters: Counters) -> io::Result<Self> {
        let (batches, waiting) = sync_channel(1);
        let (answers, written) = sync_channel(1);
        drop(spawn_thread("fastrack log", move || run(&waiting, &answers, fd, &counters))?);
        Ok(Writer {
            channels: Some((batches, written)),
            pending: None,
            spare: Vec::new(),
            failed: 0,
            error: None,
            pid: std::process::id(),
        })
    }

    /// Takes the batch, and leaves an empty one. False: the thread still writes the last one.
    pub fn give(&mut self, batch: &mut Batch) -> bool {
        if !self.is_done() {
            return false;
        }
        let given = std::mem::replace(batch, Batch { lines: std::mem::take(&mut self.spare), count: 0 });
        let count = given.count;
        let is_sent = self.channels.as_ref().is_some_and(|(batches, _)| batches.try_send(given).is_ok());
        if is_sent {
            self.pending = Some(count);
        } else {
            // The thread has panicked.
            self.fail(count, io::ErrorKind::BrokenPipe);
        }
        true
    }

    /// Whether the thread waits for a batch. In a forked child, which has no such thread, it never does.
    pub fn is_done(&mut self) -> bool {
        self.wait(Duration::ZERO);
        self.pending.is_none() && self.pid == std::process::id()
    }

    /// Waits until the thread has written the batch, for `time` at most.
    pub fn wait(&mut self, time: Duration) {
        if self.pending.is_none() || self.pid != std::process::id() {
            return;
        }
        let written = self.channels.as_ref().and_then(|(_, written)| written.recv_timeout(time).ok());
        if let Some(Written { mut lines, failure }) = written {
            self.pending = None;
            lines.clear();
            self.spare = lines;
            if let Some((lines, error)) = failure {
                self.fail(lines, error);
            }
        }
    }

    fn fail(&mut self, lines: u64, error: io::ErrorKind) {
        self.failed += lines;
        self.error = Some(error);
    }

    /// Lines that the thread has yet to write.
    pub fn pending(&self) -> u64 {
        self.pending.unwrap_or(0)
    }

    /// Lines that could not be written, since the last call.
    pub fn take_failed(&mut self) -> u64 {
        std::mem::take(&mut self.failed)
    }

    /// The reason of the last failure, once.
    pub fn take_error(&mut self) -> Option<io::ErrorKind> {
        self.error.take()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // At a fork the thread may have had a lock of the channels: a forked child leaks its copies.
        if self.pid != std::process::id() {
            std::mem::forget(self.channels.take());
        }
    }
}

fn run(batches: &Receiver<Batch>, written: &SyncSender<Written>, fd: RawFd, counters: &Counters) {
    let mut is_torn = false;
    while let Ok(Batch { lines, count }) = batches.recv() {
        let failure = write(&lines, fd, &mut is_torn);
        counters.add(Count::LogLines, count - failure.map_or(0, |(failed, _)| failed.min(count)));
        if written.send(Written { lines, failure }).is_err() {
            return;
        }
    }
}

/// Writes whole lines, each group of them with one write(2): lines of several workers do not mix. Returns how many lines could not
/// be written, and why. A full disk may take a part of a line: a line feed then ends the part before the next line.
fn write(lines: &[u8], fd: RawFd, is_torn: &mut bool) -> Option<(u64, io::ErrorKind)> {
    // SAFETY: the descriptor stays open until the process ends, see `AccessLogSettings`: this thread may outlive the engine.
    let file = match unsafe { borrow_fd(fd) } {
        Ok(file) => file,
        Err(error) => return Some((line_count(lines), error.kind())),
    };
    let is_file = is_regular(file);
    if *is_torn {
        *is_torn = write_once(file, b"\n").is_err();
    }
    let mut rest = lines;
    while !rest.is_empty() {
        let part = if is_file { rest.len() } else { whole_lines(rest) };
        match write_once(file, &rest[..part]) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The reader of a pipe may be slow: this thread waits.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let _ = fastrack_sys::wait_writable(file, 1_000);
            }
            Err(error) => {
                *is_torn |= lines.len() > rest.len() && lines[lines.len() - rest.len() - 1] != b'\n';
                return Some((line_count(rest), error.kind()));
            }
        }
    }
    None
}

/// The length of the lines that a pipe takes as a whole.
fn whole_lines(lines: &[u8]) -> usize {
    let end = lines.len().min(LINE_LIMIT);
    lines[..end].iter().rposition(|byte| *byte == b'\n').map_or(end, |at| at + 1)
}

fn line_count(lines: &[u8]) -> u64 {
    lines.iter().filter(|byte| **byte == b'\n').count() as u64
}
