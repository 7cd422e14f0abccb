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
pub(crate) use queue_time::{queue_time, Arrival};
pub(crate) use read_buf::{ReadBuf, ReadBufPool};
pub use request::{Content, Request};
pub(crate) use response_writer::ResponseStage;
pub use response_writer::{Progress, ResponseWriter};
pub(crate) use spool::{MemoryReservation, Spooling};
pub(crate) use transfer::{Kind, Loaded, Transfer};
pub(crate) use write_buf::WriteBuf;

/// The result of reading: the next step for a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The request is ready for the application.
    Ready,
    /// The client must send more.
    Wait,
    /// The request is wrong.
    Refuse(Error),
    /// The client is gone.
    Close,
}

#[derive(Debug)]
enum ConnectionState {
    Head,
    Body(BufferedBody),
    /// The application will read the body, whose first bytes are in the read buffer.
    Unread,
    /// The application reads the body, or has stopped reading it.
    Stream(Box<Mutex<BodyReader>>),
    /// A part of the response is unsent.
    Sending {
        /// Whether the connection is kept alive after the response.
        keep_alive: bool,
        /// Whether the end of this process [resets](ResponseWriter::end_by_close) the connection.
        resets: bool,
        _reservation: Option<MemoryReservation>,
    },
    /// The response has been sent, and further input is discarded: a close now could lose the response (RFC 9112 §9.6).
    Draining {
        /// When the connection ends at the latest, in milliseconds of the monotonic clock.
        latest: u64,
    },
}

/// The phase of a connection, by which its time limit is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before the first byte of the first request.
    Fresh,
    /// Between two requests.
    Idle,
    /// Within a head.
    Head,
    /// Within a body, or in the application.
    Body,
    /// Within a response that the client is slow to receive.
    Sending,
    /// After the last response: input is discarded.
    Draining,
}

impl Phase {
    /// The number of phases.
    pub const ALL: usize = Phase::Draining as usize + 1;
}

