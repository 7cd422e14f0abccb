//! One request in progress, for the thread that serves it.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::lent_buffer::LentBuffer;
use super::queue_time::{queue_time, Arrival};
use super::read_buf::MAX_KEPT_CAPACITY;
use super::request::Request;
use super::spool::{MemoryReservation, Spooling, SHORT_REST};
use super::write_buf::WriteBuf;
use crate::claim::ActiveRequest;
use crate::control::Control;

/// The state of a request in progress. The thread that serves the request owns this state, and reuses it for its next
/// request. Other threads and signal handlers see the part in [`ActiveRequest`].
#[derive(Debug)]
pub(crate) struct InFlight {
    active: Arc<ActiveRequest>,
    write_buf: WriteBuf,
    /// Holds the write buffer while the helper may send it.
    lent_buffer: Arc<LentBuffer>,
    is_lent: bool,
    spooling: Spooling,
    /// The room in memory for the unsent rest, once the application has passed the whole response.
    reservation: Option<MemoryReservation>,
    /// Why the unsent rest could not be spooled.
    spool_failure: Option<io::Error>,
    /// Whether the last try to make a file found no free descriptor.
    pub(super) lacks_descriptor: bool,
    /// No memory was available for the unsent rest.
    out_of_memory: bool,
    /// Bytes of the large parts of the response: see [`note_sent`](Self::note_sent).
    large: usize,
    /// Whether the end of this process resets the connection: see
    /// [`ResponseWriter::end_by_close`](super::ResponseWriter::end_by_close).
    pub resets: bool,
    pub sent: Sent,
}

/// The figures of a request and its response, for counters and the access log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// When the application was called, in milliseconds of the monotonic clock.
    pub started: u64,
    /// The same in microseconds, by the exact clock; 0 without an access log and without timings.
    pub began: u64,
    /// How long the request had waited for the application, in microseconds.
    pub queued: u64,
    /// 0 before the application has passed a head.
    pub status: u16,
    /// The length of the response's head, in bytes.
    pub head: u64,
    /// Bytes of the response that the application has passed, if the request is [timed](Self::is_timed).
    pub passed: u64,
    /// Bytes of the response that the system has taken.
    pub taken: u64,
}

