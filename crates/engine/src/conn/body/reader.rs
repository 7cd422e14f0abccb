//! A request's body that the application reads while it comes in.
//!
//! What has been received of it leaves the connection's input and is decoded
//! here; nothing of it goes to a file. Nothing here blocks but
//! [`BodyStream::wait`], which is to be run where other threads may go on.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fastrack_http::{ChunkedDecoder, Error, Expectation, Framing, Status};

use crate::conn::body::buffered::{check_length, goes_on, nothing_beyond, BEYOND, LONG_READ};
use crate::conn::read_buf::Input;
use crate::control::Control;
use crate::settings::Settings;

/// So much of a body that nobody has read is received for the sake of the connection, which could not go on without,
/// in bytes. It must have come already: nobody waits for it.
const PASSED_OVER: usize = 64 * 1024;

/// So much of a body is received ahead of the application for the sake of whoever takes the connection over, in bytes.
const READ_AHEAD: usize = 1024 * 1024;

/// Why a body cannot be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The client has closed the connection before the end.
    Gone,
    /// The client has broken a rule, or was too slow.
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

/// What one call of [`BodyStream::read`] has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyRead {
    /// There was something to read.
    Taken,
    /// The client must send something first: [wait](BodyStream::wait), then try again.
    Blocked,
    /// The body has been read whole.
    End,
}

/// What one call of [`BodyStream::read_ahead`] has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    /// The body has come whole; what was received after it is known.
    Whole,
    /// The client must send something first: [wait](BodyStream::wait), then try again.
    Blocked,
    /// So much of it has not been read that no more of it is kept.
    TooMuch,
}

/// Where the end of the body is.
#[derive(Debug)]
enum Frame {
    /// After so many bytes more.
    Length(u64),
    /// Where the chunks say; the length so far.
    Chunked(Box<ChunkedDecoder>, u64),
}

/// A body under way: what was received and not read yet, and how to tell its end.
#[derive(Debug)]
pub(crate) struct BodyReader {
    frame: Frame,
    /// What of it is ready to be read, from `at` on.
    decoded: Vec<u8>,
    at: usize,
    /// What came after the body: the next request.
    pub(crate) rest: Vec<u8>,
    /// Chunks on their way to be decoded; empty between two calls.
    received: Vec<u8>,
    complete: bool,
    pub(crate) failure: Option<BodyError>,
    /// The client waits to be asked for the body (RFC 9110 §10.1.1).
    awaits_continue: bool,
    /// Whether another request may follow on the connection.
    goes_on: bool,
    most: Option<u64>,
    /// How long the client may send nothing, in milliseconds, and since when it has sent nothing.
    pub(crate) timeout: u64,
    pub(crate) stalled: Option<u64>,
    /// The engine is stopping, and the client has had its time cut.
    pub(crate) stopping: bool,
    /// The last receive gave all that was asked for.
    brim: bool,
    pub(crate) control: Arc<Control>,
}

/// Whether the body that a head announces is still to come, at least in part. An error in what has come is told.
pub(crate) fn is_under_way(input: &Input, settings: &Settings) -> Result<bool, Error> {
    let received = &input.bytes[input.head.len..];
    match input.head.framing {
        Framing::None | Framing::Length(0) => Ok(false),
        Framing::Length(length) => {
            check_length(length, settings.max_body)?;
            Ok((received.len() as u64) < length)
        }
        Framing::Chunked => {
            let mut total = 0;
            let (status, _) = ChunkedDecoder::default().decode(received, |data| {
                total += data.len() as u64;
                check_length(total, settings.max_body)
            })?;
            Ok(status == Status::Partial)
        }
    }
}

impl BodyReader {
    /// Takes what was received of the body out of the input.
    pub fn new(input: &mut Input, settings: &Settings, control: Arc<Control>) -> Self {
        let received = input.bytes.split_off(input.head.len);
        let frame = match input.head.framing {
            Framing::Chunked => Frame::Chunked(Box::default(), 0),
            Framing::Length(length) => Frame::Length(length),
            Framing::None => Frame::Length(0),
        };
        let mut reader = BodyReader {
            frame,
            decoded: Vec::new(),
            at: 0,
            rest: Vec::new(),
            received: Vec::new(),
            complete: false,
            failure: None,
            awaits_continue: received.is_empty() && input.head.expectation == Expectation::Continue,
            goes_on: goes_on(input, settings),
            most: settings.max_body,
            timeout: settings.body_timeout,
            stalled: None,
            stopping: false,
            brim: false,
            control,
        };
        let got = received.len();
        *reader.target() = received;
        reader.digest(got);
        reader
    }

    /// Where received bytes go.
    fn target(&mut self) -> &mut Vec<u8> {
        match self.frame {
            Frame::Length(_) => &mut self.decoded,
            Frame::Chunked(..) => &mut self.received,
        }
    }

