//! Sends the response of the application.

mod buffering;

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fastrack_access_log::Timings;
use fastrack_http::{Persistence, Version};

use super::body::BodyStream;
use super::in_flight::InFlight;
use super::request::{Content, Request};
use super::write_buf;
use crate::control::Control;
use crate::scoreboard::{Count, GcTime};
use crate::settings::Settings;

/// The progress of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All passed bytes have been sent, or will be sent without the application.
    Sent,
    /// The buffer is full: [wait](ResponseWriter::wait), then [flush](ResponseWriter::flush).
    Blocked,
}

/// The stage of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseStage {
    Untouched,
    Begun,
    /// The application has passed the whole response.
    Finished,
    /// The application has hijacked the connection and sends the rest.
    Hijacked,
    /// The client is gone, or did not receive the response in time.
    Broken,
}

/// Sends one response to the client.
#[derive(Debug)]
pub struct ResponseWriter<'a> {
    fd: BorrowedFd<'a>,
    in_flight: &'a mut InFlight,
    control: &'a Arc<Control>,
    /// Bytes of the response that may be buffered.
    budget: usize,
    /// Whether further bytes may go to a file.
    may_spool: bool,
    /// How long the client may receive nothing, in milliseconds.
    timeout: u64,
    /// The time since which the client has received nothing, in milliseconds of the monotonic clock.
    stalled: Option<u64>,
    stage: ResponseStage,
    persistence: Persistence,
    /// More of the body follows: small parts are held back (conn/lent_buffer.rs).
    more_follows: bool,
    /// The request's body, if the application reads it while it arrives.
    body: Option<BodyStream<'a>>,
    is_tcp: bool,
    /// [`claim_response`](Self::claim_response) must set the socket to be [reset](Self::end_by_close).
    ends_by_close: bool,
}

impl<'a> ResponseWriter<'a> {
    /// The highest number of slices for one [`send`](Self::send): the limit of writev(2) (IOV_MAX on Linux and BSD).
    pub const MAX_SLICES: usize = 1024;

