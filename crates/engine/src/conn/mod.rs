//! One client's connection: reading its requests and sending the responses.
//!
//! ```text
//!            bytes            head complete       body complete
//!   accept -> Head -----------> Body ---------------> app -> close
//!              ^ \ error          \ error              |  \ client is slow
//!              |  `------ Draining <-' (refused;       |   `-> Sending -> close
//!              |                        discards)      |         |
//!              `---------------------------------------'<--------'  keep-alive
//! ```

mod body;
mod disk;
mod in_flight;
mod lent_buffer;
mod queue_time;
mod read_buf;
mod reading;
mod request;
mod response_writer;
mod spool;
mod storing;
mod transfer;
mod write_buf;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use fastrack_http::{Error, Framing, Head};
use fastrack_sys::append;

use crate::accept::Client;
use crate::control::Control;
use crate::settings::Settings;
use body::{BodyReader, BufferedBody, Storage};

pub use body::{BodyError, BodyRead, BodyStream, ReadAhead};
pub(crate) use disk::Disk;
pub(crate) use in_flight::{InFlight, Sent};
pub(crate) use lent_buffer::LentBuffer;
pub(crate) use queue_time::queue_time;
pub(crate) use read_buf::{ReadBuf, ReadBufPool};
pub use request::{Content, Request};
pub(crate) use response_writer::Stage;
pub use response_writer::{Progress, ResponseWriter};
pub(crate) use spool::{Kept, Spooling};
pub(crate) use transfer::{Kind, Loaded, Transfer};
pub(crate) use write_buf::WriteBuf;

/// What reading came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The request is ready for the application.
    Ready,
    /// There is more to come.
    Wait,
    /// The request is wrong.
    Refuse(Error),
    /// The client is gone.
    Close,
}

#[derive(Debug)]
enum State {
    Head,
    Body(BufferedBody),
    /// The application will read the body; what has come of it is still in the read buffer.
    Unread,
    /// The application reads the body, or has read what it wanted of it.
    Stream(Box<Mutex<BodyReader>>),
    /// The client has not taken the whole response yet. Then the connection is kept alive, or closed. Until then, it may be that the
    /// end of this process [resets](ResponseWriter::end_by_close) it.
    Sending {
        keep_alive: bool,
        resets: bool,
        _kept: Option<Kept>,
    },
    /// The response has been sent, and what the client still sends is discarded. Closing now could lose the response
    /// (RFC 9112 §9.6).
    Draining {
        /// When the connection ends at the latest, in milliseconds of the monotonic clock.
        latest: u64,
    },
}

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A first request.
    Fresh,
    /// Another request, of which nothing has come.
    Idle,
    Head,
    Body,
    Sending,
    Draining,
}

impl Phase {
    /// How many there are.
    pub const ALL: usize = Phase::Draining as usize + 1;
}

#[derive(Debug)]
pub(crate) struct Connection {
    fd: OwnedFd,
    pub listener: usize,
    pub peer: Option<SocketAddr>,
    /// Its place in the table of connections, once it has been there.
    pub key: Option<usize>,
    /// When its phase has to be over, in milliseconds of the monotonic clock; 0 if no time has been set. A worker that
    /// stops may look earlier.
    pub deadline: u64,
    /// When the request was there to be read, in milliseconds of the monotonic clock; 0 if there is none, or nobody knows.
    pub arrived: u64,
    /// Bytes received since they were last [counted](Self::take_received).
    received: u64,
    read_buf: Option<Box<ReadBuf>>,
    write_buf: WriteBuf,
    state: State,
    pub served: u32,
    last_read_was_full: bool,
    /// The client has shut down its sending side.
    pub ended: bool,
    /// The client may still wait for the response after it has shut down its sending side: the request arrived before the
    /// previous response had left, or on a new connection that is served in this round.
    pub answer_after_shutdown: bool,
}

impl Connection {
    pub fn new(client: Client) -> Box<Self> {
        Box::new(Connection {
            fd: client.fd,
            listener: client.listener,
            peer: client.peer,
            key: None,
            deadline: 0,
            arrived: 0,
            received: 0,
            read_buf: None,
            write_buf: WriteBuf::default(),
            state: State::Head,
            served: 0,
            last_read_was_full: false,
            ended: false,
            answer_after_shutdown: false,
        })
    }

