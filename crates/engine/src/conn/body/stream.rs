//! A body that the application reads while it arrives. Received bytes move here from the read buffer of the connection,
//! and are decoded. Nothing goes to a file.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrack_http::{Error, Expectation, Status};
use fastrack_sys::{append, monotonic_millis};

use super::framing::{check_after_body, may_be_followed, send_continue, Frame};
use crate::claim::ActiveRequest;
use crate::conn::read_buf::{receive, ReadBuf, Received};
use crate::control::Control;
use crate::settings::{Settings, STOP_TIME};

/// Bytes of an unread body that are received and discarded, without waiting, to keep the connection.
const MAX_SKIPPED: usize = 64 * 1024;

/// Bytes of a body that [`read_ahead`](BodyStream::read_ahead) buffers.
const MAX_READ_AHEAD: usize = 1024 * 1024;

/// Why a body cannot be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The client closed the connection before the end.
    Gone,
    /// The client sent an invalid body, or was too slow.
    Refused(Error),
}

impl fmt::Display for BodyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Gone => out.write_str("the client has gone before the end of the body"),
            BodyError::Refused(error) => error.fmt(out),
        }
    }
}

/// The result of one [`BodyStream::read`](BodyStream::read).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRead {
    /// Bytes were passed to the caller.
    Taken,
    /// The client must send something first: [wait](BodyStream::wait), then try again.
    Blocked,
    /// End of the body.
    End,
}

/// The result of one [`BodyStream::read_ahead`](BodyStream::read_ahead).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    /// The whole body has been received.
    Whole,
    /// The client must send something first: [wait](BodyStream::wait), then try again.
    Blocked,
    /// The unread part of the body exceeds the buffer.
    TooMuch,
}

#[derive(Debug)]
pub(in crate::conn) struct BodyReader {
    frame: Frame,
    /// Decoded data, unread from `at` on.
    decoded: Vec<u8>,
    at: usize,
    /// The bytes after the body: the next request.
    rest: Vec<u8>,
    /// The bytes of one receive; empty between two calls.
    received: Vec<u8>,
    complete: bool,
    failure: Option<BodyError>,
    /// The client waits for 100 Continue (RFC 9110 §10.1.1).
    awaits_continue: bool,
    may_be_followed: bool,
    max: Option<u64>,
    /// How long the client may send nothing, in milliseconds.
    timeout: u64,
    /// The time since which the client has sent nothing, in milliseconds of the monotonic clock.
    stalled: Option<u64>,
    /// The timeout was shortened because the engine is stopping.
    timeout_cut: bool,
    last_read_was_full: bool,
    /// Bytes received since the last [`take_received`](Self::take_received).
    received_bytes: u64,
    active: Arc<ActiveRequest>,
    control: Arc<Control>,
}

impl BodyReader {
    /// Takes the received part of the body out of the buffer.
    pub fn new(
        buf: &mut ReadBuf,
        settings: &Settings,
        active: &Arc<ActiveRequest>,
        control: &Arc<Control>,
    ) -> Self {
        let received = buf.bytes.split_off(buf.head.len);
        let mut reader = BodyReader {
            frame: Frame::of(&buf.head),
            decoded: Vec::new(),
            at: 0,
            rest: Vec::new(),
            complete: false,
            failure: None,
            awaits_continue: received.is_empty() && buf.head.expectation == Expectation::Continue,
            received,
            may_be_followed: may_be_followed(buf),
            max: settings.max_body,
            timeout: settings.body_timeout,
            stalled: None,
            timeout_cut: false,
            last_read_was_full: false,
            received_bytes: 0,
            active: Arc::clone(active),
            control: Arc::clone(control),
        };
        reader.take_in();
        reader
    }

    fn discard_decoded(&mut self) {
        self.decoded.clear();
        self.at = 0;
    }

    /// Receives once. Sends 100 Continue if nothing arrives and the client waits for it.
    fn receive_or_ask(&mut self, fd: BorrowedFd<'_>) -> Option<usize> {
        let got = self.receive(fd);
        if got.is_none() && std::mem::take(&mut self.awaits_continue) {
            send_continue(fd);
        }
        got
    }

    /// Receives once; None if nothing has arrived.
    fn receive(&mut self, fd: BorrowedFd<'_>) -> Option<usize> {
        let most = self.frame.next_read();
        let received = receive(fd, &mut self.received, most);
        let got = self.received.len();
        self.last_read_was_full = got == most;
        self.received_bytes += got as u64;
        match received {
            Received::Nothing => return None,
            Received::End => self.failure = Some(BodyError::Gone),
            Received::NoMemory => self.failure = Some(BodyError::Refused(Error::Memory)),
            Received::Bytes(_) => self.take_in(),
        }
        self.stalled = None;
        self.awaits_continue = false;
        Some(got)
    }

    fn take_in(&mut self) {
        let taken =
            self.frame.take(&self.received, self.max, &mut self.decoded).and_then(|(status, used)| {
                self.complete = status == Status::Complete;
                if self.complete {
                    append(&mut self.rest, &self.received[used..]).map_err(|_| Error::Memory)?;
                    check_after_body(&self.rest, self.may_be_followed)?;
                }
                Ok(())
            });
        self.received.clear();
        self.failure = taken.err().map(BodyError::Refused);
    }

