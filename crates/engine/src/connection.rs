//! One client's connection, and how far its request has come.
//!
//! ```text
//!            bytes            whole head          whole body
//!   accept -> Head -----------> Body ---------------> app -> close
//!               \ error           \ error
//!                `------ Draining <-'  (answered; discards until the client closes)
//! ```

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use fastrack_http::{percent_decode, Error, Expectation, Status};

use crate::body::Body;
use crate::input::{Input, READ_SIZE};
use crate::request::{Content, Request};
use crate::settings::Settings;

/// What an answered client may still send before it is cut off, in bytes: enough for what
/// was under way, too little to keep anybody busy.
const DRAINED: usize = 1024 * 1024;

/// Reads of one connection before another has its turn: a megabyte of a long body.
const READS_IN_A_ROW: usize = 16;

#[derive(Debug)]
enum State {
    /// Reading the head.
    Head,
    /// The head is there; reading the body.
    Body(Body),
    /// Answered. Closing now would reset the connection and could take the
    /// answer from the client before it has read it (RFC 9112 §9.6).
    Draining(usize),
}

#[derive(Debug)]
pub(crate) struct Connection {
    fd: OwnedFd,
    listener: usize,
    peer: Option<SocketAddr>,
    pub input: Box<Input>,
    state: State,
    /// The last read gave all that was asked for.
    brim: bool,
}

/// What reading came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The request is complete.
    Ready,
    /// There is more to come.
    Wait,
    /// The request has an error in it.
    Refuse(Error),
    /// The client is gone, or has said all that may be said.
    Close,
}

impl Connection {
    pub fn new(fd: OwnedFd, peer: Option<SocketAddr>, listener: usize, input: Box<Input>) -> Self {
        Connection { fd, listener, peer, input, state: State::Head, brim: false }
    }

    /// Reads until the request is complete, or the kernel has no more of it, or others should have their turn.
    pub fn read(&mut self, settings: &Settings) -> Step {
        for _ in 0..READS_IN_A_ROW {
            let most = self.wanted();
            let got = match fastrack_sys::recv(self.fd.as_fd(), &mut self.input.bytes, most) {
                Ok(0) => return Step::Close,
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Step::Wait,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Step::Close,
            };
            self.brim = got == most;
            match self.take(got, settings) {
                // Less than asked for: the kernel has no more, and asking again would only tell so.
                Ok(Status::Partial) if !self.brim => return Step::Wait,
                Ok(Status::Partial) => {}
                Ok(Status::Complete) if self.is_draining() => return Step::Close,
                Ok(Status::Complete) => return Step::Ready,
                Err(error) => return Step::Refuse(error),
            }
        }
        Step::Wait
    }

    fn wanted(&self) -> usize {
        match &self.state {
            State::Head | State::Draining(_) => READ_SIZE,
            State::Body(body) => body.wanted(&self.input),
        }
    }

    /// Takes in the `got` bytes that have just been received.
    fn take(&mut self, got: usize, settings: &Settings) -> Result<Status, Error> {
        match &mut self.state {
            State::Head => self.take_head(got, settings),
            State::Body(body) => body.take(&mut self.input, settings),
            State::Draining(left) => {
                self.input.bytes.clear();
                *left = left.saturating_sub(got);
                Ok(if *left == 0 { Status::Complete } else { Status::Partial })
            }
        }
    }

    fn take_head(&mut self, got: usize, settings: &Settings) -> Result<Status, Error> {
        let input = &mut *self.input;
        let new = input.bytes.len() - got;
        if new > 0 && input.bytes.len() < settings.limits.target && !input.bytes[new..].contains(&b'\n') {
            // Byte by byte, a head would be parsed anew for each byte; only the end of a line can complete it.
            return Ok(Status::Partial);
        }
        if input.head.parse(&input.bytes, settings.limits)? == Status::Partial {
            return Ok(Status::Partial);
        }
        if settings.decode_path {
            percent_decode(input.head.path(&input.bytes), &mut input.path)?;
        }
        let mut body = Body::of(input, settings)?;
        if input.head.expectation == Expectation::Continue && !matches!(body, Body::None) {
            self.send_continue();
        }
        let status = body.take(&mut self.input, settings)?;
        self.state = State::Body(body);
        Ok(status)
    }

    /// Tells the client to send the body (RFC 9110 §15.2.1). If it does not
    /// get through, the client sends it anyway after a while, or goes away.
    fn send_continue(&self) {
        let _ = fastrack_sys::writev(self.fd.as_fd(), &[IoSlice::new(b"HTTP/1.1 100 Continue\r\n\r\n")]);
    }

    /// The request, once it is [`Step::Ready`].
    pub fn request<'a>(&'a self, settings: &Settings) -> Request<'a> {
        let Input { bytes, head, decoded, path } = &*self.input;
        let content = match &self.state {
            State::Body(Body::InPlace(length)) => Content::Memory(&bytes[head.len..head.len + length]),
            State::Body(
                Body::Chunked { file: Some(file), length, .. } | Body::Spooled { file, length, .. },
            ) => Content::File(file, *length),
            State::Body(Body::Chunked { .. }) => Content::Memory(decoded),
            _ => Content::None,
        };
        let path = if settings.decode_path { path } else { head.path(bytes) };
        Request { head, bytes, path, content, listener: self.listener, peer: self.peer }
    }

    /// Whether the client has sent part of a request.
    pub fn has_begun(&self) -> bool {
        match self.state {
            State::Head => !self.input.bytes.is_empty(),
            State::Body(_) => true,
            State::Draining(_) => false,
        }
    }

    /// Whether a whole head is there, and the body under way.
    pub fn is_in_body(&self) -> bool {
        matches!(self.state, State::Body(_))
    }

    /// Whether the kernel may hold bytes of this client that were not read: the last read was filled to the brim.
    pub fn may_have_more(&self) -> bool {
        self.brim
    }

    /// Whether the request's method is HEAD, whose answers have no body; also when the rest of its head is wrong.
    pub fn is_head_request(&self) -> bool {
        self.input.bytes.trim_ascii_start().starts_with(b"HEAD ")
    }

    /// From now on reads and discards; the client is told that nothing more will come.
    pub fn drain(&mut self) {
        self.state = State::Draining(DRAINED);
        self.input.bytes.clear();
        // A client that is gone already will be noticed by the next read.
        let _ = fastrack_sys::shutdown_write(self.fd.as_fd());
    }

    pub fn is_draining(&self) -> bool {
        matches!(self.state, State::Draining(_))
    }

    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
