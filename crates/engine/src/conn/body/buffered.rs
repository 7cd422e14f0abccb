//! A body that is received whole before the application is called.
//!
//! A body up to 1 MiB stays in memory: with a known length, right after the head in the read buffer; with chunks,
//! decoded in a second buffer. A larger body goes to an unlinked file, which vanishes with the process.

use std::fs::File;
use std::sync::Arc;

use fastrack_http::{Error, Framing, Status};
use fastrack_sys::append;

use super::framing::{check_after_body, may_be_followed, Frame, TRAILING_PEEK};
use super::storage::{Storage, MAX_IN_MEMORY};
use crate::conn::disk::Write;
use crate::conn::read_buf::{ReadBuf, READ_SIZE};
use crate::settings::Settings;

#[derive(Debug)]
pub(in crate::conn) enum BufferedBody {
    /// No body, or a body of length 0.
    None,
    /// A body of this length after the head, in bytes.
    InPlace(usize),
    /// A body that is decoded to memory, and to a file if it is long. Boxed because most requests have no such body.
    Decoded { frame: Frame, storage: Box<Storage> },
}

impl BufferedBody {
    pub fn of(buf: &ReadBuf, settings: &Settings) -> Result<Self, Error> {
        let frame = Frame::of(&buf.head);
        frame.check_length(settings.max_body)?;
        let storage = match frame {
            Frame::Length(0) => return Ok(BufferedBody::None),
            Frame::Length(length) if length <= MAX_IN_MEMORY as u64 => {
                return Ok(BufferedBody::InPlace(length as usize))
            }
            Frame::Length(length) => Storage::new(Some(length)),
            Frame::Chunked(..) => Storage::new(None),
        };
        Ok(BufferedBody::Decoded { frame, storage: Box::new(storage) })
    }

    /// A body that another process has received.
    pub fn complete(file: Option<File>, length: u64) -> Self {
        let storage = Box::new(Storage::new(None).loaded(file, length));
        BufferedBody::Decoded { frame: Frame::Length(0), storage }
    }

    /// A body of which another process has received the first part. `length` is the number of bytes in the file,
    /// `replay` comes from [`Frame::replay`].
    pub fn resume(buf: &ReadBuf, file: Option<File>, length: u64, replay: &[u8]) -> Result<Self, Error> {
        let mut frame = Frame::of(&buf.head);
        let storage = match frame {
            Frame::Length(whole)
                if whole <= MAX_IN_MEMORY as u64 && file.is_none() && buf.decoded.is_empty() =>
            {
                return Ok(BufferedBody::InPlace(whole as usize));
            }
            Frame::Length(whole) => Storage::new(Some(whole)),
            Frame::Chunked(..) => Storage::new(None),
        };
        frame.resume(length + buf.decoded.len() as u64, replay)?;
        Ok(BufferedBody::Decoded { frame, storage: Box::new(storage.loaded(file, length)) })
    }

    /// Moves the received part of an incomplete body to a file.
    pub fn spool(&mut self, buf: &mut ReadBuf) -> Result<(), Error> {
        if let BufferedBody::InPlace(whole) = *self {
            let received = &buf.bytes[buf.head.len..];
            append(&mut buf.decoded, received).map_err(|_| Error::Memory)?;
            let frame = Frame::Length((whole as u64).saturating_sub(received.len() as u64));
            *self = BufferedBody::Decoded { frame, storage: Box::default() };
            buf.bytes.truncate(buf.head.len);
        }
        let BufferedBody::Decoded { storage, .. } = self else { return Ok(()) };
        storage.hurry(buf.decoded.len());
        if buf.decoded.is_empty() {
            buf.decoded = Vec::new();
        }
        let mut head = Vec::new();
        // Shrinking needs memory too. The buffer stays as it is if there is none.
        if head.try_reserve_exact(buf.bytes.len()).is_ok() {
            head.extend_from_slice(&buf.bytes);
            buf.bytes = head;
        }
        Ok(())
    }

    /// Starts the write that must be done before more of the body is received. `key` is the key of the connection.
    pub fn begin_write(&mut self, key: usize, buf: &mut ReadBuf) -> Option<Arc<Write>> {
        let BufferedBody::Decoded { storage, .. } = self else { return None };
        storage.is_due().then(|| storage.begin_write(key, &mut buf.decoded))
    }

    /// Handles the result of the last write. Returns None while a write is due or running. Complete after the last
    /// bytes of the body.
    pub fn end_write(&mut self, buf: &mut ReadBuf) -> Result<Option<Status>, Error> {
        let BufferedBody::Decoded { frame, storage } = self else { return Ok(Some(Status::Partial)) };
        let is_whole = storage.is_being_written() && frame.is_at_end();
        Ok(storage.end_write(&mut buf.decoded)?.then_some(if is_whole {
            Status::Complete
        } else {
            Status::Partial
        }))
    }

    /// The storage of a decoded body.
    pub fn storage(&self) -> Option<&Storage> {
        match self {
            BufferedBody::Decoded { storage, .. } => Some(storage),
            _ => None,
        }
    }

    pub fn next_read(&self, buf: &ReadBuf) -> usize {
        match self {
            BufferedBody::None => READ_SIZE,
            BufferedBody::InPlace(length) => {
                (buf.head.len + length + TRAILING_PEEK).saturating_sub(buf.bytes.len())
            }
            BufferedBody::Decoded { frame, .. } => frame.next_read(),
        }
    }

    /// Handles the bytes that were received after the head.
    pub fn take_in(&mut self, buf: &mut ReadBuf, settings: &Settings) -> Result<Status, Error> {
        let may_be_followed = may_be_followed(buf);
        let received = &buf.bytes[buf.head.len..];
        match self {
            // Further bytes are another request (RFC 9112 §9.3.2), or are never read.
            BufferedBody::None if buf.head.framing == Framing::None => {}
            BufferedBody::None => check_after_body(received, may_be_followed)?,
            BufferedBody::InPlace(length) => match received.get(*length..) {
                Some(after) => check_after_body(after, may_be_followed)?,
                None => return Ok(Status::Partial),
            },
            BufferedBody::Decoded { frame, storage } => {
                let (status, used) = frame.take(received, settings.max_body, &mut buf.decoded)?;
                if status == Status::Complete {
                    check_after_body(&received[used..], may_be_followed)?;
                    append(&mut buf.rest, &received[used..]).map_err(|_| Error::Memory)?;
                }
                buf.bytes.truncate(buf.head.len);
                return Ok(storage.note(status, buf.decoded.len()));
            }
        }
        Ok(Status::Complete)
    }
}
