//! One client's connection, and how far its request has come.
//!
//! ```text
//!            bytes            whole head          whole body, or none is waited for
//!   accept -> Head -----------> Body ---------------> app -> close
//!              ^ \ error          \ error              |  \ not all taken
//!              |  `------ Draining <-' (answered;      |   `-> Sending -> close
//!              |                        discards)      |         |
//!              `---------------------------------------'<--------'  the connection goes on
//! ```

pub(crate) mod body;
pub(crate) mod read_buf;
mod reading;
pub(crate) mod request;
pub(crate) mod response_writer;
mod transfer;
pub(crate) mod write_buf;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use crate::conn::body::buffered::Body;
use crate::conn::body::reader::{BodyError, BodyReader};
use crate::conn::body::stream::BodyStream;
use crate::conn::read_buf::{Input, InputPool};
use crate::conn::request::{Content, Request};
use crate::conn::write_buf::Output;
use crate::control::Control;
use crate::settings::Settings;

pub(crate) use reading::Step;
pub(crate) use transfer::Contents;

/// What an answered client may still send before it is cut off, in bytes: enough for what
/// was under way, too little to keep anybody busy.
const DRAINED: usize = 1024 * 1024;

#[derive(Debug)]
enum State {
    /// Reading the head.
    Head,
    /// The head is there; reading the body.
    Body(Body),
    /// The head is there, and the application is to read the body: what has come of it is in the input, as it came.
    Unread,
    /// The application reads the body, or has read of it what it wanted.
    Stream(Box<Mutex<BodyReader>>),
    /// The application is done, and the client has not taken all of the response; then the connection goes on, or not.
    Sending(bool),
    /// Answered. Closing now would reset the connection and could take the
    /// answer from the client before it has read it (RFC 9112 §9.6).
    Draining(usize),
}

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A first request.
    Fresh,
    /// Another request, of which nothing has come.
    Idle,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
    /// The client taking its response.
    Sending,
    /// The client closing.
    Draining,
}

#[derive(Debug)]
pub(crate) struct Connection {
    fd: OwnedFd,
    pub listener: usize,
    pub peer: Option<SocketAddr>,
    /// Where it is kept while nobody works on it, once it has been there.
    pub key: Option<usize>,
    /// None while there is nothing in it.
    input: Option<Box<Input>>,
    pub output: Output,
    state: State,
    /// Requests answered before this one.
    pub served: u32,
    /// The last read gave all that was asked for.
    brim: bool,
    /// The client sends nothing after what there is to read.
    pub ended: bool,
    /// The request was there before the answer to the one before it had left. That its client sends nothing more says
    /// nothing then: it has asked for all that it wants.
    pub pipelined: bool,
}

impl Connection {
    /// Boxed, for it goes from hand to hand.
    pub fn new(fd: OwnedFd, peer: Option<SocketAddr>, listener: usize) -> Box<Self> {
        Box::new(Connection {
            fd,
            listener,
            peer,
            key: None,
            input: None,
            output: Output::default(),
            state: State::Head,
            served: 0,
            brim: false,
            ended: false,
            pipelined: false,
        })
    }

