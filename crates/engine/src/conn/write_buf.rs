//! The part of a response that the client has not taken yet.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

/// What is sent of a file before other connections get a turn, in bytes.
const FILE_SLICE: usize = 2 * 1024 * 1024;

/// Slices shorter than this altogether are copied and sent as one, in bytes. writev(2) costs the kernel a quarter
/// of a microsecond more than send(2), over TCP and on unix sockets, at any length up to here; the copy costs less.
const JOINED: usize = 16 * 1024;

/// What follows a file that is sent as a chunk, the last one.
const CHUNK_ENDS: &[u8] = b"\r\n0\r\n\r\n";

#[derive(Debug)]
pub(super) struct FilePart {
    pub file: File,
    pub offset: u64,
    pub left: u64,
    /// It is a chunk.
    pub ends_chunk: bool,
}

/// Bytes in the order in which they are to be sent, and then perhaps a file.
#[derive(Debug, Default)]
pub(crate) struct WriteBuf {
    bytes: Vec<u8>,
    sent: usize,
    file: Option<Box<FilePart>>,
    /// The last flush stopped to let others have a turn, not because the socket was full.
    more: bool,
}

impl WriteBuf {
    pub fn is_empty(&self) -> bool {
        !self.has_bytes() && self.file.is_none()
    }

    fn has_bytes(&self) -> bool {
        self.sent < self.bytes.len()
    }

    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether the socket may take more right away.
    pub fn has_more_to_send(&self) -> bool {
        self.more
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
        self.file = None;
        self.more = false;
    }

