//! What a client has not taken yet of its response.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

/// What is sent of a file before other connections have their turn, in bytes.
const TURN: usize = 2 * 1024 * 1024;

/// What is shorter than this altogether is joined and sent as one, in bytes. writev(2) costs the kernel a quarter of a
/// microsecond more than send(2), over TCP and on unix sockets, at any length up to here; the copy costs less.
const JOINED: usize = 16 * 1024;

/// A part of a file, to be sent after the bytes.
#[derive(Debug)]
struct FilePart {
    file: File,
    /// Where to go on, and how much is left from there, in bytes.
    offset: u64,
    left: u64,
    /// What comes after it.
    end: &'static [u8],
}

/// Bytes in the order in which they are to be sent, and then perhaps a file.
#[derive(Debug, Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// So many of them have been sent.
    sent: usize,
    file: Option<Box<FilePart>>,
    /// The last flush has ended because others had waited for long enough.
    due: bool,
}

impl Output {
    pub fn is_empty(&self) -> bool {
        !self.has_bytes() && self.file.is_none()
    }

    fn has_bytes(&self) -> bool {
        self.sent < self.bytes.len()
    }

    /// How many bytes there are in memory.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether the client may well take more, although it was not waited for.
    pub fn is_due(&self) -> bool {
        self.due
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
        self.file = None;
        self.due = false;
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

    /// Sends slices, where nothing waits before them: how much of them the socket takes. What it does not take waits;
    /// after a failure nothing does.
    pub fn send(&mut self, fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let sent = match slices {
            [slice] => write_one(fd, slice)?,
            _ if total > JOINED => write(fd, slices)?,
            _ => return self.send_joined(fd, slices),
        };
        if sent < total {
            self.push(slices, sent);
        }
        Ok(sent)
    }

    fn send_joined(&mut self, fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.push(slices, 0);
        let result = self.flush_bytes(fd);
        if result.is_err() {
            self.clear();
        }
        result
    }

    /// Adds the first `length` bytes of a file, and what comes after them. Nothing can be added to that.
    pub fn append_file(&mut self, file: File, length: u64, end: &'static [u8]) {
        self.file = Some(Box::new(FilePart { file, offset: 0, left: length, end }));
    }

    /// Sends what the socket takes, and says how much that is. Fails with UnexpectedEof when a file is shorter than it
    /// was said to be.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        self.due = false;
        let mut total = self.flush_bytes(fd)?;
        if self.has_bytes() {
            return Ok(total);
        }
        if let Some(part) = &mut self.file {
            total += part.send(fd)?;
            if part.left > 0 {
                self.due = total >= TURN;
                return Ok(total);
            }
            let end = part.end;
            self.file = None;
            self.push(&[IoSlice::new(end)], 0);
            total += self.flush_bytes(fd)?;
        }
        Ok(total)
    }