    /// Receives the rest of the body without waiting, and discards or buffers it. Returns false if the rest is long or
    /// has not arrived.
    pub fn receive_rest(&mut self, fd: BorrowedFd<'_>, discard: bool) -> bool {
        let mut ahead = if discard { 0 } else { self.decoded.len() - self.at };
        while !self.complete && self.failure.is_none() && ahead <= MAX_SKIPPED {
            if discard {
                self.discard_decoded();
            }
            let Some(got) = self.receive(fd) else { break };
            ahead += got;
        }
        self.complete && self.failure.is_none()
    }

    pub fn failure(&self) -> Option<BodyError> {
        self.failure
    }

    /// Whether the kernel may hold unread bytes of this client.
    pub fn may_have_unread(&self) -> bool {
        self.last_read_was_full || !self.complete
    }

    /// Returns the number of bytes received since the last call.
    pub fn take_received(&mut self) -> u64 {
        std::mem::take(&mut self.received_bytes)
    }

    pub fn rest(&mut self) -> &mut Vec<u8> {
        &mut self.rest
    }
}

/// A body that is still arriving. Only [`wait`](Self::wait) blocks: run it where other threads may run.
#[derive(Clone, Copy, Debug)]
pub struct BodyStream<'a> {
    fd: BorrowedFd<'a>,
    /// Never contended: one thread at a time serves the request.
    reader: &'a Mutex<BodyReader>,
}

impl<'a> BodyStream<'a> {
    pub(in crate::conn) fn new(fd: BorrowedFd<'a>, reader: &'a Mutex<BodyReader>) -> Self {
        BodyStream { fd, reader }
    }

    fn reader(&self) -> MutexGuard<'_, BodyReader> {
        // After a panic bytes may be read twice, but the request is over.
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes between 1 and `most` bytes (not 0) to `take`, without blocking. `take` must not use this stream.
    ///
    /// # Errors
    /// After all valid data: the client is gone, too slow, or has sent an invalid body. Each later read
    /// returns the same error.
    pub fn read(&self, most: usize, take: &mut dyn FnMut(&[u8])) -> Result<BodyRead, BodyError> {
        let mut reader = self.reader();
        loop {
            let (at, end) = (reader.at, reader.decoded.len());
            if at < end {
                reader.at = end.min(at.saturating_add(most));
                take(&reader.decoded[at..reader.at]);
                return Ok(BodyRead::Taken);
            }
            reader.discard_decoded();
            if let Some(failure) = reader.failure {
                return Err(failure);
            }
            if reader.complete {
                return Ok(BodyRead::End);
            }
            if reader.receive_or_ask(self.fd).is_none() {
                return Ok(BodyRead::Blocked);
            }
        }
    }

    /// Receives and buffers the rest of the body, without blocking.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn read_ahead(&self) -> Result<ReadAhead, BodyError> {
        let mut reader = self.reader();
        loop {
            if let Some(failure) = reader.failure {
                return Err(failure);
            }
            if reader.complete {
                return Ok(ReadAhead::Whole);
            }
            if reader.decoded.len() - reader.at > MAX_READ_AHEAD {
                return Ok(ReadAhead::TooMuch);
            }
            if reader.receive_or_ask(self.fd).is_none() {
                return Ok(ReadAhead::Blocked);
            }
        }
    }

    /// Passes the bytes after the body to `look`, which must not use this stream.
    pub fn peek_pipelined(&self, look: &mut dyn FnMut(&[u8])) {
        look(self.reader().rest());
    }

    /// Notes that the application has sent 100 Continue.
    pub fn set_continued(&self) {
        self.reader().awaits_continue = false;
    }

    /// Blocks until bytes or a signal arrive. After the whole timeout the next read fails.
    pub fn wait(&self) {
        let mut guard = self.reader();
        let reader = &mut *guard;
        if reader.control.is_closed() {
            // In a forked child the client belongs to the parent.
            reader.failure = Some(BodyError::Gone);
            return;
        }
        if reader.control.is_stopping() && !reader.timeout_cut {
            reader.timeout_cut = true;
            reader.timeout = reader.timeout.min(STOP_TIME);
            reader.stalled = None;
        }
        let now = monotonic_millis();
        let waited = now.saturating_sub(*reader.stalled.get_or_insert(now));
        if waited >= reader.timeout {
            reader.failure = Some(BodyError::Refused(Error::Timeout));
            return;
        }
        let left = reader.timeout - waited;
        if reader.active.while_stopped(|| fastrack_sys::wait_readable(self.fd, left)).is_err() {
            reader.failure = Some(BodyError::Gone);
        }
    }

    /// Whether the rest of the body is short and has arrived. The client gets no 100 Continue after this call.
    pub(in crate::conn) fn is_almost_read(&self) -> bool {
        let mut reader = self.reader();
        reader.awaits_continue = false;
        reader.receive_rest(self.fd, false)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
