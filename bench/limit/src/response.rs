//! The canned response.

use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::path::Path;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::uio::writev;

use crate::connection;

/// The bytes that answer every request, in the two parts that a server would have them in.
#[derive(Debug)]
pub struct Response {
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Response {
    /// Reads the response from `path`; its head ends with the first empty line.
    ///
    /// # Errors
    /// Those of reading the file, and `InvalidData` when it has no empty line.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut head = fs::read(path)?;
        let end = head.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let end = end.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let body = head.split_off(end + 4);
        Ok(Self { head, body })
    }

    /// Sends all of it: one writev(2), unless the client reads slowly. A client that has left is
    /// no error.
    ///
    /// # Errors
    /// Any other error of writev(2) or poll(2).
    pub fn send(&self, connection: impl AsFd) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.head.len() + self.body.len() {
            let head = &self.head[sent.min(self.head.len())..];
            let body = &self.body[sent.saturating_sub(self.head.len())..];
            match writev(connection.as_fd(), &[IoSlice::new(head), IoSlice::new(body)]) {
                Ok(bytes) => sent += bytes,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => connection::wait(connection.as_fd(), PollFlags::POLLOUT)?,
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
