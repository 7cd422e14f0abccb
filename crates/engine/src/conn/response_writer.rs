//! Sends the application's response.

mod buffering;

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use fastrack_http::{Persistence, Version};

use super::body::BodyStream;
use super::in_flight::InFlight;
use super::request::{Content, Request};
use super::write_buf;
use crate::control::Control;
use crate::scoreboard::{Count, GcTime};
use crate::settings::Settings;

/// How far sending is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All that was passed has been sent, or will be without the application.
    Sent,
    /// What is buffered must become less first: [wait](ResponseWriter::wait), then [flush](ResponseWriter::flush).
    Blocked,
}

/// How far the response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Untouched,
    Begun,
    /// The application has passed all of it.
    Finished,
    /// The connection was hijacked: the application sends the rest.
    Hijacked,
    /// The client is gone, or did not take the response in time.
    Broken,
}

/// Sends one response to the client.
#[derive(Debug)]
pub struct ResponseWriter<'a> {
    fd: BorrowedFd<'a>,
    in_flight: &'a mut InFlight,
    control: &'a Arc<Control>,
    /// How much of the response may be buffered, in bytes.
    budget: usize,
    /// Whether what is beyond that may go to a file.
    may_spool: bool,
    /// How long the client may take nothing, in milliseconds.
    timeout: u64,
    /// Since when it has taken nothing, in milliseconds of the monotonic clock.
    stalled: Option<u64>,
    stage: Stage,
    persistence: Persistence,
    /// More of the body follows: small parts are held back (conn/unsent.rs).
    more_follows: bool,
    /// The request's body, if the application reads it while it arrives.
    body: Option<BodyStream<'a>>,
    is_tcp: bool,
    /// The client is still to be told of a [cut](Self::end_by_close).
    ends_by_close: bool,
}

impl<'a> ResponseWriter<'a> {
    /// Most slices for one [`send`](Self::send): what one writev(2) takes (IOV_MAX on Linux and BSD).
    pub const MOST_SLICES: usize = 1024;

