//! The part of a response that the client has not taken yet.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use super::spool::Tracked;

/// What is sent of a file before other connections get a turn, in bytes.
const FILE_SLICE: usize = 2 * 1024 * 1024;

/// Slices shorter than this altogether are copied and sent as one, in bytes. writev(2) costs the kernel a quarter
/// of a microsecond more than send(2), over TCP and on unix sockets, at any length up to here; the copy costs less.
const JOINED: usize = 16 * 1024;

/// What follows a file that is sent as a chunk, the last one.
const CHUNK_ENDS: &[u8] = b"\r\n0\r\n\r\n";

#[derive(Debug)]
pub(super) struct FilePart {
    /// Before the file, because it is dropped before.
    pub _tracked: Option<Tracked>,
    pub file: File,
    pub offset: u64,
    pub left: u64,
    /// It is a chunk.
    pub ends_chunk: bool,
    /// It holds what was passed before the bytes, which go to its end when they are too many.
    pub is_spool: bool,
}

/// Bytes in the order in which they are to be sent, and then perhaps a file. Or a spool, and then the bytes.
#[derive(Debug, Default)]
pub(crate) struct WriteBuf {
    bytes: Vec<u8>,
    sent: usize,
    file: Option<Box<FilePart>>,
    /// The last flush stopped to let others have a turn, not because the socket was full.
    more: bool,
    /// The spool has no room, or cannot be written.
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

    /// Whether the socket may take more right away.
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

    /// Adds the slices, which have `total` bytes, and fails as [`push`](Self::push).
    #[inline]
    fn push_all(&mut self, slices: &[IoSlice<'_>], total: usize) -> io::Result<()> {
        fastrack_sys::reserve(&mut self.bytes, total)?;
        slices.iter().for_each(|slice| self.bytes.extend_from_slice(slice));
        Ok(())
    }

    /// Adds the first `length` bytes of a file, and the end of the last chunk after them if that `ends_chunk`. Nothing
    /// can be added to that.
    pub fn push_file(&mut self, file: File, length: u64, ends_chunk: bool) {
        let part = FilePart { _tracked: None, file, offset: 0, left: length, ends_chunk, is_spool: false };
        self.file = Some(Box::new(part));
    }

    /// Moves the bytes to the end of the spool, which `create` makes if there is none. False if the spool would be longer than
    /// `most` bytes. Nothing has changed then, and after a failure.
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

    /// Whether a part of what was passed is in a file, and is sent before the bytes.
    pub fn has_spool(&self) -> bool {
        self.file.as_ref().is_some_and(|part| part.is_spool)
    }

    /// Whether a file of the application's follows the bytes.
    pub fn has_file(&self) -> bool {
        self.file.as_ref().is_some_and(|part| !part.is_spool)
    }

    /// The bytes that are left, before the [file](Self::file), or after it if that is a spool.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(super) fn file(&self) -> Option<&FilePart> {
        self.file.as_deref()
    }

    /// Takes over what another process has not sent: bytes, and a part of a file.
    pub(super) fn load(&mut self, bytes: &[u8], file: Option<FilePart>) {
        self.bytes.extend_from_slice(bytes);
        self.file = file.map(Box::new);
    }

    /// Whether slices, and what the buffer holds, are short enough to be sent as one, and no more than `most` bytes.
    pub fn has_room_for(&self, slices: &[IoSlice<'_>], most: usize) -> bool {
        self.len() + total(slices) <= most.min(JOINED)
    }

    /// Sends slices, after what the buffer holds: it takes what the socket does not. It is empty after a failure. Returns how much the
    /// socket took.
    pub fn send(&mut self, fd: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let total = total(slices);
        if total <= JOINED && (slices.len() != 1 || self.has_bytes()) {
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

    /// Returns how much the socket took. Fails with UnexpectedEof if a file turns out to be shorter than its length.
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

    /// What fills no packet waits for the file if one `follows`.
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

/// One send(2). Returns 0 when the socket is full.
pub(super) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    Ok(retry(|| fastrack_sys::send(fd, bytes))?.unwrap_or(0))
}

#[inline(never)]
fn send_more(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
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
mod tests;
