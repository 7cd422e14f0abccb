//! The application's view of a body under way.

use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fastrack_http::Error;

use crate::conn::body::reader::{BodyError, BodyRead, BodyReader, ReadAhead};
use crate::reactor::STOP_TIME;

/// A body under way, and the socket that it comes from.
#[derive(Clone, Copy, Debug)]
pub struct BodyStream<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    /// Nobody ever waits for it: one thread at a time has the writer.
    pub(crate) reader: &'a Mutex<BodyReader>,
}

impl BodyStream<'_> {
    pub(crate) fn reader(&self) -> MutexGuard<'_, BodyReader> {
        // Whoever has panicked has left the reader at worst with bytes that are read twice, and the request is over.
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives between 1 and `most` bytes of the body to `take`, without blocking. `most` is not 0; `take` must not come
    /// back here.
    ///
    /// # Errors
    /// When the client does not go on, or not by the rules: what came before that has been given by then. The error
    /// stays.
    pub fn read(&self, most: usize, take: &mut dyn FnMut(&[u8])) -> Result<BodyRead, BodyError> {
        self.reader().read(self.fd, most, take)
    }

    /// Receives the body to its end without blocking; what the application has not read of it stays to be read.
    ///
    /// # Errors
    /// As [`read`](Self::read)'s.
    pub fn read_ahead(&self) -> Result<ReadAhead, BodyError> {
        self.reader().read_ahead(self.fd)
    }

    /// Shows what was received after the body, as far as that is known, to `look`, which must not come back here.
    pub fn look_beyond(&self, look: &mut dyn FnMut(&[u8])) {
        look(&self.reader().rest);
    }

    /// Blocks until the client has sent something, or a signal came. When it has sent nothing for the whole timeout the
    /// next read fails.
    pub fn wait(&self) {
        let mut reader = self.reader();
        let now = fastrack_sys::monotonic_millis();
        if reader.control.is_stopping() && !reader.stopping {
            // As a client has whose body nobody reads yet.
            reader.stopping = true;
            reader.timeout = reader.timeout.min(STOP_TIME);
            reader.stalled = None;
        }
        let waited = now.saturating_sub(*reader.stalled.get_or_insert(now));
        if reader.control.is_closed() {
            // A forked child: the client is its parent's.
            reader.failure = Some(BodyError::Gone);
            return;
        }
        if waited >= reader.timeout {
            reader.failure = Some(BodyError::Refused(Error::Timeout));
            return;
        }
        // How long the client may take is not about the application.
        let left = reader.control.watch.pause();
        let result = fastrack_sys::wait_readable(self.fd, reader.timeout - waited);
        reader.control.watch.resume(left);
        if result.is_err() {
            reader.failure = Some(BodyError::Gone);
        }
    }

    /// Whether the connection can go on after the response that is about to begin: there is little left of the body, and
    /// it has come.
    pub(crate) fn is_in_reach(&self) -> bool {
        self.reader().is_in_reach(self.fd)
    }
}