    /// Adds the slices, without their first `sent` bytes. Fails with OutOfMemory, and then nothing of them was added.
    pub fn push(&mut self, slices: &[IoSlice<'_>], sent: usize) -> io::Result<()> {
        fastrack_sys::reserve(&mut self.bytes, total(slices) - sent)?;
        let mut skip = sent;
        for slice in slices {
            let from = skip.min(slice.len());
            self.bytes.extend_from_slice(&slice[from..]);
            skip -= from;
        }
        Ok(())
    }

    /// Adds the slices, which have so many bytes in `total`, and fails as [`push`](Self::push).
    #[inline]
    fn push_all(&mut self, slices: &[IoSlice<'_>], total: usize) -> io::Result<()> {
        fastrack_sys::reserve(&mut self.bytes, total)?;
        slices.iter().for_each(|slice| self.bytes.extend_from_slice(slice));
        Ok(())
    }

    /// Adds the first `length` bytes of a file, and the end of the last chunk after them if that `ends_chunk`. Nothing
    /// can be added to that.
    pub fn push_file(&mut self, file: File, length: u64, ends_chunk: bool) {
        self.file = Some(Box::new(FilePart { file, offset: 0, left: length, ends_chunk }));
    }

    /// The bytes that are left, before the [file](Self::file).
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(super) fn file(&self) -> Option<&FilePart> {
        self.file.as_deref()
    }

    /// Takes over what another process has not sent: bytes, and a part of a file.
    pub fn load(&mut self, bytes: &[u8], file: Option<(File, u64, u64, bool)>) {
        self.bytes.extend_from_slice(bytes);
        self.file = file
            .map(|(file, offset, left, ends_chunk)| Box::new(FilePart { file, offset, left, ends_chunk }));
    }

    /// Whether slices are short enough to be held back, so that more may go with them.
    pub fn may_cork(slices: &[IoSlice<'_>]) -> bool {
        total(slices) <= JOINED
    }

    /// Sends slices, after what the buffer holds: it takes what the socket does not. It is empty after a failure. The system
    /// may hold back [short](Self::may_cork) ones if it `corks`. Returns how much the socket took.
    pub fn send(&mut self, fd: BorrowedFd<'_>, slices: &[IoSlice<'_>], corks: bool) -> io::Result<usize> {
        let total = total(slices);
        if total <= JOINED && (slices.len() != 1 || self.has_bytes()) {
            self.push_all(slices, total)?;
            return self.flush_bytes(fd, corks).inspect_err(|_| self.clear());
        }
        let before = self.flush_bytes(fd, true).inspect_err(|_| self.clear())?;
        if self.has_bytes() {
            self.push_all(slices, total)?;
            return Ok(before);
        }
        let sent = match slices {
            [slice] => send(fd, slice, corks)?,
            _ => retry(|| fastrack_sys::writev(fd, slices))?.unwrap_or(0),
        };
        if sent < total {
            self.push(slices, sent)?;
        }
        Ok(before + sent)
    }

    /// Returns how much the socket took. Fails with UnexpectedEof if a file turns out to be shorter than its length.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        self.more = false;
        let mut total = self.flush_bytes(fd, self.file.is_some())?;
        if self.has_bytes() {
            return Ok(total);
        }
        if let Some(part) = &mut self.file {
            total += part.send(fd)?;
            if part.left > 0 {
                self.more = total >= FILE_SLICE;
                return Ok(total);
            }
            let end = if part.ends_chunk { CHUNK_ENDS } else { b"" };
            self.file = None;
            self.push(&[IoSlice::new(end)], 0)?;
            total += self.flush_bytes(fd, false)?;
        }
        Ok(total)
    }

    fn flush_bytes(&mut self, fd: BorrowedFd<'_>, corks: bool) -> io::Result<usize> {
        let mut total = 0;
        while self.has_bytes() {
            let sent = send(fd, &self.bytes[self.sent..], corks)?;
            self.sent += sent;
            total += sent;
            if sent == 0 {
                self.compact();
                return Ok(total);
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(total)
    }

    fn compact(&mut self) {
        if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Frees an empty buffer that is larger than `most` bytes.
    pub fn shrink(&mut self, most: usize) {
        if !self.has_bytes() && self.bytes.capacity() > most {
            self.bytes = Vec::new();
            self.sent = 0;
        }
    }
}

impl FilePart {
    fn send(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let mut total = 0;
        while self.left > 0 && total < FILE_SLICE {
            let most = usize::try_from(self.left).unwrap_or(FILE_SLICE).min(FILE_SLICE - total);
            match retry(|| fastrack_sys::send_file(fd, &self.file, self.offset, most))? {
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

fn total(slices: &[IoSlice<'_>]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}

/// One send(2), which holds back what fills no packet if it `corks`. Returns 0 when the socket is full.
pub(super) fn send(fd: BorrowedFd<'_>, bytes: &[u8], corks: bool) -> io::Result<usize> {
    if corks {
        return send_corked(fd, bytes);
    }
    Ok(retry(|| fastrack_sys::send(fd, bytes))?.unwrap_or(0))
}

#[inline(never)]
fn send_corked(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(retry(|| fastrack_sys::send_more(fd, bytes))?.unwrap_or(0))
}

/// Repeats a call that a signal interrupts. None when it would block.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
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
    fn received(buf: &mut WriteBuf, client: &mut UnixStream, server: &UnixStream) -> Vec<u8> {
        let mut received = Vec::new();
        while !buf.is_empty() {
            let before = buf.len();
            let has_file = buf.file.is_some();
            let sent = buf.flush(server.as_fd()).expect("flush");
            assert!(has_file || buf.len() == before - sent);
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
        let mut buf = WriteBuf::default();
        buf.push(&[IoSlice::new(b"sent"), IoSlice::new(&expected[..10]), IoSlice::new(&[])], 4)
            .expect("room");
        buf.push(&[IoSlice::new(&expected[10..])], 0).expect("room");
        assert!(received(&mut buf, &mut client, &server) == expected);
        buf.shrink(0);
        assert_eq!(buf.len(), 0);
    }

    #[test]
    fn slices_arrive_in_order_joined_or_not_and_the_rest_when_there_is_room() {
        for length in [1, JOINED - 4, JOINED - 3, 2 * JOINED, 1_000_000] {
            let (mut client, server) = pair();
            let body = vec![b'b'; length];
            let mut buf = WriteBuf::default();
            let whole = [b"head", &body[..]].concat();
            let several = [IoSlice::new(b"head"), IoSlice::new(&[]), IoSlice::new(&body)];
            for slices in [&several[..], &[IoSlice::new(&whole)]] {
                let sent = buf.send(server.as_fd(), slices, false).expect("send");
                assert!(sent > 0 && buf.len() == 4 + length - sent, "{length}");
                let mut all = vec![0; sent];
                client.read_exact(&mut all).expect("read");
                all.extend(received(&mut buf, &mut client, &server));
                assert!(all == whole, "{length}");
            }
        }
    }

    #[test]
    fn what_fails_to_be_sent_does_not_wait() {
        for length in [1, 2 * JOINED] {
            let (client, server) = pair();
            drop(client);
            let mut buf = WriteBuf::default();
            let bytes = vec![0; length];
            for slices in [&[IoSlice::new(&bytes)][..], &[IoSlice::new(&bytes), IoSlice::new(b"end")]] {
                buf.send(server.as_fd(), slices, false).expect_err("nobody is there");
                assert!(buf.is_empty(), "{length}");
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
        let mut buf = WriteBuf::default();
        buf.push(&[IoSlice::new(b"head")], 0).expect("room");
        buf.push_file(file, content.len() as u64, true);
        let all = received(&mut buf, &mut client, &server);
        assert!(all == [b"head", &content[..], CHUNK_ENDS].concat());
        assert!(!buf.has_more_to_send());
    }

    #[test]
    fn a_file_that_has_shrunk_is_an_error_not_an_end() {
        let (_client, server) = pair();
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"short").expect("write");
        let mut buf = WriteBuf::default();
        buf.push_file(file, 6, false);
        let error = buf.flush(server.as_fd()).expect_err("shrunk");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        buf.clear();
        assert!(buf.is_empty());
    }

    #[test]
    fn a_long_file_does_not_starve_others() {
        let (mut client, server) = pair();
        // A reader that keeps up, so that the socket always takes more.
        let reader = std::thread::spawn(move || {
            let mut sink = Vec::new();
            client.read_to_end(&mut sink).map(|_| sink.len())
        });
        server.set_nonblocking(false).expect("blocking");
        let length = 2 * FILE_SLICE + 1;
        let file = tempfile::tempfile().expect("a file");
        file.set_len(length as u64).expect("length");
        let mut buf = WriteBuf::default();
        buf.push_file(file, length as u64, false);
        for (sent, more) in [(FILE_SLICE, true), (FILE_SLICE, true), (1, false)] {
            assert_eq!(buf.flush(server.as_fd()).expect("flush"), sent);
            assert_eq!(buf.has_more_to_send(), more);
        }
        assert!(buf.is_empty());
        drop(server);
        assert_eq!(reader.join().expect("joined").expect("read"), length);
    }
}
