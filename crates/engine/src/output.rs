//! What a client has not taken yet of its response.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

/// Bytes in the order in which they are to be sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// So many of them have been sent.
    sent: usize,
}

impl Output {
    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
    }

    /// Adds what comes after the first `sent` bytes of the slices.
    pub fn push(&mut self, slices: &[IoSlice<'_>], sent: usize) {
        let mut skip = sent;
        for slice in slices {
            let from = skip.min(slice.len());
            self.bytes.extend_from_slice(&slice[from..]);
            skip -= from;
        }
    }

    /// Sends what the socket takes, and says how much that is.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let mut total = 0;
        while !self.is_empty() {
            let sent = write(fd, &[IoSlice::new(&self.bytes[self.sent..])])?;
            self.sent += sent;
            total += sent;
            if sent == 0 {
                self.make_room();
                return Ok(total);
            }
        }
        self.clear();
        Ok(total)
    }

    /// Lets go of what was sent, once that is the greater part.
    fn make_room(&mut self) {
        if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Takes the bytes out, and with them their memory.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Returns memory beyond `most` bytes, if there are no bytes in it.
    pub fn shrink(&mut self, most: usize) {
        if self.is_empty() && self.bytes.capacity() > most {
            self.bytes = Vec::new();
            self.sent = 0;
        }
    }
}

/// One writev; a socket that takes nothing now has taken 0.
pub(crate) fn write(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        match fastrack_sys::writev(fd, slices) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_is_pushed_arrives_in_order_however_slowly_it_is_taken() {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        server.set_nonblocking(true).expect("nonblocking");
        let expected: Vec<u8> = (0..3_000_000).map(|index| (index % 251) as u8).collect();
        let mut output = Output::default();
        output.push(&[IoSlice::new(b"sent"), IoSlice::new(&expected[..10]), IoSlice::new(&[])], 4);
        output.push(&[IoSlice::new(&expected[10..])], 0);
        let mut received = Vec::new();
        while !output.is_empty() {
            let before = output.len();
            let sent = output.flush(server.as_fd()).expect("flush");
            assert_eq!(output.len(), before - sent);
            let mut part = vec![0; sent];
            client.read_exact(&mut part).expect("read");
            received.extend(part);
        }
        assert!(received == expected);
        output.shrink(0);
        assert_eq!(output.len(), 0);
    }
}
