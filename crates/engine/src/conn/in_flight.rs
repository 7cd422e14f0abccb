//! One request in progress, from the thread that serves it.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::lent_buffer::LentBuffer;
use super::queue_time::queue_time;
use super::read_buf::KEPT;
use super::request::Request;
use super::spool::{Kept, Spooling, SHORT_REST};
use super::write_buf::WriteBuf;
use crate::claim::ActiveRequest;
use crate::control::Control;

/// What belongs to one request in progress. The thread that serves it owns this, and uses it again for its next
/// request. Other threads and signal handlers see the part in [`ActiveRequest`].
#[derive(Debug)]
pub(crate) struct InFlight {
    active: Arc<ActiveRequest>,
    write_buf: WriteBuf,
    /// The place of the write buffer while the helper may flush it.
    lent_buffer: Arc<LentBuffer>,
    is_lent: bool,
    spooling: Spooling,
    /// The room in memory for what the client has not taken, once the application has passed all of the response.
    kept: Option<Kept>,
    /// Why what the client has not taken could not be spooled.
    spool_failure: Option<io::Error>,
    /// There was no memory for what the client has not taken of the response.
    out_of_memory: bool,
    /// Bytes of a large response.
    large: usize,
    /// The end of this process resets the connection: see [`ResponseWriter::end_by_close`](super::ResponseWriter::end_by_close).
    pub resets: bool,
    pub sent: Sent,
}

/// What is to be counted of a request and its response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// When the application was called, in milliseconds of the monotonic clock.
    pub started: u64,
    /// The same in microseconds, by the exact clock; 0 if nobody wants to know.
    pub began: u64,
    /// How long the request had waited then, in microseconds.
    pub queued: u64,
    /// 0 before the application has said it.
    pub status: u16,
    /// The length of the response's head, in bytes.
    pub head: u64,
    /// Bytes of the response that were passed on, if it is [logged](Self::is_logged).
    pub passed: u64,
    /// Bytes of the response that the system has taken.
    pub taken: u64,
}

impl Sent {
    /// Whether the access log gets a line about it.
    pub fn is_logged(&self) -> bool {
        self.began != 0
    }
}

impl InFlight {
    pub fn new(active: Arc<ActiveRequest>, lent_buffer: Arc<LentBuffer>, spooling: Spooling) -> Self {
        InFlight {
            active,
            write_buf: WriteBuf::default(),
            lent_buffer,
            is_lent: false,
            spooling,
            kept: None,
            spool_failure: None,
            out_of_memory: false,
            large: 0,
            resets: false,
            sent: Sent::default(),
        }
    }

    pub fn active(&self) -> &Arc<ActiveRequest> {
        &self.active
    }

    pub fn write_buf(&mut self) -> &mut WriteBuf {
        &mut self.write_buf
    }

    /// A request begins on this socket, which was there to be read when it had `arrived`. Returns the time, both in
    /// milliseconds of the monotonic clock.
    pub fn begin(&mut self, fd: RawFd, request: &mut Request<'_>, arrived: u64) -> u64 {
        self.lent_buffer.begin();
        let started = self.active.begin(fd, request.head, request.bytes);
        let queued = queue_time(request.head, request.bytes, arrived, started);
        request.queue_time = queued;
        self.sent = Sent { started, queued, ..Sent::default() };
        started
    }

    /// The application is done. False if the helper has taken the request: the process ends, and the caller must not go on.
    pub fn end(&self, control: &Control) -> bool {
        if control.is_closed() {
            self.active.forget_client();
            return true;
        }
        self.active.end()
    }

    /// Runs what the application wants called after its response, under a time limit. Also returns what
    /// [`end`](Self::end) does.
    pub fn during_callbacks<T>(&self, control: &Control, call: impl FnOnce() -> T) -> (T, bool) {
        // In a forked child the scoreboard shows its parent.
        if control.is_closed() {
            return (call(), true);
        }
        self.active.begin_callbacks();
        let result = call();
        let ended = control.is_closed() || self.active.end_callbacks();
        (result, ended)
    }

    /// What the client has not taken, and its room in memory.
    pub fn take_unsent(&mut self) -> (WriteBuf, Option<Kept>) {
        (std::mem::take(&mut self.write_buf), self.kept.take())
    }

    /// Whether what is passed is to be sent at once: the helper has looked at the request.
    pub fn is_seen(&self) -> bool {
        self.lent_buffer.is_seen()
    }

    /// From now on the helper sends what is buffered, until it is [taken back](Self::take_back).
    pub fn lend(&mut self) {
        self.lent_buffer.lend(std::mem::take(&mut self.write_buf));
        self.is_lent = true;
    }

    pub fn is_lent(&self) -> bool {
        self.is_lent
    }

    /// Returns how much the socket has taken meanwhile.
    pub fn take_back(&mut self) -> io::Result<usize> {
        self.is_lent = false;
        let (write_buf, taken) = self.lent_buffer.take_back();
        self.write_buf = write_buf;
        taken
    }

    /// Moves what is buffered to the response's spool. False if that has no room, or cannot be written.
    pub fn spool(&mut self, control: &Arc<Control>) -> bool {
        let InFlight { write_buf, spooling, spool_failure, .. } = self;
        // After a failure the disk is left alone for the rest of the response.
        if write_buf.spool_ended || spooling.most == 0 {
            return false;
        }
        let spooled = write_buf.spool(spooling.most, || spooling.create(control));
        let is_spooled = spooled.unwrap_or_else(|error| {
            *spool_failure = Some(error);
            false
        });
        write_buf.spool_ended = !is_spooled;
        is_spooled
    }

    /// The application has passed the whole response: whether what the client has not taken of it stays where it is. It does not if
    /// it belongs into the spool, or if memory has no room for it.
    pub fn keeps_rest(&mut self) -> bool {
        let InFlight { write_buf, spooling, kept, .. } = self;
        if write_buf.bytes().is_empty() {
            write_buf.shrink(0);
            return true;
        }
        if write_buf.has_spool() && !write_buf.spool_ended {
            return false;
        }
        if write_buf.len() <= SHORT_REST || write_buf.has_file() {
            return true;
        }
        *kept = spooling.keep(write_buf.capacity());
        kept.is_some()
    }

    /// What to log if the response could not be spooled.
    pub fn take_spool_failure(&mut self) -> Option<String> {
        let error = self.spool_failure.take()?;
        Some(self.spooling.explain(&error))
    }

    /// So much of the response was sent at once.
    pub fn note_sent(&mut self, bytes: usize) {
        if bytes > KEPT {
            self.large += bytes;
        }
    }

    /// Bytes of what was large in the response.
    pub fn take_large(&mut self) -> usize {
        std::mem::take(&mut self.large)
    }

    /// Sending the response has failed.
    pub fn note_failure(&mut self, error: &io::Error) {
        self.out_of_memory |= error.kind() == io::ErrorKind::OutOfMemory;
    }

    pub fn take_out_of_memory(&mut self) -> bool {
        std::mem::take(&mut self.out_of_memory)
    }

    /// The response has been dealt with.
    pub fn reset(&mut self) {
        self.write_buf.clear();
        self.write_buf.shrink(KEPT);
        self.resets = false;
    }
}
