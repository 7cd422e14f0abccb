//! The application's view of a body that is still arriving.

use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::reader::{BodyError, BodyRead, BodyReader, ReadAhead};

/// A body that is still arriving. Only [`wait`](Self::wait) blocks; run it where other threads may go on.
#[derive(Clone, Copy, Debug)]
pub struct BodyStream<'a> {
    fd: BorrowedFd<'a>,
    /// Never contended: one thread at a time has the request.
    reader: &'a Mutex<BodyReader>,
}

impl<'a> BodyStream<'a> {
    pub(in crate::conn) fn new(fd: BorrowedFd<'a>, reader: &'a Mutex<BodyReader>) -> Self {
        BodyStream { fd, reader }
    }

    pub(super) fn reader(&self) -> MutexGuard<'_, BodyReader> {
        // At worst a panic left bytes that are read twice, and the request is over.
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes between 1 and `most` bytes of the body to `take`, without blocking. `most` must not be 0; `take` must not use
    /// this stream.
    ///
    /// # Errors
    /// When the client is gone, too slow, or has sent something wrong, after all that came before that has been read. The
    /// error stays.
    pub fn read(&self, most: usize, take: &mut dyn FnMut(&[u8])) -> Result<BodyRead, BodyError> {
        self.reader().read(self.fd, most, take)
    }

    /// Receives the body to its end without blocking, and buffers it to be read.
    ///
    /// # Errors
    /// As [`read`](Self::read)'s.
    pub fn read_ahead(&self) -> Result<ReadAhead, BodyError> {
        self.reader().read_ahead(self.fd)
    }

    /// Passes what has been received after the body to `look`, which must not use this stream.
    pub fn look_beyond(&self, look: &mut dyn FnMut(&[u8])) {
        look(self.reader().rest());
    }

    /// Blocks until the client has sent something, or a signal came. When it has sent nothing for the whole timeout the
    /// next read fails.
    pub fn wait(&self) {
        self.reader().wait(self.fd);
    }

    /// Whether the connection can go on after the response that is about to begin: the rest of the body is short and has
    /// arrived.
    pub(in crate::conn) fn is_almost_read(&self) -> bool {
        self.reader().is_almost_read(self.fd)
    }
}
