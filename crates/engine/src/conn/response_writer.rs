//! The way back: what the application sends.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use fastrack_http::{Persistence, Version};

use crate::conn::body::stream::BodyStream;
use crate::conn::request::{Content, Request};
use crate::conn::write_buf::{self, Output};
use crate::control::Control;
use crate::settings::Settings;

/// How far sending has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All that was handed over has been sent, or will be without the application.
    Sent,
    /// The client must take something first: [wait](ResponseWriter::wait), then [flush](ResponseWriter::flush).
    Blocked,
}

/// What has become of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not one byte was sent.
    Untouched,
    /// Some was sent, and there is more to come.
    Begun,
    /// The application has given all of it.
    Finished,
    /// Somebody else has the connection now, and goes on with it.
    HandedOver,
    /// The client is gone, or did not take the response in time.
    Broken,
}

/// One response on its way to the client.
#[derive(Debug)]
pub struct ResponseWriter<'a> {
    fd: BorrowedFd<'a>,
    /// What the socket did not take.
    output: &'a mut Output,
    control: &'a Control,
    /// How much output may wait, in bytes.
    budget: usize,
    /// How long the client may take nothing, in milliseconds.
    timeout: u64,
    /// Since when it has taken nothing, in milliseconds of the steady clock.
    stalled: Option<u64>,
    stage: Stage,
    /// What becomes of the connection, as far as the application goes along.
    persistence: Persistence,
    /// The request's body, where the application may not have read it yet.
    body: Option<BodyStream<'a>>,
}

impl<'a> ResponseWriter<'a> {
    /// Most slices for one [`send`](Self::send): what one writev(2) takes (IOV_MAX on Linux and BSD).
    pub const MOST_SLICES: usize = 1024;