    /// `last` says that the connection closes after this response.
    pub(crate) fn new(
        fd: BorrowedFd<'a>,
        in_flight: &'a mut InFlight,
        control: &'a Arc<Control>,
        request: &Request<'a>,
        settings: &Settings,
        last: bool,
    ) -> Self {
        let persistence = match request.head.version {
            _ if last || !settings.keep_alive || !request.head.is_persistent() => Persistence::Close,
            Version::Http11 => Persistence::Implied,
            Version::Http10 => Persistence::Named,
        };
        ResponseWriter {
            fd,
            in_flight,
            control,
            budget: settings.response_buffer,
            may_spool: true,
            timeout: settings.write_timeout,
            stalled: None,
            stage: Stage::Untouched,
            persistence,
            more_follows: false,
            body: if let Content::Stream(body) = request.content { Some(body) } else { None },
            is_tcp: request.peer.is_some(),
            ends_by_close: false,
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// What becomes of the connection after this response, for its head. To be called right before that is made.
    pub fn persistence(&mut self) -> Persistence {
        let body_is_left = self.body.is_some_and(|body| !body.is_almost_read());
        if body_is_left || self.control.is_stopping() || self.control.is_draining() {
            self.close();
        }
        self.persistence
    }

    /// Whether the connection stays open after this response, as far as is known now.
    pub fn is_persistent(&self) -> bool {
        self.persistence != Persistence::Close
    }

    /// Has the connection closed after this response.
    pub fn close(&mut self) {
        self.persistence = Persistence::Close;
    }

    /// Only the close of the connection ends this response, of which nothing has been sent. Until all of it has been, the end of the
    /// process resets the connection (SO_LINGER, socket(7)), whatever ends the process: the client would take the part for the
    /// whole. No effect on unix sockets.
    pub fn end_by_close(&mut self) {
        self.close();
        self.ends_by_close = self.is_tcp;
    }

    /// The response is whole, as far as this process sends it.
    fn end_in_order(&mut self) {
        if std::mem::take(&mut self.in_flight.resets) {
            // It fails only where that also did.
            let _ = fastrack_sys::no_reset_on_close(self.fd);
        }
    }

    /// The status of the response that is sent next, and the length of its head in bytes.
    pub fn describe(&mut self, status: u16, head: usize) {
        self.in_flight.sent.status = status;
        self.in_flight.sent.head = head as u64;
    }

    /// The garbage collector has run, as the application has noticed. One thread at a time may call this.
    #[inline]
    pub fn count_gc(&self, time: GcTime) {
        // A forked child has its parent's counters.
        if time != GcTime::default() && !self.control.is_closed() {
            self.control.counters().add(Count::GcInRequests, time.in_requests);
            self.control.counters().add(Count::GcOutside, time.outside);
        }
    }

    /// Whether nothing was sent yet, so that a different response still can be.
    pub fn is_untouched(&self) -> bool {
        self.stage == Stage::Untouched
    }

    /// Whether sending has failed.
    pub fn is_broken(&self) -> bool {
        self.stage == Stage::Broken
    }

    /// Sends slices without blocking, at most [`MOST_SLICES`](Self::MOST_SLICES) of them.
    ///
    /// What the socket does not take is copied, so the caller may free the slices. Must not be called while blocked.
    pub fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Progress> {
        if self.in_flight.sent.is_logged() {
            self.in_flight.sent.passed += slices.iter().map(|slice| slice.len() as u64).sum::<u64>();
        }
        self.take_back()?;
        let is_behind = self.in_flight.write_buf().has_spool() && {
            self.flush_buffered()?;
            !self.in_flight.write_buf().is_empty()
        };
        self.claim_response()?;
        let holds = self.more_follows && !is_behind && self.may_hold(slices);
        if is_behind || holds {
            let pushed = self.in_flight.write_buf().push(slices, 0);
            self.note(pushed.map(|()| 0))?;
        } else {
            let result = self.in_flight.write_buf().send(self.fd, slices);
            self.note(result)?;
            if self.in_flight.write_buf().is_empty() {
                return Ok(Progress::Sent);
            }
        }
        self.stage = Stage::Begun;
        let progress = self.go_on();
        // The helper may have looked before that was there.
        if holds && self.in_flight.is_seen() {
            self.flush()
        } else {
            Ok(progress)
        }
    }

    /// Whether these may wait for the next ones to go with them.
    fn may_hold(&mut self, slices: &[IoSlice<'_>]) -> bool {
        !self.in_flight.is_seen() && self.in_flight.write_buf().has_room_for(slices, self.budget)
    }

    /// Says whether more of the body is about to be sent: then what is sent until then may be held back, for milliseconds.
    pub fn set_more_follows(&mut self, more_follows: bool) {
        self.more_follows = more_follows;
    }

    /// Takes back what the helper may send, and sends it: no more of the response is passed.
    #[inline]
    pub(crate) fn release(&mut self) {
        // A forked child has a copy of its parent's bytes. A failure marks the response as broken.
        if self.in_flight.is_lent() && !self.control.is_closed() {
            let _ = self.take_back().and_then(|()| self.flush_buffered());
        }
    }

    /// A head and the first `length` bytes of a file, which are a chunk and the last one if that `ends_chunk`, for
    /// [`send_pushed`](Self::send_pushed). Must not be called while blocked; nothing can be sent after it.
    ///
    /// If the file turns out to be shorter the connection is reset.
    pub fn push_file(&mut self, head: &[u8], file: File, length: u64, ends_chunk: bool) -> io::Result<()> {
        self.claim_response()?;
        let pushed = self.in_flight.write_buf().push(&[IoSlice::new(head)], 0);
        self.note(pushed.map(|()| 0))?;
        self.in_flight.sent.passed += head.len() as u64 + length;
        self.in_flight.write_buf().push_file(file, length, ends_chunk);
        self.stage = Stage::Begun;
        Ok(())
    }

    /// Sends a file that was pushed. What the socket does not take at once is sent without the application.
    pub fn send_pushed(&mut self) {
        // A failure marks the response as broken.
        let _ = self.flush_buffered();
    }

    /// Sends an interim response (RFC 9110 §15.2). It is skipped if the client is slow in taking what was sent
    /// before.
    pub fn send_interim(&mut self, bytes: &[u8]) {
        if self.stage != Stage::Untouched {
            return;
        }
        match write_buf::send(self.fd, bytes) {
            Ok(0) => {}
            Ok(sent) if sent == bytes.len() => {}
            Ok(sent) => {
                let pushed = self.in_flight.write_buf().push(&[IoSlice::new(bytes)], sent);
                if self.claim_response().is_ok() {
                    self.stage = if pushed.is_ok() { Stage::Begun } else { Stage::Broken };
                }
            }
            Err(_) => self.stage = Stage::Broken,
        }
    }

    /// Sends more of what is buffered.
    pub fn flush(&mut self) -> io::Result<Progress> {
        self.take_back()?;
        self.flush_buffered()?;
        Ok(self.go_on())
    }

    fn flush_buffered(&mut self) -> io::Result<Progress> {
        let result = self.in_flight.write_buf().flush(self.fd);
        self.note(result)
    }

    /// Fails if the helper has answered the client or reset the connection.
    fn claim_response(&mut self) -> io::Result<()> {
        if self.stage == Stage::Untouched && !self.in_flight.active().claim_response() {
            self.stage = Stage::Broken;
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Not before: an answer of the helper's would be lost.
        if std::mem::take(&mut self.ends_by_close) {
            self.in_flight.resets = fastrack_sys::reset_on_close(self.fd).is_ok();
        }
        Ok(())
    }

    fn note(&mut self, result: io::Result<usize>) -> io::Result<Progress> {
        match result {
            Ok(0) => {}
            Ok(taken) => {
                self.in_flight.sent.taken += taken as u64;
                self.in_flight.note_sent(taken);
                self.end(Stage::Begun);
                self.stalled = None;
            }
            Err(error) => {
                self.in_flight.note_failure(&error);
                self.stage = Stage::Broken;
                return Err(error);
            }
        }
        Ok(self.progress())
    }

    /// The application has passed the whole response; what is buffered of it is sent without it. While there is no room for that this
    /// returns Blocked, and is to be called again after a [wait](Self::wait) and a [flush](Self::flush).
    pub fn finish(&mut self) -> Progress {
        self.release();
        if self.in_flight.write_buf().is_empty() {
            self.end_in_order();
            self.in_flight.active().set_complete();
        } else if !self.may_leave_rest() {
            return Progress::Blocked;
        }
        self.end(Stage::Finished);
        Progress::Sent
    }

    /// Claims the client before a [hijack](Self::hand_over). False when a response has begun, or the helper has
    /// answered.
    pub fn claim(&mut self) -> bool {
        self.stage == Stage::Untouched && self.in_flight.active().claim_response()
    }

    /// Hijack: the application has a copy of the connection's descriptor and sends the rest.
    pub fn hand_over(&mut self) {
        self.release();
        self.end(Stage::Hijacked);
        self.end_in_order();
        self.in_flight.active().set_complete();
    }

    /// Nothing mends a broken response.
    fn end(&mut self, stage: Stage) {
        if self.stage != Stage::Broken {
            self.stage = stage;
        }
    }

    /// The response cannot be completed: the connection will be reset, so that the client can tell.
    pub fn abandon(&mut self) {
        self.stage = Stage::Broken;
    }
}

impl AsFd for ResponseWriter<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}
