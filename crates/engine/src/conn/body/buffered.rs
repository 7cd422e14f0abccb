//! A body that is received whole before the application is called.
//!
//! Up to 1 MiB it stays in memory: a body of known length where it was received, right after the head; a chunked one
//! decoded beside it. A larger one goes to an unlinked file, which vanishes with the process.

use std::fs::File;
use std::sync::Arc;

use fastrack_http::{Error, Framing, Status};
use fastrack_sys::append;

use super::framing::{check_beyond, may_be_followed, Frame, BEYOND};
use super::storage::{Storage, IN_MEMORY};
use crate::conn::disk::Write;
use crate::conn::read_buf::{ReadBuf, READ_SIZE};
use crate::settings::Settings;

#[derive(Debug)]
pub(in crate::conn) enum BufferedBody {
    /// None, or one of length 0.
    None,
    /// So many bytes after the head.
    InPlace(usize),
    /// Decoded to memory, and to a file if it is long. Boxed: most requests have none, and drop less.
    Decoded { frame: Frame, storage: Box<Storage> },
}

impl BufferedBody {
    pub fn of(buf: &ReadBuf, settings: &Settings) -> Result<Self, Error> {
        let frame = Frame::of(&buf.head);
        frame.check_length(settings.max_body)?;
        let storage = match frame {
            Frame::Length(0) => return Ok(BufferedBody::None),
            Frame::Length(length) if length <= IN_MEMORY as u64 => {
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

    /// A body of which another process has received the beginning. What is in a file is so long; `replay` is that of
    /// its [frame](Frame::replay).
    pub fn resume(buf: &ReadBuf, file: Option<File>, length: u64, replay: &[u8]) -> Result<Self, Error> {
        let mut frame = Frame::of(&buf.head);
        let storage = match frame {
            Frame::Length(whole) if whole <= IN_MEMORY as u64 && file.is_none() && buf.decoded.is_empty() => {
                return Ok(BufferedBody::InPlace(whole as usize));
            }
            Frame::Length(whole) => Storage::new(Some(whole)),
            Frame::Chunked(..) => Storage::new(None),
        };
        frame.resume(length + buf.decoded.len() as u64, replay)?;
        Ok(BufferedBody::Decoded { frame, storage: Box::new(storage.loaded(file, length)) })
    }

    /// Has what has been received of an incomplete body moved to a file.
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
        // Shrinking may also need memory. Without any, it stays.
        if head.try_reserve_exact(buf.bytes.len()).is_ok() {
            head.extend_from_slice(&buf.bytes);
            buf.bytes = head;
        }
        Ok(())
    }

    /// What is to be written before the body goes on, for the connection with this key.
    pub fn begin_write(&mut self, key: usize, buf: &mut ReadBuf) -> Option<Arc<Write>> {
        let BufferedBody::Decoded { storage, .. } = self else { return None };
        storage.is_due().then(|| storage.begin_write(key, &mut buf.decoded))
    }

    /// Whether all that was to be written has been, and if so, whether that is the whole body.
    pub fn end_write(&mut self, buf: &mut ReadBuf) -> Result<Option<Status>, Error> {
        let BufferedBody::Decoded { frame, storage } = self else { return Ok(Some(Status::Partial)) };
        let is_whole = storage.is_being_written() && frame.is_at_end();
        Ok(storage.end_write(&mut buf.decoded)?.then_some(if is_whole {
            Status::Complete
        } else {
            Status::Partial
        }))
    }

    /// Its file, if it has one or gets one.
    pub fn storage(&self) -> Option<&Storage> {
        match self {
            BufferedBody::Decoded { storage, .. } => Some(storage),
            _ => None,
        }
    }

    pub fn next_read(&self, buf: &ReadBuf) -> usize {
        match self {
            BufferedBody::None => READ_SIZE,
            BufferedBody::InPlace(length) => (buf.head.len + length + BEYOND).saturating_sub(buf.bytes.len()),
            BufferedBody::Decoded { frame, .. } => frame.next_read(),
        }
    }

    /// Takes in what was received after the head.
    pub fn take_in(&mut self, buf: &mut ReadBuf, settings: &Settings) -> Result<Status, Error> {
        let may_be_followed = may_be_followed(buf);
        let received = &buf.bytes[buf.head.len..];
        match self {
            // Another request (RFC 9112 §9.3.2), or nothing that anybody reads.
            BufferedBody::None if buf.head.framing == Framing::None => {}
            BufferedBody::None => check_beyond(received, may_be_followed)?,
            BufferedBody::InPlace(length) => match received.get(*length..) {
                Some(beyond) => check_beyond(beyond, may_be_followed)?,
                None => return Ok(Status::Partial),
            },
            BufferedBody::Decoded { frame, storage } => {
                let (status, used) = frame.take(received, settings.max_body, &mut buf.decoded)?;
                if status == Status::Complete {
                    check_beyond(&received[used..], may_be_followed)?;
                    append(&mut buf.rest, &received[used..]).map_err(|_| Error::Memory)?;
                }
                buf.bytes.truncate(buf.head.len);
                return Ok(storage.note(status, buf.decoded.len()));
            }
        }
        Ok(Status::Complete)
    }
}
