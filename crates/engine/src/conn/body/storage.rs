//! The file of a long body. The disk thread writes to it ([`Disk`](crate::conn::disk::Disk)).

use std::fs::File;
use std::io;
use std::sync::Arc;

use fastrack_http::{Error, Status};
use fastrack_sys::{has_free_fds, is_out_of_fds};

use crate::conn::disk::{BodyFile, Write};

/// The longest body in memory, in bytes. A longer one goes to a file.
pub(super) const MAX_IN_MEMORY: usize = 1024 * 1024;

/// The size of one write, in bytes: at this size the wake-ups cost a twentieth of the copies. Bench: `bench/uploads`.
const WRITE_SIZE: usize = if cfg!(test) { 64 * 1024 } else { 512 * 1024 };

/// The storage of a decoded body.
#[derive(Debug, Default)]
pub(in crate::conn) struct Storage {
    /// The whole body goes to the file.
    is_long: bool,
    /// None before the first write.
    file: Option<Arc<BodyFile>>,
    /// Bytes in the file.
    length: u64,
    /// The bytes in memory must be written.
    is_due: bool,
    /// The write in progress, during which nothing is received.
    write: Option<Arc<Write>>,
}

impl Storage {
    /// For a body of this length in bytes; None if it is unknown.
    pub fn new(length: Option<u64>) -> Self {
        Storage { is_long: length.is_some_and(|length| length > MAX_IN_MEMORY as u64), ..Storage::default() }
    }

    /// Takes over the file of another process.
    pub fn loaded(self, file: Option<File>, length: u64) -> Self {
        let file = file.map(|file| Arc::new(BodyFile::loaded(file)));
        Storage { is_long: self.is_long || file.is_some(), file, length, ..self }
    }

    /// The file and the number of bytes in it.
    pub fn file(&self) -> Option<(&File, u64)> {
        self.file.as_ref().map(|file| (file.file(), self.length))
    }

    /// Notes the number of `decoded` bytes in memory, and whether the body is complete by its `status`. Returns Partial
    /// also for a complete body that must be written first.
    pub fn note(&mut self, status: Status, decoded: usize) -> Status {
        self.is_long |= decoded > MAX_IN_MEMORY;
        let is_enough = decoded >= WRITE_SIZE || status == Status::Complete && decoded > 0;
        self.is_due |= self.is_long && is_enough;
        if self.is_due {
            Status::Partial
        } else {
            status
        }
    }

    /// Makes the bytes in memory due to be written, however few they are.
    pub fn hurry(&mut self, decoded: usize) {
        self.is_long = true;
        self.is_due = decoded > 0 && self.write.is_none();
    }

    pub fn is_long(&self) -> bool {
        self.is_long
    }

    pub fn is_due(&self) -> bool {
        self.is_due
    }

    pub fn is_being_written(&self) -> bool {
        self.write.is_some()
    }

    /// Bytes of the write in progress.
    pub fn in_flight(&self) -> usize {
        self.write.as_ref().map_or(0, |write| write.len())
    }

    /// Starts a write for the connection with this key.
    pub fn begin_write(&mut self, key: usize, decoded: &mut Vec<u8>) -> Arc<Write> {
        self.is_due = false;
        let write = Arc::new(Write::new(key, self.file.clone(), self.length, std::mem::take(decoded)));
        self.write = Some(Arc::clone(&write));
        write
    }

    /// Whether no write is due or running. Returns the buffer of a finished write to `decoded`.
    pub fn end_write(&mut self, decoded: &mut Vec<u8>) -> Result<bool, Error> {
        let Some(write) = &self.write else { return Ok(!self.is_due) };
        let Some(result) = write.result() else { return Ok(false) };
        self.file = Some(result.map_err(storage_error)?);
        self.length += write.len() as u64;
        let buffer = self.write.take().and_then(Arc::into_inner).map(Write::into_buffer);
        // A small buffer was written for lack of memory, and is freed.
        *decoded = buffer.filter(|buffer| buffer.capacity() >= WRITE_SIZE).unwrap_or_default();
        Ok(true)
    }
}

fn storage_error(error: &io::Error) -> Error {
    // An error of `tempfile` with a path has no OS error number.
    if is_out_of_fds(error) || error.raw_os_error().is_none() && !has_free_fds() {
        Error::Descriptors
    } else if matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock) {
        // EAGAIN is what a thread that gets no stack fails with (pthread_create(3)).
        Error::Memory
    } else {
        Error::Storage
    }
}
