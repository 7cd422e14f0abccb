//! A body that is received whole before the application is called.
//!
//! Up to 1 MiB it stays in memory: a body of known length where it was received, right after the head; a chunked one
//! decoded beside it. A larger one goes to an unlinked file, which vanishes with the process.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use fastrack_http::{Error, Framing, Status};
use fastrack_sys::{append, has_free_fds, is_out_of_fds};

use super::framing::{check_beyond, may_be_followed, Frame, BEYOND};
use crate::conn::read_buf::{ReadBuf, READ_SIZE};
use crate::settings::Settings;

const IN_MEMORY: usize = 1024 * 1024;

#[derive(Debug)]
pub(in crate::conn) enum BufferedBody {
    /// None, or one of length 0.
    None,
    /// So many bytes after the head.
    InPlace(usize),
    /// Decoded to memory, or to a file as it arrives: its length there.
    Decoded { frame: Frame, file: Option<File>, length: u64 },
}

impl BufferedBody {
    pub fn of(buf: &ReadBuf, settings: &Settings) -> Result<Self, Error> {
        let frame = Frame::of(&buf.head);
        frame.check_length(settings.max_body)?;
        let file = match frame {
            Frame::Length(0) => return Ok(BufferedBody::None),
            Frame::Length(length) if length <= IN_MEMORY as u64 => {
                return Ok(BufferedBody::InPlace(length as usize))
            }
            Frame::Length(_) => Some(new_file(settings).map_err(storage_error)?),
            Frame::Chunked(..) => None,
        };
        Ok(BufferedBody::Decoded { frame, file, length: 0 })
    }

    /// A body that another process has received.
    pub fn complete(file: Option<File>, length: u64) -> Self {
        BufferedBody::Decoded { frame: Frame::Length(0), file, length }
    }

    /// A body of which another process has received the beginning. What is in a file is so long; `replay` is that of
    /// its [frame](Frame::replay).
    pub fn resume(buf: &ReadBuf, file: Option<File>, length: u64, replay: &[u8]) -> Result<Self, Error> {
        let mut frame = Frame::of(&buf.head);
        if let (Frame::Length(whole), None) = (&frame, &file) {
            return Ok(BufferedBody::InPlace(usize::try_from(*whole).map_err(|_| Error::BodyTooLarge)?));
        }
        frame.resume(length + buf.decoded.len() as u64, replay)?;
        if let Some(mut file) = file.as_ref() {
            file.seek(SeekFrom::Start(length)).map_err(storage_error)?;
        }
        Ok(BufferedBody::Decoded { frame, file, length })
    }

    /// Moves what has been received of an incomplete body to a file.
    pub fn spool(&mut self, buf: &mut ReadBuf, settings: &Settings) -> Result<(), Error> {
        if let BufferedBody::InPlace(whole) = *self {
            let received = &buf.bytes[buf.head.len..];
            let mut file = new_file(settings).map_err(storage_error)?;
            file.write_all(received).map_err(storage_error)?;
            let length = received.len() as u64;
            let frame = Frame::Length(whole as u64 - length.min(whole as u64));
            *self = BufferedBody::Decoded { frame, file: Some(file), length };
            buf.bytes.truncate(buf.head.len);
        } else if let BufferedBody::Decoded { file, length, .. } = self {
            *length += buf.decoded.len() as u64;
            store(file, &mut buf.decoded, Status::Partial, settings)?;
        }
        buf.decoded = Vec::new();
        let mut head = Vec::new();
        // Shrinking may also need memory. Without any, it stays.
        if head.try_reserve_exact(buf.bytes.len()).is_ok() {
            head.extend_from_slice(&buf.bytes);
            buf.bytes = head;
        }
        Ok(())
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
            BufferedBody::Decoded { frame, file, length } => {
                let (status, used) = frame.take(received, settings.max_body, &mut buf.decoded)?;
                if status == Status::Complete {
                    check_beyond(&received[used..], may_be_followed)?;
                    append(&mut buf.rest, &received[used..]).map_err(|_| Error::Memory)?;
                }
                buf.bytes.truncate(buf.head.len);
                if file.is_some() || buf.decoded.len() > IN_MEMORY {
                    *length += buf.decoded.len() as u64;
                    store(file, &mut buf.decoded, status, settings)?;
                }
                return Ok(status);
            }
        }
        Ok(Status::Complete)
    }
}

/// Moves decoded data to the file.
fn store(
    file: &mut Option<File>,
    decoded: &mut Vec<u8>,
    status: Status,
    settings: &Settings,
) -> Result<(), Error> {
    let file = match file {
        Some(file) => file,
        None => file.insert(new_file(settings).map_err(storage_error)?),
    };
    file.write_all(decoded).map_err(storage_error)?;
    decoded.clear();
    if status == Status::Complete {
        file.rewind().map_err(storage_error)?;
    }
    Ok(())
}

fn new_file(settings: &Settings) -> io::Result<File> {
    tempfile::tempfile_in(&settings.tmpdir)
}

fn storage_error(error: io::Error) -> Error {
    // An error with a path beside it has no number.
    if is_out_of_fds(&error) || error.raw_os_error().is_none() && !has_free_fds() {
        Error::Descriptors
    } else {
        Error::Storage
    }
}