    /// The request, once it is [`Step::Ready`].
    #[inline(always)]
    pub fn request<'a>(&'a self, settings: &Settings) -> Option<Request<'a>> {
        let ReadBuf { bytes, head, decoded, rest, path } = self.read_buf.as_deref()?;
        let mut beyond = &bytes[head.len..];
        let content = match &self.state {
            State::Body(BufferedBody::InPlace(length)) => {
                let (body, after) = beyond.split_at(*length);
                beyond = after;
                Content::Memory(body)
            }
            State::Body(BufferedBody::Decoded { storage, .. }) => {
                storage.file().map_or(Content::Memory(decoded), |(file, length)| Content::File(file, length))
            }
            State::Stream(reader) => Content::Stream(BodyStream::new(self.fd.as_fd(), reader)),
            _ => Content::None,
        };
        if !rest.is_empty() {
            beyond = rest;
        }
        let path = if settings.decode_path { path } else { head.path(bytes) };
        let (listener, peer) = (self.listener, self.peer);
        Some(Request { head, bytes, path, content, beyond, listener, peer, queue_time: 0 })
    }

    /// The head of the request, and what it was parsed from.
    pub fn head(&self) -> Option<(&Head, &[u8])> {
        self.read_buf.as_deref().map(|buf| (&buf.head, &buf.bytes[..]))
    }

    pub fn open_body(&mut self, settings: &Settings, in_flight: &InFlight, control: &Arc<Control>) {
        if let (State::Unread, Some(buf)) = (&self.state, &mut self.read_buf) {
            let reader = BodyReader::new(buf, settings, in_flight.active(), control);
            self.state = State::Stream(Box::new(Mutex::new(reader)));
        }
    }

    /// Discards the unread rest of the body. False if it is long or has not arrived.
    pub fn skip_body(&mut self) -> bool {
        let State::Stream(reader) = &mut self.state else { return true };
        let reader = reader.get_mut().unwrap_or_else(PoisonError::into_inner);
        let whole = reader.receive_rest(self.fd.as_fd(), true);
        self.last_read_was_full = reader.may_have_unread();
        self.received += reader.take_received();
        let has_room = self.read_buf.as_mut().is_none_or(|buf| append(&mut buf.rest, reader.rest()).is_ok());
        whole && has_room
    }

    /// How many bytes have been received since the last call of this.
    pub fn take_received(&mut self) -> u64 {
        std::mem::take(&mut self.received)
    }

    pub fn body_failure(&self) -> Option<BodyError> {
        let State::Stream(reader) = &self.state else { return None };
        reader.lock().unwrap_or_else(PoisonError::into_inner).failure()
    }

    /// The request has been answered: goes on with the next one, as far as it has been received.
    pub fn next_request(&mut self, settings: &Settings) -> Step {
        self.served = self.served.saturating_add(1);
        self.discard_request();
        self.state = State::Head;
        if let Some(buf) = &mut self.read_buf {
            if !buf.rest.is_empty() && append(&mut buf.bytes, &buf.rest).is_err() {
                return Step::Refuse(Error::Memory);
            }
            buf.rest.clear();
            buf.decoded.clear();
            buf.path.clear();
            // Empty lines before a request are ignored (RFC 9112 §2.2).
            if buf.bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
                buf.bytes.clear();
            }
        }
        self.parse_buffered(settings)
    }

    fn discard_request(&mut self) {
        let body = if let State::Body(BufferedBody::InPlace(length)) = self.state { length } else { 0 };
        if let Some(buf) = &mut self.read_buf {
            buf.bytes.drain(..(buf.head.len + body).min(buf.bytes.len()));
            buf.head.len = 0;
        }
    }

    /// Sends more of the response and returns how much; 0 if the client takes nothing now.
    pub fn send_more(&mut self) -> io::Result<usize> {
        self.write_buf.flush(self.fd.as_fd())
    }

    /// Frees what was kept of the response, and returns how much that was.
    pub fn release_write_buf(&mut self) -> usize {
        std::mem::take(&mut self.write_buf).capacity()
    }

    /// Whether the whole response has been sent, and if so, whether the connection is kept alive.
    pub fn is_sent(&self) -> Option<bool> {
        match self.state {
            State::Sending { keep_alive, .. } if self.write_buf.is_empty() => Some(keep_alive),
            _ => None,
        }
    }

    /// Keeps the rest of the response to be sent when the client takes it. If the end of this process `resets` the connection until
    /// then, [`end_in_order`](Self::end_in_order) must follow.
    pub fn send_later(&mut self, (unsent, _kept): (WriteBuf, Option<Kept>), keep_alive: bool, resets: bool) {
        self.discard_request();
        self.write_buf = unsent;
        self.state = State::Sending { keep_alive, resets, _kept };
    }

    /// The response has been sent: from now on nothing resets the connection.
    pub fn end_in_order(&mut self) {
        if matches!(self.state, State::Sending { resets: true, .. }) {
            // It fails only if the client is gone.
            let _ = fastrack_sys::no_reset_on_close(self.fd.as_fd());
        }
    }

    pub fn phase(&self) -> Phase {
        // An empty line before a head is ignored (RFC 9112 §2.2): some clients send one after a body.
        let has_begun = |buf: &ReadBuf| !b"\r\n".starts_with(&buf.bytes);
        match self.state {
            State::Head if self.read_buf.as_deref().is_some_and(has_begun) => Phase::Head,
            State::Head if self.served == 0 => Phase::Fresh,
            State::Head => Phase::Idle,
            State::Body(_) | State::Unread | State::Stream(_) => Phase::Body,
            State::Sending { .. } => Phase::Sending,
            State::Draining { .. } => Phase::Draining,
        }
    }

    /// How long the body is to be, in bytes, if the head says so.
    pub fn body_length(&self) -> Option<u64> {
        match self.read_buf.as_ref()?.head.framing {
            Framing::Length(length) => Some(length),
            _ => None,
        }
    }

    pub fn has_begun(&self) -> bool {
        matches!(self.phase(), Phase::Head | Phase::Body)
    }

    /// Whether the last read got all that it asked for, so that the kernel may hold more.
    pub fn last_read_was_full(&self) -> bool {
        self.last_read_was_full
    }

    /// Whether there is something to do before any event: the last turn has left it.
    pub fn needs_another_turn(&self) -> bool {
        match self.state {
            // Nothing is read meanwhile: the poller reports again afterwards what has arrived.
            State::Sending { .. } => self.write_buf.has_more_to_send(),
            State::Body(_) if self.is_being_written() => false,
            _ => self.last_read_was_full,
        }
    }

    /// Whether the client expects the connection to go on after this request.
    pub fn is_persistent(&self) -> bool {
        self.read_buf.as_ref().is_some_and(|buf| buf.head.is_persistent())
    }

    /// Whether the method is HEAD, even if the rest of the head is wrong.
    pub fn is_head_request(&self) -> bool {
        self.read_buf.as_ref().is_some_and(|buf| buf.bytes.trim_ascii_start().starts_with(b"HEAD "))
    }

    /// The files that it has open: of a body that is read, or of a response that is sent.
    pub fn files(&self) -> impl Iterator<Item = RawFd> + '_ {
        let body = self.storage().and_then(Storage::file).map(|(file, _)| file);
        let response = self.write_buf.file().map(|part| &part.file);
        body.into_iter().chain(response).map(AsRawFd::as_raw_fd)
    }

    /// Shuts down the sending side. From now on input is discarded, until `latest` in milliseconds of the monotonic clock.
    pub fn drain(&mut self, latest: u64) {
        self.state = State::Draining { latest };
        self.read_buf.iter_mut().for_each(|buf| buf.bytes.clear());
        // If the client is gone the next read will tell.
        let _ = fastrack_sys::shutdown_write(self.fd.as_fd());
    }

    /// Until when input is [discarded](Self::drain); None if it is not.
    pub fn drains_until(&self) -> Option<u64> {
        match self.state {
            State::Draining { latest } => Some(latest),
            _ => None,
        }
    }

    /// Has the time in which input is discarded end at this time, unless it ends before.
    pub fn drain_no_later(&mut self, time: u64) {
        if let State::Draining { latest } = &mut self.state {
            *latest = time.min(*latest);
        }
    }

    pub fn release_empty_buffer(&mut self, pool: &mut ReadBufPool) {
        let empty = self.read_buf.as_ref().is_some_and(|buf| buf.bytes.is_empty());
        if empty && matches!(self.state, State::Head | State::Draining { .. }) {
            self.release_buffer(pool);
        }
    }

    pub fn release_buffer(&mut self, pool: &mut ReadBufPool) {
        self.read_buf.take().into_iter().for_each(|buf| pool.give_back(buf));
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