#[derive(Debug)]
pub(crate) struct Connection {
    fd: OwnedFd,
    pub listener: usize,
    pub peer: Option<SocketAddr>,
    /// Its key in the table of connections, once it was added to the table.
    pub key: Option<usize>,
    /// The deadline of the phase, in milliseconds of the monotonic clock; 0 without a deadline. A stopping worker may
    /// shorten it.
    pub deadline: u64,
    pub arrival: Arrival,
    /// Bytes received since the last [`take_received`](Self::take_received).
    received: u64,
    read_buf: Option<Box<ReadBuf>>,
    write_buf: WriteBuf,
    state: ConnectionState,
    pub served: u32,
    last_read_was_full: bool,
    /// The client has shut down its sending side.
    pub ended: bool,
    /// The client may still wait for a response after it has shut down its sending side, because the request arrived
    /// before the previous response was sent, or on a new connection that is served in this round.
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
            arrival: Arrival::default(),
            received: 0,
            read_buf: None,
            write_buf: WriteBuf::default(),
            state: ConnectionState::Head,
            served: 0,
            last_read_was_full: false,
            ended: false,
            answer_after_shutdown: false,
        })
    }

    /// The request, after [`Step::Ready`].
    #[inline(always)]
    pub fn request<'a>(&'a self, settings: &Settings) -> Option<Request<'a>> {
        let ReadBuf { bytes, head, decoded, rest, path } = self.read_buf.as_deref()?;
        let mut pipelined = &bytes[head.len..];
        let content = match &self.state {
            ConnectionState::Body(BufferedBody::InPlace(length)) => {
                let (body, after) = pipelined.split_at(*length);
                pipelined = after;
                Content::Memory(body)
            }
            ConnectionState::Body(BufferedBody::Decoded { storage, .. }) => {
                storage.file().map_or(Content::Memory(decoded), |(file, length)| Content::File(file, length))
            }
            ConnectionState::Stream(reader) => Content::Stream(BodyStream::new(self.fd.as_fd(), reader)),
            _ => Content::None,
        };
        if !rest.is_empty() {
            pipelined = rest;
        }
        let path = if settings.decode_path { path } else { head.path(bytes) };
        let (listener, peer) = (self.listener, self.peer);
        Some(Request { head, bytes, path, content, pipelined, listener, peer, queue_time: 0, body_wait: 0 })
    }

    /// The head of the request, and the bytes that it was parsed from.
    pub fn head(&self) -> Option<(&Head, &[u8])> {
        self.read_buf.as_deref().map(|buf| (&buf.head, &buf.bytes[..]))
    }

    pub fn open_body(&mut self, settings: &Settings, in_flight: &InFlight, control: &Arc<Control>) {
        if let (ConnectionState::Unread, Some(buf)) = (&self.state, &mut self.read_buf) {
            let reader = BodyReader::new(buf, settings, in_flight.active(), control);
            self.state = ConnectionState::Stream(Box::new(Mutex::new(reader)));
        }
    }

    /// Discards the unread rest of the body. Returns false if the rest is long or has not arrived.
    #[inline]
    pub fn skip_body(&mut self) -> bool {
        let ConnectionState::Stream(reader) = &mut self.state else { return true };
        let reader = reader.get_mut().unwrap_or_else(PoisonError::into_inner);
        let whole = reader.receive_rest(self.fd.as_fd(), true);
        self.last_read_was_full = reader.may_have_unread();
        self.received += reader.take_received();
        let has_room = self.read_buf.as_mut().is_none_or(|buf| append(&mut buf.rest, reader.rest()).is_ok());
        whole && has_room
    }

    /// Returns the number of bytes received since the last call, for the counters.
    pub fn take_received(&mut self) -> u64 {
        std::mem::take(&mut self.received)
    }

    pub fn body_failure(&self) -> Option<BodyError> {
        let ConnectionState::Stream(reader) = &self.state else { return None };
        reader.lock().unwrap_or_else(PoisonError::into_inner).failure()
    }

    /// Called after the response: starts with the bytes of the next request that have been received.
    pub fn next_request(&mut self, settings: &Settings) -> Step {
        self.served = self.served.saturating_add(1);
        self.arrival.begin_pipelined();
        self.discard_request();
        self.state = ConnectionState::Head;
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
        let body =
            if let ConnectionState::Body(BufferedBody::InPlace(length)) = self.state { length } else { 0 };
        if let Some(buf) = &mut self.read_buf {
            buf.bytes.drain(..(buf.head.len + body).min(buf.bytes.len()));
            buf.head.len = 0;
        }
    }

    /// Sends more of the response. Returns the number of bytes sent; 0 if the socket is full.
    pub fn send_more(&mut self) -> io::Result<usize> {
        self.write_buf.flush(self.fd.as_fd())
    }

    /// Frees the buffer of the response, and returns its capacity in bytes.
    pub fn release_write_buf(&mut self) -> usize {
        std::mem::take(&mut self.write_buf).capacity()
    }

    /// Whether the connection is kept alive, once the whole response has been sent; None before.
    pub fn is_sent(&self) -> Option<bool> {
        match self.state {
            ConnectionState::Sending { keep_alive, .. } if self.write_buf.is_empty() => Some(keep_alive),
            _ => None,
        }
    }

    /// Stores the unsent rest of the response. [`end_in_order`](Self::end_in_order) must follow after the rest was sent
    /// if the end of this process `resets` the connection.
    pub fn send_later(
        &mut self,
        (unsent, _reservation): (WriteBuf, Option<MemoryReservation>),
        keep_alive: bool,
        resets: bool,
    ) {
        self.discard_request();
        self.write_buf = unsent;
        self.state = ConnectionState::Sending { keep_alive, resets, _reservation };
    }

    /// Called after the response was sent: the end of the process no longer resets the connection.
    pub fn end_in_order(&mut self) {
        if matches!(self.state, ConnectionState::Sending { resets: true, .. }) {
            // This fails only if the client is gone.
            let _ = fastrack_sys::no_reset_on_close(self.fd.as_fd());
        }
    }

    pub fn phase(&self) -> Phase {
        // An empty line before a head is ignored (RFC 9112 §2.2): some clients send one after a body.
        let has_begun = |buf: &ReadBuf| !b"\r\n".starts_with(&buf.bytes);
        match self.state {
            ConnectionState::Head if self.read_buf.as_deref().is_some_and(has_begun) => Phase::Head,
            ConnectionState::Head if self.served == 0 => Phase::Fresh,
            ConnectionState::Head => Phase::Idle,
            ConnectionState::Body(_) | ConnectionState::Unread | ConnectionState::Stream(_) => Phase::Body,
            ConnectionState::Sending { .. } => Phase::Sending,
            ConnectionState::Draining { .. } => Phase::Draining,
        }
    }

    /// The length of the body in bytes, if the head has it.
    pub fn body_length(&self) -> Option<u64> {
        match self.read_buf.as_ref()?.head.framing {
            Framing::Length(length) => Some(length),
            _ => None,
        }
    }

    pub fn has_begun(&self) -> bool {
        matches!(self.phase(), Phase::Head | Phase::Body)
    }

    /// Whether the last read filled its buffer: the kernel may hold more.
    pub fn last_read_was_full(&self) -> bool {
        self.last_read_was_full
    }

    /// Whether the connection needs a turn without waiting for an event, because its last turn left work.
    pub fn needs_another_turn(&self) -> bool {
        match self.state {
            // A connection in this state reads nothing. The poller reports the input again afterwards.
            ConnectionState::Sending { .. } => self.write_buf.has_more_to_send(),
            ConnectionState::Body(_) if self.is_being_written() => false,
            _ => self.last_read_was_full,
        }
    }

    /// Whether the client expects the connection to stay open after this request.
    pub fn is_persistent(&self) -> bool {
        self.read_buf.as_ref().is_some_and(|buf| buf.head.is_persistent())
    }

    /// Whether the method is HEAD, even if the rest of the head is invalid.
    pub fn is_head_request(&self) -> bool {
        self.read_buf.as_ref().is_some_and(|buf| buf.bytes.trim_ascii_start().starts_with(b"HEAD "))
    }

    /// The open files of the connection: of the request's body and of the response.
    pub fn files(&self) -> impl Iterator<Item = RawFd> + '_ {
        let body = self.storage().and_then(Storage::file).map(|(file, _)| file);
        let response = self.write_buf.file().map(|part| &part.file);
        body.into_iter().chain(response).map(AsRawFd::as_raw_fd)
    }

    /// Shuts down the sending side, and discards input until `latest`, in milliseconds of the monotonic clock.
    pub fn drain(&mut self, latest: u64) {
        self.state = ConnectionState::Draining { latest };
        self.read_buf.iter_mut().for_each(|buf| buf.bytes.clear());
        // The next read notices a client that is gone.
        let _ = fastrack_sys::shutdown_write(self.fd.as_fd());
    }

    /// The end of the time in which input is [discarded](Self::drain); None if input is not discarded.
    pub fn drains_until(&self) -> Option<u64> {
        match self.state {
            ConnectionState::Draining { latest } => Some(latest),
            _ => None,
        }
    }

    /// Ends the time in which input is discarded at `time`, unless it ends earlier.
    pub fn drain_no_later(&mut self, time: u64) {
        if let ConnectionState::Draining { latest } = &mut self.state {
            *latest = time.min(*latest);
        }
    }

    pub fn release_empty_buffer(&mut self, pool: &mut ReadBufPool) {
        let empty = self.read_buf.as_ref().is_some_and(|buf| buf.bytes.is_empty());
        if empty && matches!(self.state, ConnectionState::Head | ConnectionState::Draining { .. }) {
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