    fn flush_bytes(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let mut total = 0;
        while self.has_bytes() {
            let slice = &self.bytes[self.sent..];
            let sent = if self.file.is_some() { write_more(fd, slice)? } else { write_one(fd, slice)? };
            self.sent += sent;
            total += sent;
            if sent == 0 {
                self.make_room();
                return Ok(total);
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(total)
    }

    /// Lets go of what was sent, once that is the greater part.
    fn make_room(&mut self) {
        if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Takes the contents out, and with them their memory.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Returns memory beyond `most` bytes, if there are no bytes in it.
    pub fn shrink(&mut self, most: usize) {
        if !self.has_bytes() && self.bytes.capacity() > most {
            self.bytes = Vec::new();
            self.sent = 0;
        }
    }
}

impl FilePart {
    /// Sends what the socket takes, but not for longer than a turn.
    fn send(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let mut total = 0;
        while self.left > 0 && total < TURN {
            let most = usize::try_from(self.left).unwrap_or(TURN).min(TURN - total);
            let sent = once(|| fastrack_sys::send_file(fd, &self.file, self.offset, most))?;
            match sent {
                None => break,
                Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(sent) => {
                    self.offset += sent as u64;
                    self.left -= sent as u64;
                    total += sent;
                }
            }
        }
        Ok(total)
    }
}

/// One send; a socket that takes nothing now has taken 0.
pub(crate) fn write_one(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(once(|| fastrack_sys::send(fd, bytes))?.unwrap_or(0))
}

/// One writev; a socket that takes nothing now has taken 0.
fn write(fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(once(|| fastrack_sys::writev(fd, slices))?.unwrap_or(0))
}

/// One send of bytes that more will follow at once; a socket that takes nothing now has taken 0.
pub(crate) fn write_more(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(once(|| fastrack_sys::send_more(fd, bytes))?.unwrap_or(0))
}

/// A call that is repeated when a signal interrupts it; None when it would have had to wait.
fn once(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            result => return result.map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn pair() -> (UnixStream, UnixStream) {
        let (client, server) = UnixStream::pair().expect("a pair");
        server.set_nonblocking(true).expect("nonblocking");
        (client, server)
    }

    /// What arrives of all that is flushed.
    fn received(output: &mut Output, client: &mut UnixStream, server: &UnixStream) -> Vec<u8> {
        let mut received = Vec::new();
        while !output.is_empty() {
            let before = output.len();
            let has_file = output.file.is_some();
            let sent = output.flush(server.as_fd()).expect("flush");
            assert!(has_file || output.len() == before - sent);
            let mut part = vec![0; sent];
            client.read_exact(&mut part).expect("read");
            received.extend(part);
        }
        received
    }

    #[test]
    fn what_is_pushed_arrives_in_order_however_slowly_it_is_taken() {
        let (mut client, server) = pair();
        let expected: Vec<u8> = (0..3_000_000).map(|index| (index % 251) as u8).collect();
        let mut output = Output::default();
        output.push(&[IoSlice::new(b"sent"), IoSlice::new(&expected[..10]), IoSlice::new(&[])], 4);
        output.push(&[IoSlice::new(&expected[10..])], 0);
        assert!(received(&mut output, &mut client, &server) == expected);
        output.shrink(0);
        assert_eq!(output.len(), 0);
    }

    #[test]
    fn slices_arrive_in_order_joined_or_not_and_the_rest_when_there_is_room() {
        for length in [1, JOINED - 4, JOINED - 3, 2 * JOINED, 1_000_000] {
            let (mut client, server) = pair();
            let body = vec![b'b'; length];
            let mut output = Output::default();
            let whole = [b"head", &body[..]].concat();
            let several = [IoSlice::new(b"head"), IoSlice::new(&[]), IoSlice::new(&body)];
            for slices in [&several[..], &[IoSlice::new(&whole)]] {
                let sent = output.send(server.as_fd(), slices).expect("send");
                assert!(sent > 0 && output.len() == 4 + length - sent, "{length}");
                let mut all = vec![0; sent];
                client.read_exact(&mut all).expect("read");
                all.extend(received(&mut output, &mut client, &server));
                assert!(all == whole, "{length}");
            }
        }
    }

    #[test]
    fn what_fails_to_be_sent_does_not_wait() {
        for length in [1, 2 * JOINED] {
            let (client, server) = pair();
            drop(client);
            let mut output = Output::default();
            let bytes = vec![0; length];
            for slices in [&[IoSlice::new(&bytes)][..], &[IoSlice::new(&bytes), IoSlice::new(b"end")]] {
                output.send(server.as_fd(), slices).expect_err("nobody is there");
                assert!(output.is_empty(), "{length}");
            }
        }
    }

    #[test]
    fn a_file_arrives_after_the_bytes_and_before_its_end_and_no_more_of_it_than_was_said() {
        let (mut client, server) = pair();
        let content: Vec<u8> = (0..3_000_000).map(|index| (index % 253) as u8).collect();
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&content).expect("write");
        file.write_all(b"it has grown").expect("write");
        let mut output = Output::default();
        output.push(&[IoSlice::new(b"head")], 0);
        output.append_file(file, content.len() as u64, b"end");
        let all = received(&mut output, &mut client, &server);
        assert!(all == [b"head", &content[..], b"end"].concat());
        assert!(!output.is_due());
    }

    #[test]
    fn a_file_that_has_shrunk_is_an_error_not_an_end() {
        let (_client, server) = pair();
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"short").expect("write");
        let mut output = Output::default();
        output.append_file(file, 6, b"");
        let error = output.flush(server.as_fd()).expect_err("shrunk");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        output.clear();
        assert!(output.is_empty());
    }

    #[test]
    fn a_long_file_leaves_others_their_turn() {
        let (mut client, server) = pair();
        // A reader that keeps up, so that the socket always takes more.
        let reader = std::thread::spawn(move || {
            let mut sink = Vec::new();
            client.read_to_end(&mut sink).map(|_| sink.len())
        });
        server.set_nonblocking(false).expect("blocking");
        let length = 2 * TURN + 1;
        let file = tempfile::tempfile().expect("a file");
        file.set_len(length as u64).expect("length");
        let mut output = Output::default();
        output.append_file(file, length as u64, b"");
        for (sent, due) in [(TURN, true), (TURN, true), (1, false)] {
            assert_eq!(output.flush(server.as_fd()).expect("flush"), sent);
            assert_eq!(output.is_due(), due);
        }
        assert!(output.is_empty());
        drop(server);
        assert_eq!(reader.join().expect("joined").expect("read"), length);
    }
}