    /// Gives at most `most` bytes of what is there to `take`; receives only when nothing is.
    pub fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        most: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<BodyRead, BodyError> {
        loop {
            if self.at < self.decoded.len() {
                let end = self.decoded.len().min(self.at.saturating_add(most));
                take(&self.decoded[self.at..end]);
                self.at = end;
                return Ok(BodyRead::Taken);
            }
            self.forget_read();
            if let Some(failure) = self.failure {
                return Err(failure);
            }
            if self.complete {
                return Ok(BodyRead::End);
            }
            if self.receive(fd).is_none() {
                self.send_continue(fd);
                return Ok(BodyRead::Blocked);
            }
        }
    }

    fn forget_read(&mut self) {
        self.decoded.clear();
        self.at = 0;
    }

    /// Tells the client to send the body, once. If it does not get through, the client sends it anyway after a while.
    fn send_continue(&mut self, fd: BorrowedFd<'_>) {
        if std::mem::take(&mut self.awaits_continue) {
            let _ = fastrack_sys::send(fd, b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    /// One receive, and what comes of it; None when the client has sent nothing.
    fn receive(&mut self, fd: BorrowedFd<'_>) -> Option<usize> {
        let most = match self.frame {
            Frame::Length(left) => {
                usize::try_from(left).unwrap_or(LONG_READ).saturating_add(BEYOND).min(LONG_READ)
            }
            Frame::Chunked(..) => LONG_READ,
        };
        let got = loop {
            match fastrack_sys::recv(fd, self.target(), most) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.brim = false;
                    return None;
                }
                result => break result.unwrap_or(0),
            }
        };
        self.brim = got == most;
        self.stalled = None;
        self.awaits_continue = false;
        if got == 0 {
            self.failure = Some(BodyError::Gone);
        } else {
            self.digest(got);
        }
        Some(got)
    }

    /// Takes in the last `got` bytes of the target.
    fn digest(&mut self, got: usize) {
        if let Err(error) = self.take_in(got) {
            self.failure = Some(BodyError::Refused(error));
        }
    }

    fn take_in(&mut self, got: usize) -> Result<(), Error> {
        match &mut self.frame {
            Frame::Length(left) => {
                let due = usize::try_from(*left).unwrap_or(usize::MAX).min(got);
                *left -= due as u64;
                self.complete = *left == 0;
                self.rest = self.decoded.split_off(self.decoded.len() - (got - due));
            }
            Frame::Chunked(decoder, total) => {
                let (decoded, most) = (&mut self.decoded, self.most);
                let decoding = decoder.decode(&self.received, |data| {
                    *total += data.len() as u64;
                    check_length(*total, most)?;
                    decoded.extend_from_slice(data);
                    Ok::<_, Error>(())
                });
                if let Ok((Status::Complete, used)) = decoding {
                    self.complete = true;
                    self.rest.extend_from_slice(&self.received[used..]);
                }
                self.received.clear();
                let _ = decoding?;
            }
        }
        if self.complete && !self.goes_on {
            let _ = nothing_beyond(&self.rest)?;
        }
        Ok(())
    }

    /// Receives the body to its end, and keeps what has not been read.
    pub fn read_ahead(&mut self, fd: BorrowedFd<'_>) -> Result<ReadAhead, BodyError> {
        loop {
            if let Some(failure) = self.failure {
                return Err(failure);
            }
            if self.complete {
                return Ok(ReadAhead::Whole);
            }
            if self.decoded.len() - self.at > READ_AHEAD {
                return Ok(ReadAhead::TooMuch);
            }
            if self.receive(fd).is_none() {
                self.send_continue(fd);
                return Ok(ReadAhead::Blocked);
            }
        }
    }

    /// Whether the whole body has come, as far as a little of it is fetched ahead. The response is about to begin: from
    /// here on nobody asks the client for the body.
    pub fn is_in_reach(&mut self, fd: BorrowedFd<'_>) -> bool {
        self.awaits_continue = false;
        let mut ahead = self.decoded.len() - self.at;
        while self.is_wanting() && ahead <= PASSED_OVER {
            let Some(got) = self.receive(fd) else { break };
            ahead += got;
        }
        self.is_whole()
    }

    /// Discards what is there already of the body, if it is not too much; says whether that was all.
    pub fn pass_over(&mut self, fd: BorrowedFd<'_>) -> bool {
        let mut passed = 0;
        while self.is_wanting() && passed <= PASSED_OVER {
            self.forget_read();
            let Some(got) = self.receive(fd) else { break };
            passed += got;
        }
        self.is_whole()
    }

    fn is_wanting(&self) -> bool {
        !self.complete && self.failure.is_none()
    }

    fn is_whole(&self) -> bool {
        self.complete && self.failure.is_none()
    }

    pub fn failure(&self) -> Option<BodyError> {
        self.failure
    }

    /// Whether the kernel may hold bytes of this client that were not received.
    pub fn is_brimful(&self) -> bool {
        self.brim || !self.complete
    }

    /// Moves what came after the body.
    pub fn move_rest(&mut self, to: &mut Vec<u8>) {
        to.append(&mut self.rest);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
