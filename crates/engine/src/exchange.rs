//! The way back: what the application sends.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

/// How far sending has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All that was handed over has been sent.
    Sent,
    /// The client must take something first: [wait](Exchange::wait), then [flush](Exchange::flush).
    Blocked,
}

/// What has become of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Not one byte was sent.
    Untouched,
    /// Some was sent, and there is more to come.
    Begun,
    /// It has been sent whole.
    Finished,
    /// Somebody else has the connection now, and goes on with it.
    HandedOver,
    /// The client is gone, or did not take the response in time.
    Broken,
}

/// One response on its way to the client.
#[derive(Debug)]
pub struct Exchange<'a> {
    fd: BorrowedFd<'a>,
    /// What the socket did not take, from `taken` on.
    unsent: &'a mut Vec<u8>,
    taken: usize,
    timeout: u64,
    /// Since when the client has taken nothing, in milliseconds of the steady clock.
    stalled: Option<u64>,
    stage: Stage,
}

impl<'a> Exchange<'a> {
    /// Most slices for one [`send`](Self::send): what one writev(2) takes (IOV_MAX on Linux and BSD).
    pub const MOST_SLICES: usize = 1024;

    /// `unsent` lends its memory; `timeout` is how long a client may take nothing, in milliseconds.
    pub(crate) fn new(fd: BorrowedFd<'a>, unsent: &'a mut Vec<u8>, timeout: u64) -> Self {
        unsent.clear();
        Exchange { fd, unsent, taken: 0, timeout, stalled: None, stage: Stage::Untouched }
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage
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
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let sent = match self.attempt(slices) {
            Ok(sent) => sent,
            Err(error) => return self.fail(error),
        };
        if sent == total {
            return Ok(Progress::Sent);
        }
        let mut skip = sent;
        for slice in slices {
            let from = skip.min(slice.len());
            self.unsent.extend_from_slice(&slice[from..]);
            skip -= from;
        }
        Ok(Progress::Blocked)
    }

    /// Goes on with what was left over.
    pub fn flush(&mut self) -> io::Result<Progress> {
        let unsent = std::mem::take(self.unsent);
        let result = self.attempt(&[IoSlice::new(&unsent[self.taken..])]);
        *self.unsent = unsent;
        match result {
            Ok(sent) => self.taken += sent,
            Err(error) => return self.fail(error),
        }
        if self.taken < self.unsent.len() {
            return Ok(Progress::Blocked);
        }
        self.unsent.clear();
        self.taken = 0;
        Ok(Progress::Sent)
    }

    /// One writev; a socket that takes nothing now has taken 0.
    fn attempt(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            match fastrack_sys::writev(self.fd, slices) {
                Ok(sent) => {
                    if sent > 0 {
                        self.stage = Stage::Begun;
                        self.stalled = None;
                    }
                    return Ok(sent);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(error) => return Err(error),
            }
        }
    }

    fn fail(&mut self, error: io::Error) -> io::Result<Progress> {
        self.stage = Stage::Broken;
        Err(error)
    }

    /// Blocks until the client may take more, or a signal came; fails when it
    /// has taken nothing for the whole timeout.
    ///
    /// This is what to run while other threads may go on.
    pub fn wait(&mut self) -> io::Result<()> {
        let now = fastrack_sys::monotonic_millis();
        let waited = now.saturating_sub(*self.stalled.get_or_insert(now));
        if waited >= self.timeout {
            self.stage = Stage::Broken;
            return Err(io::ErrorKind::TimedOut.into());
        }
        match fastrack_sys::wait_writable(self.fd, self.timeout - waited) {
            Ok(_) => Ok(()),
            Err(error) => self.fail(error).map(|_| ()),
        }
    }

    /// The response has been sent whole.
    pub fn finish(&mut self) {
        self.end(Stage::Finished);
    }

    /// Somebody else has a copy of the connection's descriptor and sends the rest.
    pub fn hand_over(&mut self) {
        self.end(Stage::HandedOver);
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

impl AsFd for Exchange<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd
    }
}
