//! One request in progress, from the thread that serves it.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::queue_time::queue_time;
use super::read_buf::KEPT;
use super::request::Request;
use super::spool::Spooling;
use super::unsent::Unsent;
use super::write_buf::WriteBuf;
use crate::control::Control;
use crate::request_state::ActiveRequest;

/// What belongs to one request in progress. The thread that serves it owns this, and uses it again for its next
/// request. Other threads and signal handlers see the part in [`ActiveRequest`].
#[derive(Debug)]
pub(crate) struct InFlight {
    active: Arc<ActiveRequest>,
    write_buf: WriteBuf,
    /// For the write buffer, while the helper may send what is in it.
    unsent: Arc<Unsent>,
    is_lent: bool,
    spooling: Spooling,
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
    pub fn new(active: Arc<ActiveRequest>, unsent: Arc<Unsent>, spooling: Spooling) -> Self {
        InFlight {
            active,
            write_buf: WriteBuf::default(),
            unsent,
            is_lent: false,
            spooling,
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
        self.unsent.begin();
        let started = self.active.begin(fd, request.head, request.bytes);
        let queued = queue_time(request.head, request.bytes, arrived, started);
        request.queue_time = queued;
        self.sent = Sent { started, queued, ..Sent::default() };
        started
    }

    /// The application is done. False if another thread has taken the request: the caller must not go on. For the thread
    /// that `leads` the process ends then, and this does not return.
    pub fn end(&self, control: &Control, leads: bool) -> bool {
        if control.is_closed() {
            self.active.forget_client();
            return true;
        }
        if leads {
            self.active.end();
            return true;
        }
        self.active.try_end()
    }

    /// Runs what the application wants called after its response, under a time limit. Also returns what
    /// [`end`](Self::end) does.
    pub fn during_callbacks<T>(&self, control: &Control, leads: bool, call: impl FnOnce() -> T) -> (T, bool) {
        // In a forked child the scoreboard shows its parent.
        if control.is_closed() {
            return (call(), true);
        }
        self.active.begin_callbacks();
        let result = call();
        let ended = match (control.is_closed(), leads) {
            (true, _) => true,
            (false, true) => {
                self.active.end_callbacks();
                true
            }
            (false, false) => self.active.try_end_callbacks(),
        };
        (result, ended)
    }

    pub fn take_unsent(&mut self) -> WriteBuf {
        std::mem::take(&mut self.write_buf)
    }

    /// Whether what is passed is to be sent at once: the helper has looked at the request.
    pub fn is_seen(&self) -> bool {
        self.unsent.is_seen()
    }

    /// From now on the helper sends what is buffered, until it is [taken back](Self::take_back).
    pub fn lend(&mut self) {
        self.unsent.lend(std::mem::take(&mut self.write_buf));
        self.is_lent = true;
    }

    pub fn is_lent(&self) -> bool {
        self.is_lent
    }

    /// Returns how much the socket has taken meanwhile.
    pub fn take_back(&mut self) -> io::Result<usize> {
        self.is_lent = false;
        let (write_buf, taken) = self.unsent.take_back();
        self.write_buf = write_buf;
        taken
    }

    /// Moves what is buffered to the response's spool. False if that has no room, or cannot be written.
    pub fn spool(&mut self, control: &Arc<Control>) -> bool {
        let InFlight { write_buf, spooling, spool_failure, .. } = self;
        // After a failure the disk is left alone for the rest of the response.
        if spool_failure.is_some() || spooling.most == 0 {
            return false;
        }
        let spooled = write_buf.spool(spooling.most, || spooling.create(control));
        spooled.unwrap_or_else(|error| {
            *spool_failure = Some(error);
            false
        })
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
