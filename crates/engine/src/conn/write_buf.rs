//! The unsent part of a response.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use super::spool::Tracked;

/// Bytes of a file that are sent before other connections get a turn. Bench: workloads `slow` and `file`.
const FILE_BYTES_PER_TURN: usize = 2 * 1024 * 1024;

/// Slices up to this total length are copied and sent as one, in bytes. Up to this length, a writev(2) costs a quarter
/// of a microsecond more than a send(2), over TCP and on unix sockets, and the copy costs less. Bench: workload
/// `browser-keepalive`.
const MAX_JOINED: usize = 16 * 1024;

/// The end of a chunk and the last chunk, after a file that is sent as a chunk.
const CHUNK_ENDS: &[u8] = b"\r\n0\r\n\r\n";

#[derive(Debug)]
pub(super) struct FilePart {
    // INVARIANT: declared before `file`, because it must be dropped first.
    pub _tracked: Option<Tracked>,
    pub file: File,
    pub offset: u64,
    pub left: u64,
    /// [`CHUNK_ENDS`] follows the file.
    pub ends_chunk: bool,
    /// The file is a spool: it precedes the bytes of the buffer, and too many bytes are moved to its end.
    pub is_spool: bool,
}

/// Unsent bytes, followed by an optional file; or a spool, followed by the bytes.
#[derive(Debug, Default)]
pub(crate) struct WriteBuf {
    bytes: Vec<u8>,
    sent: usize,
    file: Option<Box<FilePart>>,
    /// The last flush stopped at [`FILE_BYTES_PER_TURN`], not at a full socket.
    more: bool,
    /// The spool is full, or cannot be written.
    pub spool_ended: bool,
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

    /// Whether the socket may accept more right away.
    pub fn has_more_to_send(&self) -> bool {
        self.more
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
        self.file = None;
        self.more = false;
        self.spool_ended = false;
    }

    /// Adds the slices without their first `sent` bytes. Adds nothing if this fails with OutOfMemory.
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

    /// Adds the slices, `total` bytes together. Fails as [`push`](Self::push) does.
    #[inline]
    fn push_all(&mut self, slices: &[IoSlice<'_>], total: usize) -> io::Result<()> {
        fastrack_sys::reserve(&mut self.bytes, total)?;
        slices.iter().for_each(|slice| self.bytes.extend_from_slice(slice));
        Ok(())
    }

    /// Adds the first `length` bytes of a file, and [`CHUNK_ENDS`] if the file `ends_chunk`. Nothing can be added after
    /// a file.
    pub fn push_file(&mut self, file: File, length: u64, ends_chunk: bool) {
        let part = FilePart { _tracked: None, file, offset: 0, left: length, ends_chunk, is_spool: false };
        self.file = Some(Box::new(part));
    }

    /// Moves the bytes to the end of the spool, and makes the spool by `create` if there is none. Returns false if the
    /// spool would exceed `most` bytes. Changes nothing in that case, or if this fails.
    pub fn spool(
        &mut self,
        most: u64,
        create: impl FnOnce() -> io::Result<(File, Tracked)>,
    ) -> io::Result<bool> {
        let length = self.len() as u64;
        let end = self.file.as_ref().map_or(0, |part| part.offset + part.left);
        if end.saturating_add(length) > most || self.file.as_ref().is_some_and(|part| !part.is_spool) {
            return Ok(false);
        }
        match &mut self.file {
            Some(part) => {
                part.file.write_all_at(&self.bytes[self.sent..], end)?;
                part.left += length;
            }
            none => {
                let (file, tracked) = create()?;
                file.write_all_at(&self.bytes[self.sent..], 0)?;
                let _tracked = Some(tracked);
                let part =
                    FilePart { _tracked, file, offset: 0, left: length, ends_chunk: false, is_spool: true };
                *none = Some(Box::new(part));
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Whether a spool precedes the bytes.
    pub fn has_spool(&self) -> bool {
        self.file.as_ref().is_some_and(|part| part.is_spool)
    }

    /// Whether a file of the application follows the bytes.
    pub fn has_file(&self) -> bool {
        self.file.as_ref().is_some_and(|part| !part.is_spool)
    }

    /// The unsent bytes: before the [file](Self::file), or after a spool.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(super) fn file(&self) -> Option<&FilePart> {
        self.file.as_deref()
    }

    /// Takes over the unsent bytes and file of another process.
    pub(super) fn load(&mut self, bytes: &[u8], file: Option<FilePart>) {
        self.bytes.extend_from_slice(bytes);
        self.file = file.map(Box::new);
    }

    /// Whether the slices and the buffered bytes are short enough to be sent as one, and at most `most` bytes.
    pub fn has_room_for(&self, slices: &[IoSlice<'_>], most: usize) -> bool {
        self.len() + total(slices) <= most.min(MAX_JOINED)
    }

    /// Sends the buffered bytes and then the slices, and buffers the bytes that the socket does not accept. The buffer
    /// is empty after a failure. Returns the number of bytes sent.
    pub fn send(&mut self, fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let total = total(slices);
        if total <= MAX_JOINED && (slices.len() != 1 || self.has_bytes()) {
            self.push_all(slices, total)?;
            return self.flush_bytes(fd, false).inspect_err(|_| self.clear());
        }
        let before = self.flush_bytes(fd, true).inspect_err(|_| self.clear())?;
        if self.has_bytes() {
            self.push_all(slices, total)?;
            return Ok(before);
        }
        let sent = match slices {
            [slice] => send(fd, slice)?,
            _ => retry(|| fastrack_sys::writev(fd, slices))?.unwrap_or(0),
        };
        if sent < total {
            self.push(slices, sent)?;
        }
        Ok(before + sent)
    }

    /// Sends the buffered bytes and the file. Returns the number of bytes sent. Fails with UnexpectedEof if the file is
    /// shorter than its length.
    pub fn flush(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        self.more = false;
        let mut total = 0;
        if !self.has_spool() {
            total = self.flush_bytes(fd, self.file.is_some())?;
            if self.has_bytes() {
                return Ok(total);
            }
        }
        if let Some(part) = &mut self.file {
            total += part.send(fd)?;
            if part.left > 0 {
                self.more = total >= FILE_BYTES_PER_TURN;
                return Ok(total);
            }
            let end = if part.ends_chunk { CHUNK_ENDS } else { b"" };
            self.file = None;
            self.push(&[IoSlice::new(end)], 0)?;
            total += self.flush_bytes(fd, false)?;
        }
        Ok(total)
    }

    /// Sends the bytes. If a file `follows`, an incomplete packet waits for the file.
    fn flush_bytes(&mut self, fd: BorrowedFd<'_>, follows: bool) -> io::Result<usize> {
        let mut total = 0;
        while self.has_bytes() {
            let bytes = &self.bytes[self.sent..];
            let sent = if follows { send_more(fd, bytes)? } else { send(fd, bytes)? };
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

    /// Frees an empty buffer with a capacity above `most` bytes.
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
        while self.left > 0 && total < FILE_BYTES_PER_TURN {
            let budget = FILE_BYTES_PER_TURN - total;
            let most = usize::try_from(self.left).unwrap_or(budget).min(budget);
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

/// One send(2). Returns 0 when the socket is full.
pub(super) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(retry(|| fastrack_sys::send(fd, bytes))?.unwrap_or(0))
}

#[inline(never)]
fn send_more(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(retry(|| fastrack_sys::send_more(fd, bytes))?.unwrap_or(0))
}

/// Repeats a call that a signal interrupts. None if the call would block.
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
mod tests;