    /// `output` is empty, and lends its memory. `last` says that the connection closes after this.
    pub(crate) fn new(
        fd: BorrowedFd<'a>,
        output: &'a mut Output,
        control: &'a Control,
        request: &Request<'a>,
        settings: &Settings,
        last: bool,
    ) -> Self {
        let persistence = match request.head.version {
            _ if last || !settings.keep_alive || !request.head.is_persistent() => Persistence::Close,
            Version::Http11 => Persistence::Implied,
            Version::Http10 => Persistence::Named,
        };
        let (budget, timeout) = (settings.response_buffer, settings.write_timeout);
        let body = if let Content::Stream(body) = request.content { Some(body) } else { None };
        ResponseWriter {
            fd,
            output,
            control,
            budget,
            timeout,
            stalled: None,
            stage: Stage::Untouched,
            persistence,
            body,
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// What becomes of the connection after this response: what its head has to say.
    pub fn persistence(&mut self) -> Persistence {
        let body_is_left = self.body.is_some_and(|body| !body.is_in_reach());
        if body_is_left || self.control.is_stopping() || self.control.is_draining() {
            self.close();
        }
        self.persistence
    }

    /// Whether the connection goes on after this response, as things stand.
    pub fn is_persistent(&self) -> bool {
        self.persistence != Persistence::Close
    }

    /// The connection has to be closed after this response.
    pub fn close(&mut self) {
        self.persistence = Persistence::Close;
    }

    /// Whether nothing was sent yet, so that a different response still can be.
    pub fn is_untouched(&self) -> bool {
        self.stage == Stage::Untouched
    }

    /// Whether sending has failed, so that there is no use in going on.
    pub fn is_broken(&self) -> bool {
        self.stage == Stage::Broken
    }

    /// Sends slices, at most [`MOST_SLICES`](Self::MOST_SLICES) of them, without blocking.
    ///
    /// What the socket does not take at once is copied: the slices are the
    /// caller's again when this returns. Must not be called while blocked.
    pub fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Progress> {
        if !self.output.is_empty() {
            self.flush()?;
        }
        if self.output.is_empty() {
            let result = if self.may_answer() { self.output.send(self.fd, slices) } else { Err(overdue()) };
            self.note(result)?;
            if self.output.is_empty() {
                return Ok(Progress::Sent);
            }
        } else {
            self.output.push(slices, 0);
        }
        // What is left of it will be sent, whoever waits for it.
        self.stage = Stage::Begun;
        Ok(self.progress())
    }

    /// Sends a head, the first `length` bytes of a file, and an end. What the socket does not take at once is sent
    /// without the application. Must not be called while blocked; nothing can be sent after it.
    ///
    /// If the file turns out to be shorter the connection is reset.
    pub fn send_file(
        &mut self,
        head: &[u8],
        file: File,
        length: u64,
        end: &'static [u8],
    ) -> io::Result<Progress> {
        let mut sent = 0;
        if self.output.is_empty() {
            let result =
                if self.may_answer() { write_buf::write_more(self.fd, head) } else { Err(overdue()) };
            sent = self.note(result)?;
        }
        self.output.push(&[IoSlice::new(head)], sent);
        self.output.append_file(file, length, end);
        self.stage = Stage::Begun;
        self.flush()
    }

    /// Sends an interim response (RFC 9110 §15.2), after which the final one is still to come. A client that is slow in
    /// taking what was sent before goes without.
    pub fn send_interim(&mut self, bytes: &[u8]) {
        if self.stage != Stage::Untouched {
            return;
        }
        match write_buf::write_one(self.fd, bytes) {
            Ok(0) => {}
            Ok(sent) if sent == bytes.len() => {}
            Ok(sent) => {
                self.output.push(&[IoSlice::new(bytes)], sent);
                self.stage = if self.may_answer() { Stage::Begun } else { Stage::Broken };
            }
            Err(_) => self.stage = Stage::Broken,
        }
    }

    /// Goes on with what was left over.
    pub fn flush(&mut self) -> io::Result<Progress> {
        let result = self.output.flush(self.fd);
        self.note(result)?;
        Ok(self.progress())
    }

    /// Whether the client is still this thread's to answer.
    fn may_answer(&self) -> bool {
        self.stage != Stage::Untouched || self.control.watch.answer()
    }

    fn progress(&self) -> Progress {
        if self.output.len() <= self.budget {
            Progress::Sent
        } else {
            Progress::Blocked
        }
    }

    fn note(&mut self, result: io::Result<usize>) -> io::Result<usize> {
        match result {
            Ok(0) => {}
            Ok(_) => {
                self.stage = Stage::Begun;
                self.stalled = None;
            }
            Err(_) => self.stage = Stage::Broken,
        }
        result
    }

    /// From now on nothing waits: [`Progress::Sent`] means that the system has taken everything.
    pub fn unbuffer(&mut self) {
        self.budget = 0;
    }

    /// Blocks until the client may take more, or a signal came; fails when it
    /// has taken nothing for the whole timeout.
    ///
    /// This is what to run while other threads may go on.
    pub fn wait(&mut self) -> io::Result<()> {
        let now = fastrack_sys::monotonic_millis();
        let waited = now.saturating_sub(*self.stalled.get_or_insert(now));
        let result = if waited >= self.timeout {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            // How long the client may take is not about the application.
            let left = self.control.watch.pause();
            let result = fastrack_sys::wait_writable(self.fd, self.timeout - waited);
            self.control.watch.resume(left);
            result
        };
        if result.is_err() {
            self.stage = Stage::Broken;
        }
        result.map(|_| ())
    }

    /// The application has given the whole response; what waits of it is sent without it.
    pub fn finish(&mut self) {
        self.end(Stage::Finished);
        if self.output.is_empty() {
            self.control.watch.answered();
        }
    }

    /// Keeps the client for this thread, or whoever it will [hand it over](Self::hand_over) to; false when the response
    /// has begun, or the helper has answered.
    pub fn claim(&mut self) -> bool {
        self.stage == Stage::Untouched && self.control.watch.answer()
    }

    /// Somebody else has a copy of the connection's descriptor and sends the rest.
    pub fn hand_over(&mut self) {
        self.end(Stage::HandedOver);
        self.control.watch.answered();
    }

    fn end(&mut self, stage: Stage) {
        if self.stage != Stage::Broken {
            self.stage = stage;
        }
    }

    /// The response cannot be completed: the client is shown so by a reset.
    pub fn abandon(&mut self) {
        self.stage = Stage::Broken;
    }
}

/// The helper has answered, or cut the connection.
fn overdue() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

impl AsFd for ResponseWriter<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}
