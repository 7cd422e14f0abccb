//! One request in progress, from the thread that serves it.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::request::Request;
use super::write_buf::WriteBuf;
use crate::control::Control;
use crate::watch::ActiveRequest;

/// Capacity that the write buffer may keep between requests, in bytes.
const KEPT: usize = 256 * 1024;

/// What belongs to one request in progress. The thread that serves it owns this, and uses it again for its next
/// request. Other threads and signal handlers see the part in [`ActiveRequest`].
#[derive(Debug)]
pub(crate) struct InFlight {
    active: Arc<ActiveRequest>,
    write_buf: WriteBuf,
    /// There was no memory for what the client has not taken of the response.
    out_of_memory: bool,
}

impl InFlight {
    pub fn new(active: Arc<ActiveRequest>) -> Self {
        InFlight { active, write_buf: WriteBuf::default(), out_of_memory: false }
    }

    pub fn active(&self) -> &Arc<ActiveRequest> {
        &self.active
    }

    pub fn write_buf(&mut self) -> &mut WriteBuf {
        &mut self.write_buf
    }

    /// A request begins on this socket. Returns the time, in milliseconds of the monotonic clock.
    pub fn begin(&self, fd: RawFd, request: &Request<'_>) -> u64 {
        self.active.begin(fd, request.head, request.bytes)
    }

    pub fn end(&self, control: &Control) {
        if control.is_closed() {
            self.active.forget_client();
        } else {
            self.active.end();
        }
        control.count_request();
    }

    /// Runs what the application wants called after its response, under a time limit.
    pub fn during_callbacks<T>(&self, control: &Control, call: impl FnOnce() -> T) -> T {
        // In a forked child the scoreboard shows its parent.
        if control.is_closed() {
            return call();
        }
        self.active.begin_callbacks();
        let result = call();
        if !control.is_closed() {
            self.active.end_callbacks();
        }
        result
    }

    pub fn take_unsent(&mut self) -> WriteBuf {
        std::mem::take(&mut self.write_buf)
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
    }
}