    /// The request, once it is [`Step::Ready`].
    pub fn request<'a>(&'a self, settings: &Settings) -> Option<Request<'a>> {
        let Input { bytes, head, decoded, rest, path } = self.input.as_deref()?;
        let mut beyond = &bytes[head.len..];
        let content = match &self.state {
            State::Body(Body::InPlace(length)) => {
                let (body, after) = beyond.split_at(*length);
                beyond = after;
                Content::Memory(body)
            }
            State::Body(
                Body::Chunked { file: Some(file), length, .. } | Body::Spooled { file, length, .. },
            ) => Content::File(file, *length),
            State::Body(Body::Chunked { .. }) => Content::Memory(decoded),
            State::Stream(reader) => Content::Stream(BodyStream { fd: self.fd.as_fd(), reader }),
            _ => Content::None,
        };
        if !rest.is_empty() {
            beyond = rest;
        }
        let path = if settings.decode_path { path } else { head.path(bytes) };
        Some(Request { head, bytes, path, content, beyond, listener: self.listener, peer: self.peer })
    }

    /// The application is about to have the request, and with it what there is of a body that it reads itself.
    pub fn open_body(&mut self, settings: &Settings, control: &Arc<Control>) {
        if let (State::Unread, Some(input)) = (&self.state, &mut self.input) {
            self.state =
                State::Stream(Box::new(Mutex::new(BodyReader::new(input, settings, Arc::clone(control)))));
        }
    }

    /// The application is done with the request: discards what it has not read of the body, if that has come already
    /// and is not much. False when the connection cannot go on.
    pub fn pass_over_body(&mut self) -> bool {
        let State::Stream(reader) = &mut self.state else { return true };
        let reader = reader.get_mut().unwrap_or_else(PoisonError::into_inner);
        let whole = reader.pass_over(self.fd.as_fd());
        self.brim = reader.is_brimful();
        self.input.iter_mut().for_each(|input| reader.move_rest(&mut input.rest));
        whole
    }

    /// Why the application could not read the body.
    pub fn body_failure(&self) -> Option<BodyError> {
        let State::Stream(reader) = &self.state else { return None };
        reader.lock().unwrap_or_else(PoisonError::into_inner).failure()
    }

    /// The request has been answered, and the connection goes on: what has come after it is the next one.
    pub fn turn_over(&mut self, settings: &Settings) -> Step {
        self.served = self.served.saturating_add(1);
        let state = std::mem::replace(&mut self.state, State::Head);
        if let Some(input) = &mut self.input {
            let body = if let State::Body(Body::InPlace(length)) = state { length } else { 0 };
            let used = (input.head.len + body).min(input.bytes.len());
            input.bytes.drain(..used);
            input.bytes.append(&mut input.rest);
            input.decoded.clear();
            input.path.clear();
            // Empty lines before a request mean nothing (RFC 9112 §2.2).
            if input.bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
                input.bytes.clear();
            }
        }
        self.take_stock(settings)
    }

    /// Sends more of the response, and says how much; 0 means that the client takes nothing now.
    pub fn send_more(&mut self) -> io::Result<usize> {
        self.output.flush(self.fd.as_fd())
    }

    /// The rest of the response is sent when the client takes it, and then the connection goes on, or not.
    pub fn send_later(&mut self, output: Output, goes_on: bool) {
        // What comes next stays, and waits.
        if let (Some(input), State::Body(_) | State::Stream(_)) = (&mut self.input, &self.state) {
            let length = if let State::Body(Body::InPlace(length)) = &self.state { *length } else { 0 };
            let used = (input.head.len + length).min(input.bytes.len());
            input.bytes.drain(..used);
            input.head.len = 0;
        }
        self.output = output;
        self.state = State::Sending(goes_on);
    }

    /// Whether the connection goes on once the response has been sent.
    pub fn goes_on_after_sending(&self) -> bool {
        matches!(self.state, State::Sending(true))
    }

    pub fn phase(&self) -> Phase {
        match self.state {
            State::Head if self.has_part_of_head() => Phase::Head,
            State::Head if self.served == 0 => Phase::Fresh,
            State::Head => Phase::Idle,
            State::Body(_) | State::Unread | State::Stream(_) => Phase::Body,
            State::Sending(_) => Phase::Sending,
            State::Draining(_) => Phase::Draining,
        }
    }

    /// Whether something of a head has come. An empty line before it means nothing (RFC 9112 §2.2): some clients send
    /// one after a body.
    fn has_part_of_head(&self) -> bool {
        self.input.as_ref().is_some_and(|input| !b"\r\n".starts_with(&input.bytes))
    }

    fn has_bytes(&self) -> bool {
        self.input.as_ref().is_some_and(|input| !input.bytes.is_empty())
    }

    /// Whether the client has sent part of a request.
    pub fn has_begun(&self) -> bool {
        matches!(self.phase(), Phase::Head | Phase::Body)
    }

    /// Whether the kernel may hold bytes of this client that were not read: the last read was filled to the brim.
    pub fn is_brimful(&self) -> bool {
        self.brim
    }

    /// Whether there is something to do before anything arrives: what the last turn has left.
    pub fn is_due(&self) -> bool {
        match self.state {
            // Nothing is read meanwhile; the poller tells anew what has come by then.
            State::Sending(_) => self.output.is_due(),
            _ => self.brim,
        }
    }

    /// Whether there is something left to read, if only the end.
    pub fn may_have_more(&self) -> bool {
        self.brim || self.ended
    }

    /// Whether the client takes it that the connection goes on after this request.
    pub fn is_to_go_on(&self) -> bool {
        self.input.as_ref().is_some_and(|input| input.head.is_persistent())
    }

    /// Whether the request's method is HEAD, whose answers have no body; also when the rest of its head is wrong.
    pub fn is_head_request(&self) -> bool {
        self.input.as_ref().is_some_and(|input| input.bytes.trim_ascii_start().starts_with(b"HEAD "))
    }

    /// From now on reads and discards; the client is told that nothing more will come.
    pub fn drain(&mut self) {
        self.state = State::Draining(DRAINED);
        self.input.iter_mut().for_each(|input| input.bytes.clear());
        // A client that is gone already will be noticed by the next read.
        let _ = fastrack_sys::shutdown_write(self.fd.as_fd());
    }

    /// Gives its memory back if there is nothing in it, and always when asked to.
    pub fn rest(&mut self, inputs: &mut InputPool, always: bool) {
        if always || matches!(self.state, State::Head) && !self.has_bytes() {
            self.input.take().into_iter().for_each(|input| inputs.give_back(input));
        }
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
