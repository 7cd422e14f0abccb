//! One request in progress, from the thread that serves it.

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
}

impl InFlight {
    pub fn new(active: Arc<ActiveRequest>) -> Self {
        InFlight { active, write_buf: WriteBuf::default() }
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

    /// As [`end`](Self::end), but returns false if another thread has taken the request: the caller must not go on.
    pub fn try_end(&self, control: &Control) -> bool {
        control.count_request();
        if control.is_closed() {
            self.active.forget_client();
            return true;
        }
        self.active.try_end()
    }

    /// As [`during_callbacks`](Self::during_callbacks); also returns what [`try_end`](Self::try_end) does.
    pub fn try_callbacks<T>(&self, control: &Control, call: impl FnOnce() -> T) -> (T, bool) {
        if control.is_closed() {
            return (call(), true);
        }
        self.active.begin_callbacks();
        let result = call();
        (result, control.is_closed() || self.active.try_end_callbacks())
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

    /// The response has been dealt with.
    pub fn reset(&mut self) {
        self.write_buf.clear();
        self.write_buf.shrink(KEPT);
    }
}
