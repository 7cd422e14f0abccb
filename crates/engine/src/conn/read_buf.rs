//! Buffers for received requests, and a pool to reuse them.

use std::io;
use std::os::fd::BorrowedFd;

use fastrack_http::{Error, Forwarded, Head, Status};

use crate::settings::Settings;

/// The size of one receive, in bytes: nearly always more than a whole request.
pub(super) const READ_SIZE: usize = 16 * 1024;

/// Capacity that a buffer may keep between requests, in bytes: enough for a form, a page or a small upload.
pub(super) const MAX_KEPT_CAPACITY: usize = 256 * 1024;

/// Buffers in the pool.
const MAX_POOLED: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct ReadBuf {
    /// The head, and after it a body that is not moved elsewhere.
    pub bytes: Vec<u8>,
    /// The parsed head: ranges of `bytes`.
    pub head: Head,
    /// A decoded body.
    pub decoded: Vec<u8>,
    /// The bytes after a decoded body: the next request.
    pub rest: Vec<u8>,
    /// The decoded path, if the settings ask for it.
    pub path: Vec<u8>,
}

impl ReadBuf {
    /// Parses the head at the beginning of the bytes, which came by this listener. The server's own proxy has judged it as the client sent it.
    pub fn parse_head(&mut self, listener: usize, settings: &Settings) -> Result<Status, Error> {
        if settings.proxy_listener != Some(listener) {
            return self.head.parse(&self.bytes, settings.limits);
        }
        if self.head.parse(&self.bytes, settings.limits.behind_proxy())? == Status::Partial {
            return Ok(Status::Partial);
        }
        if let Some(target) = Forwarded::of(&self.head, &self.bytes).and_then(|client| client.target) {
            self.head.replace_target(target, &self.bytes)?;
        }
        Ok(Status::Complete)
    }
}

/// The buffers are boxed so that a connection and the pool exchange pointers.
#[derive(Debug, Default)]
pub(crate) struct ReadBufPool(#[allow(clippy::vec_box)] Vec<Box<ReadBuf>>);

impl ReadBufPool {
    pub fn take(&mut self) -> Box<ReadBuf> {
        self.0.pop().unwrap_or_default()
    }

    /// Frees the unused buffers.
    pub fn release(&mut self) {
        self.0 = Vec::new();
    }

    pub fn give_back(&mut self, mut buf: Box<ReadBuf>) {
        if self.0.len() >= MAX_POOLED {
            return;
        }
        let ReadBuf { bytes, decoded, rest, path, .. } = &mut *buf;
        for buffer in [bytes, decoded, rest, path] {
            buffer.clear();
            if buffer.capacity() > MAX_KEPT_CAPACITY {
                // Replaced, not shrunk: shrinking may need memory.
                *buffer = Vec::new();
            }
        }
        // The head is parsed again for each request. A buffer with the rest of a response has no head.
        buf.head.len = 0;
        self.0.push(buf);
    }
}

/// The result of one receive.
pub(super) enum Received {
    Bytes(usize),
    /// No bytes have arrived.
    Nothing,
    /// The client has closed the connection, or it is broken.
    End,
    /// No memory is available for the bytes.
    NoMemory,
}

/// Receives up to `most` bytes and appends them to `buffer`.
pub(super) fn receive(fd: BorrowedFd<'_>, buffer: &mut Vec<u8>, most: usize) -> Received {
    loop {
        return match fastrack_sys::recv(fd, buffer, most) {
            Ok(0) => Received::End,
            Ok(got) => Received::Bytes(got),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::Nothing,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Received::NoMemory,
            Err(_) => Received::End,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrack_http::Limits;

    #[test]
    fn a_buffer_that_is_used_again_knows_nothing_of_the_last_request() {
        let mut pool = ReadBufPool::default();
        let mut buf = pool.take();
        buf.bytes.extend_from_slice(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        buf.head.parse(&buf.bytes, Limits::default()).expect("a head");
        pool.give_back(buf);
        let buf = pool.take();
        assert_eq!((buf.bytes.len(), buf.head.len), (0, 0));
    }
}