    /// `last`: the connection closes after this response.
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
            stage: ResponseStage::Untouched,
            persistence,
            more_follows: false,
            body: if let Content::Stream(body) = request.content { Some(body) } else { None },
            is_tcp: request.peer.is_some(),
            ends_by_close: false,
        }
    }

    pub(crate) fn stage(&self) -> ResponseStage {
        self.stage
    }

    /// Whether the connection persists after this response. Call this right before the head is made.
    pub fn persistence(&mut self) -> Persistence {
        let body_is_left = self.body.is_some_and(|body| !body.is_almost_read());
        if body_is_left || self.control.is_stopping() || self.control.is_draining() {
            self.close();
        }
        self.persistence
    }

    /// Whether the connection stays open after this response, as known so far.
    pub fn is_persistent(&self) -> bool {
        self.persistence != Persistence::Close
    }

    /// Closes the connection after this response.
    pub fn close(&mut self) {
        self.persistence = Persistence::Close;
    }

    /// Marks a response, of which nothing has been sent, as ended by the close of the connection only. If the process
    /// ends before all of the response was sent, the kernel resets the connection (SO_LINGER, socket(7)): otherwise the
    /// client would take a cut response for a whole one. No effect on unix sockets.
    pub fn end_by_close(&mut self) {
        self.close();
        self.ends_by_close = self.is_tcp;
    }

    /// Called after this process has sent the last byte that it sends of the response.
    fn end_in_order(&mut self) {
        if std::mem::take(&mut self.in_flight.resets) {
            // This fails only where `reset_on_close` failed too.
            let _ = fastrack_sys::no_reset_on_close(self.fd);
        }
    }

    /// Notes the status of the response that is sent next, and the length of its head in bytes.
    pub fn describe(&mut self, status: u16, head: usize) {
        self.in_flight.sent.status = status;
        self.in_flight.sent.head = head as u64;
    }

    /// How the request's time is divided so far. None if nobody asked for that.
    pub fn timings(&self) -> Option<Timings> {
        self.in_flight.active().times()?.at(fastrack_sys::monotonic_micros())
    }

    /// Adds time of the garbage collector to the counters. Only one thread at a time may call this.
    #[inline]
    pub fn count_gc(&self, time: GcTime) {
        // A forked child shares the counters of its parent.
        if time != GcTime::default() && !self.control.is_closed() {
            self.control.counters().add(Count::GcInRequests, time.in_requests);
            self.control.counters().add(Count::GcOutside, time.outside);
        }
    }

    /// Whether nothing was sent yet: another response is still possible.
    pub fn is_untouched(&self) -> bool {
        self.stage == ResponseStage::Untouched
    }

    /// Whether sending has failed.
    pub fn is_broken(&self) -> bool {
        self.stage == ResponseStage::Broken
    }

    /// Sends slices without blocking, at most [`MAX_SLICES`](Self::MAX_SLICES) of them.
    ///
    /// Unsent bytes are copied, so the caller may free the slices. Must not be called while blocked.
    pub fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Progress> {
        if self.in_flight.sent.is_timed() {
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
        self.stage = ResponseStage::Begun;
        let progress = self.go_on();
        // The helper may have looked before the bytes were lent.
        if holds && self.in_flight.is_seen() {
            self.flush()
        } else {
            Ok(progress)
        }
    }

    /// Called when the head was sent, and the application has more of a body to come whose length nobody knows: from now on the response
    /// may become a stream. `is_upgrade`: the connection is not HTTP's any more.
    #[inline]
    pub fn note_follows(&mut self, is_upgrade: bool) {
        if self.control.has_streams() && self.stage == ResponseStage::Begun {
            self.in_flight.active().set_follows(fastrack_sys::monotonic_millis(), is_upgrade);
        }
    }

    /// Whether the slices may be held back to be sent with the next ones.
    fn may_hold(&mut self, slices: &[IoSlice<'_>]) -> bool {
        !self.in_flight.is_seen() && self.in_flight.write_buf().has_room_for(slices, self.budget)
    }

    /// Notes whether more of the body follows. If so, small parts may be held back for some milliseconds.
    pub fn set_more_follows(&mut self, more_follows: bool) {
        self.more_follows = more_follows;
    }

    /// Takes the buffer back from the helper and sends it, when no more of the response is passed.
    #[inline]
    pub(crate) fn release(&mut self) {
        // The bytes in a forked child are the parent's to send. A failure marks the response as broken.
        if self.in_flight.is_lent() && !self.control.is_closed() {
            let _ = self.take_back().and_then(|()| self.flush_buffered());
        }
    }

    /// Buffers a head and the first `length` bytes of a file, for [`send_pushed`](Self::send_pushed). With `ends_chunk`
    /// the file is the data of the last chunk. Must not be called while blocked; nothing can be sent after the file.
    ///
    /// The connection is reset if the file is shorter.
    pub fn push_file(&mut self, head: &[u8], file: File, length: u64, ends_chunk: bool) -> io::Result<()> {
        self.claim_response()?;
        let pushed = self.in_flight.write_buf().push(&[IoSlice::new(head)], 0);
        self.note(pushed.map(|()| 0))?;
        self.in_flight.sent.passed += head.len() as u64 + length;
        self.in_flight.write_buf().push_file(file, length, ends_chunk);
        self.stage = ResponseStage::Begun;
        Ok(())
    }

    /// Sends a pushed file. The rest that the socket does not accept at once is sent without the application.
    pub fn send_pushed(&mut self) {
        // A failure marks the response as broken.
        let _ = self.flush_buffered();
    }

    /// Sends an interim response (RFC 9110 §15.2). Skips it if the socket is full.
    pub fn send_interim(&mut self, bytes: &[u8]) {
        if self.stage != ResponseStage::Untouched {
            return;
        }
        match write_buf::send(self.fd, bytes) {
            Ok(0) => {}
            Ok(sent) if sent == bytes.len() => {}
            Ok(sent) => {
                let pushed = self.in_flight.write_buf().push(&[IoSlice::new(bytes)], sent);
                if self.claim_response().is_ok() {
                    self.stage = if pushed.is_ok() { ResponseStage::Begun } else { ResponseStage::Broken };
                }
            }
            Err(_) => self.stage = ResponseStage::Broken,
        }
    }

    /// Sends more of the buffered bytes.
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
        if self.stage == ResponseStage::Untouched && !self.in_flight.active().claim_response() {
            self.stage = ResponseStage::Broken;
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Only after the claim: before it, the reset could lose a response of the helper.
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
                self.end(ResponseStage::Begun);
                self.stalled = None;
            }
            Err(error) => {
                self.in_flight.note_failure(&error);
                self.stage = ResponseStage::Broken;
                return Err(error);
            }
        }
        Ok(self.progress())
    }

    /// Called after the application has passed the whole response: the buffered rest is sent without the application.
    /// Returns Blocked if the rest has no room. Then [wait](Self::wait), [flush](Self::flush), and call this again.
    pub fn finish(&mut self) -> Progress {
        self.release();
        if self.in_flight.write_buf().is_empty() {
            self.end_in_order();
            self.in_flight.active().set_complete();
        } else if !self.may_leave_rest() {
            return Progress::Blocked;
        }
        self.end(ResponseStage::Finished);
        Progress::Sent
    }

    /// Claims the client before a [hijack](Self::hand_over). Returns false if a response has begun, or the helper has
    /// answered.
    pub fn claim(&mut self) -> bool {
        self.stage == ResponseStage::Untouched && self.in_flight.active().claim_response()
    }

    /// A copy of the connection's descriptor for the application, which closes it. Until then the copy counts as one of the
    /// application's [sockets](Control::sockets).
    pub fn copy_socket(&self) -> io::Result<OwnedFd> {
        let copy = self.fd.try_clone_to_owned()?;
        self.control.app_sockets().add(copy.as_fd());
        Ok(copy)
    }

    /// Completes a hijack: the application has a copy of the descriptor and sends the rest.
    pub fn hand_over(&mut self) {
        self.release();
        self.end(ResponseStage::Hijacked);
        self.end_in_order();
        self.in_flight.active().set_complete();
    }

    /// Sets the stage, unless the response is broken.
    fn end(&mut self, stage: ResponseStage) {
        if self.stage != ResponseStage::Broken {
            self.stage = stage;
        }
    }

    /// Gives the response up: the connection will be reset, which tells the client that the response is cut.
    pub fn abandon(&mut self) {
        self.stage = ResponseStage::Broken;
    }
}

impl AsFd for ResponseWriter<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}
