//! What becomes of what the client does not take at once: the helper sends it while the application goes on, a file takes what
//! is too much for memory, and where that is not possible the application waits.

use std::io;

use super::{Progress, ResponseWriter, Stage};

/// How often to look whether a client has taken something of a response, within the time for that.
const LOOKS: u64 = 8;

impl ResponseWriter<'_> {
    /// The application may go on if little is buffered, which the helper sends meanwhile.
    pub(super) fn go_on(&mut self) -> Progress {
        let progress = self.progress();
        if progress == Progress::Sent && !self.in_flight.write_buf().is_empty() {
            self.in_flight.lend();
        }
        progress
    }

    /// Nobody else sends what is buffered any more.
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

    /// Makes room for more of the response: moves what is buffered to a file, or blocks until the client may take more or a
    /// signal came. Fails when the client has taken nothing for the whole timeout.
    ///
    /// This is what to run while other threads may go on.
    pub fn wait(&mut self) -> io::Result<()> {
        let now = fastrack_sys::monotonic_millis();
        let waited = now.saturating_sub(*self.stalled.get_or_insert(now));
        let result = if waited >= self.timeout {
            Err(io::ErrorKind::TimedOut.into())
        } else if self.spool() {
            return Ok(());
        } else {
            // The client may take something soon after this began, which a poller reports only when a third of the
            // socket's buffer is free. The next flush notices it: at the end it would count as news.
            let left = (self.timeout - waited).min((self.timeout / LOOKS).max(1));
            self.in_flight.active().while_stopped(|| fastrack_sys::wait_writable(self.fd, left))
        };
        if result.is_err() {
            self.stage = Stage::Broken;
        }
        result.map(|_| ())
    }

    /// Moves what is buffered to the response's spool, if that is possible.
    fn spool(&mut self) -> bool {
        // The spool of a forked child is its parent's.
        self.may_spool && !self.control.is_closed() && self.in_flight.spool(self.control)
    }

    /// Whether the client may take its time for what is left. A forked child leaves its parent's bytes alone.
    pub(super) fn may_leave_rest(&mut self) -> bool {
        self.is_broken() || self.control.is_closed() || self.in_flight.keeps_rest()
    }
}