impl Sent {
    /// Whether the access log gets a line about the request, or the request's time is divided.
    pub fn is_timed(&self) -> bool {
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
            reservation: None,
            spool_failure: None,
            lacks_descriptor: false,
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

    /// Starts a request on this socket. Returns the time now, in milliseconds of the monotonic clock.
    pub fn begin(&mut self, fd: RawFd, request: &mut Request<'_>, arrival: &Arrival) -> u64 {
        self.lent_buffer.begin();
        let started = self.active.begin(fd, request.head, request.bytes);
        let queued = queue_time(request.head, request.bytes, arrival, started);
        (request.queue_time, request.body_wait) = (queued, arrival.body_wait);
        self.sent = Sent { started, queued, ..Sent::default() };
        started
    }

    /// Notes the exact time at which the request began.
    #[inline(never)]
    pub fn begin_exact(&mut self, now: u64, request: &Request<'_>) {
        self.sent.began = now;
        if let Some(times) = self.active.times() {
            times.begin(now, request.queue_time, request.body_wait * 1000);
        }
    }

    /// Called when the application is done. Returns false if the helper has seized the request: the process ends, and the
    /// caller must not continue.
    pub fn end(&self, control: &Control) -> bool {
        if control.is_closed() {
            self.active.forget_client();
            return true;
        }
        self.active.end()
    }

    /// The response was a stream: its time as a request ends here. The access log has the whole duration.
    #[cold]
    pub fn skip_stream(&mut self) {
        if let Some(began) = self.active.began_stream() {
            self.sent.started += fastrack_sys::monotonic_millis().saturating_sub(began);
        }
    }

    /// Runs the callbacks of the application after its response, under a time limit. Also returns the result of
    /// [`end`](Self::end).
    pub fn during_callbacks<T>(&self, control: &Control, call: impl FnOnce() -> T) -> (T, bool) {
        // A forked child shares the scoreboard of its parent.
        if control.is_closed() {
            return (call(), true);
        }
        self.active.begin_callbacks();
        let result = call();
        let ended = control.is_closed() || self.active.end_callbacks();
        (result, ended)
    }

    /// Takes the unsent rest, and its room in memory.
    pub fn take_unsent(&mut self) -> (WriteBuf, Option<MemoryReservation>) {
        (std::mem::take(&mut self.write_buf), self.reservation.take())
    }

    /// Whether the helper has looked at the request: from then on everything is sent at once.
    pub fn is_seen(&self) -> bool {
        self.lent_buffer.is_seen()
    }

    /// Lets the helper send the buffered bytes until [`take_back`](Self::take_back).
    pub fn lend(&mut self) {
        self.lent_buffer.lend(std::mem::take(&mut self.write_buf));
        self.is_lent = true;
    }

    pub fn is_lent(&self) -> bool {
        self.is_lent
    }

    /// Takes the lent buffer back. Returns the number of bytes that the helper has sent.
    pub fn take_back(&mut self) -> io::Result<usize> {
        self.is_lent = false;
        let (write_buf, taken) = self.lent_buffer.take_back();
        self.write_buf = write_buf;
        taken
    }

    /// Moves the buffered bytes to the spool of the response. Returns false if the spool is full or cannot be written. Without a free
    /// descriptor a later call tries again.
    pub fn spool(&mut self, control: &Arc<Control>) -> bool {
        let InFlight { write_buf, spooling, spool_failure, lacks_descriptor, .. } = self;
        *lacks_descriptor = false;
        // After a failure the rest of the response does not use the disk.
        if write_buf.spool_ended || spooling.most == 0 {
            return false;
        }
        let spooled = write_buf.spool(spooling.most, || spooling.create(control));
        let is_spooled = spooled.unwrap_or_else(|error| {
            *lacks_descriptor = fastrack_sys::is_out_of_fds(&error);
            *spool_failure = Some(error);
            false
        });
        if *lacks_descriptor {
            control.need_descriptor();
        }
        write_buf.spool_ended = !is_spooled && !*lacks_descriptor;
        is_spooled
    }

    /// Called after the application has passed the whole response: reserves memory for the unsent rest. Returns false
    /// if the rest belongs into the spool, or if memory has no room for it.
    pub fn keeps_rest(&mut self) -> bool {
        let InFlight { write_buf, spooling, reservation, .. } = self;
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
        *reservation = spooling.reserve_memory(write_buf.capacity());
        reservation.is_some()
    }

    /// The log line for a response that could not be spooled.
    pub fn take_spool_failure(&mut self) -> Option<String> {
        let error = self.spool_failure.take()?;
        Some(self.spooling.explain(&error))
    }

    /// Notes the number of bytes that one call has sent.
    pub fn note_sent(&mut self, bytes: usize) {
        if bytes > MAX_KEPT_CAPACITY {
            self.large += bytes;
        }
    }

    /// Takes the number of bytes in the large parts of the response.
    pub fn take_large(&mut self) -> usize {
        std::mem::take(&mut self.large)
    }

    /// Notes an error of sending the response.
    pub fn note_failure(&mut self, error: &io::Error) {
        self.out_of_memory |= error.kind() == io::ErrorKind::OutOfMemory;
    }

    pub fn take_out_of_memory(&mut self) -> bool {
        std::mem::take(&mut self.out_of_memory)
    }

    /// Called after the response: prepares for the next request.
    pub fn reset(&mut self) {
        self.write_buf.clear();
        self.write_buf.shrink(MAX_KEPT_CAPACITY);
        self.resets = false;
    }
}
