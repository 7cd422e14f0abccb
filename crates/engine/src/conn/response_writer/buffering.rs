//! The unsent rest of a response. The helper sends it while the application continues. Bytes that are too much for
//! memory go to a file. If neither is possible, the application waits.

use std::io;

use super::{Progress, ResponseStage, ResponseWriter};

/// Parts of the write timeout: after each part the writer looks whether the client has received anything.
const LOOKS_PER_TIMEOUT: u64 = 8;

/// Time until the next try to make a file if no descriptor was free, in milliseconds.
const DESCRIPTOR_LOOK: u64 = 50;

impl ResponseWriter<'_> {
    /// Lends the buffer to the helper if the application may continue.
    pub(super) fn go_on(&mut self) -> Progress {
        let progress = self.progress();
        if progress == Progress::Sent && !self.in_flight.write_buf().is_empty() {
            self.in_flight.lend();
        }
        progress
    }

    /// Takes the buffer back from the helper.
    #[inline]
    pub(super) fn take_back(&mut self) -> io::Result<()> {
        if self.in_flight.is_lent() {
            let taken = self.in_flight.take_back();
            self.note(taken)?;
        }
        Ok(())
    }

    pub(super) fn progress(&mut self) -> Progress {
        if self.in_flight.write_buf().len() <= self.budget {
            Progress::Sent
        } else {
            Progress::Blocked
        }
    }

    /// Turns buffering off: from now on [`Progress::Sent`] means that the kernel has taken everything.
    pub fn unbuffer(&mut self) {
        self.budget = 0;
        self.may_spool = false;
    }

    /// Makes room for more of the response: moves the buffered bytes to a file, or blocks until the socket accepts more
    /// or a signal arrives. Fails if the client has received nothing for the whole timeout.
    ///
    /// Run this while other threads may run.
    pub fn wait(&mut self) -> io::Result<()> {
        let now = fastrack_sys::monotonic_millis();
        let waited = now.saturating_sub(*self.stalled.get_or_insert(now));
        let result = if waited >= self.timeout {
            Err(io::ErrorKind::TimedOut.into())
        } else if self.spool() {
            return Ok(());
        } else {
            // A poller reports the socket only when a third of its buffer is free, but a slow client may have received
            // something earlier. So the wait is cut into parts, and the flush after each part notices such progress.
            let part = (self.timeout / LOOKS_PER_TIMEOUT).max(1);
            let part = if self.in_flight.lacks_descriptor { part.min(DESCRIPTOR_LOOK) } else { part };
            let left = (self.timeout - waited).min(part);
            let began = fastrack_sys::monotonic_micros();
            let active = self.in_flight.active();
            let result = active.while_stopped(|| fastrack_sys::wait_writable(self.fd, left));
            if let Some(times) = active.times() {
                times.add_send(fastrack_sys::monotonic_micros().saturating_sub(began));
            }
            result
        };
        if result.is_err() {
            self.stage = ResponseStage::Broken;
        }
        result.map(|_| ())
    }

    /// Moves the buffered bytes to the spool of the response, if possible.
    fn spool(&mut self) -> bool {
        // A forked child shares the spool of its parent.
        self.may_spool && !self.control.is_closed() && self.in_flight.spool(self.control)
    }

    /// Whether the unsent rest can be sent later, without the application. A forked child does not send the bytes of
    /// its parent.
    pub(super) fn may_leave_rest(&mut self) -> bool {
        self.is_broken() || self.control.is_closed() || self.in_flight.keeps_rest()
    }
}
