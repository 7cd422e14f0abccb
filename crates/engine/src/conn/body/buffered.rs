//! A body that is received whole before the application is called.
//!
//! Up to 1 MiB it stays in memory: a body of known length where it was received, right after the head; a chunked one
//! decoded beside it. A larger one goes to an unlinked file, which vanishes with the process.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use fastrack_http::{Error, Framing, Status};

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
            Frame::Length(_) => Some(tempfile::tempfile_in(&settings.tmpdir).map_err(|_| Error::Storage)?),
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
            file.seek(SeekFrom::Start(length)).map_err(|_| Error::Storage)?;
        }
        Ok(BufferedBody::Decoded { frame, file, length })
    }

    /// Moves what has been received of an incomplete body to a file.
    pub fn spool(&mut self, buf: &mut ReadBuf, settings: &Settings) -> io::Result<()> {
        if let BufferedBody::InPlace(whole) = *self {
            buf.decoded.extend(buf.bytes.drain(buf.head.len..));
            let frame = Frame::Length((whole - buf.decoded.len().min(whole)) as u64);
            *self = BufferedBody::Decoded { frame, file: None, length: 0 };
        }
        if let BufferedBody::Decoded { file, length, .. } = self {
            *length += buf.decoded.len() as u64;
            store(file, &mut buf.decoded, Status::Partial, settings)?;
            (buf.decoded, buf.bytes) = (Vec::new(), buf.bytes.as_slice().to_vec());
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
        let may_be_followed = may_be_followed(buf, settings);
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
                    buf.rest.extend_from_slice(&received[used..]);
                }
                buf.bytes.truncate(buf.head.len);
                if file.is_some() || buf.decoded.len() > IN_MEMORY {
                    *length += buf.decoded.len() as u64;
                    store(file, &mut buf.decoded, status, settings).map_err(|_| Error::Storage)?;
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
) -> io::Result<()> {
    let file = match file {
        Some(file) => file,
        None => file.insert(tempfile::tempfile_in(&settings.tmpdir)?),
    };
    file.write_all(decoded)?;
    decoded.clear();
    if status == Status::Complete {
        file.rewind()?;
    }
    Ok(())
}
