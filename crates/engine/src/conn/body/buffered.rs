//! A body that is received whole before the application is called.
//!
//! Up to 1 MiB it stays in memory: a body of known length where it was received, right after the head; a chunked one
//! decoded beside it. A larger one goes to an unlinked file, which vanishes with the process.

use std::fs::File;
use std::io::{Seek, Write};

use fastrack_http::{ChunkedDecoder, Error, Framing, Status};

use super::framing::{check_beyond, check_length, decode, may_be_followed, next_read, BEYOND, LONG_READ};
use crate::conn::read_buf::{ReadBuf, READ_SIZE};
use crate::settings::Settings;

/// The longest body that is kept in memory, in bytes.
const IN_MEMORY: u64 = 1024 * 1024;

#[derive(Debug)]
pub(in crate::conn) enum BufferedBody {
    /// None, or one of length 0.
    None,
    /// So many bytes after the head.
    InPlace(usize),
    /// Decoded to memory or to a file as it arrives.
    Chunked { decoder: Box<ChunkedDecoder>, file: Option<File>, length: u64 },
    /// In a file; `left` bytes are still to come.
    InFile { file: File, length: u64, left: u64 },
}

impl BufferedBody {
    /// The body that a head announces.
    pub fn of(buf: &ReadBuf, settings: &Settings) -> Result<Self, Error> {
        Ok(match buf.head.framing {
            Framing::None | Framing::Length(0) => BufferedBody::None,
            Framing::Length(length) => {
                check_length(length, settings.max_body)?;
                match usize::try_from(length) {
                    Ok(in_place) if length <= IN_MEMORY => BufferedBody::InPlace(in_place),
                    _ => BufferedBody::InFile { file: create_file(settings)?, length, left: length },
                }
            }
            Framing::Chunked => Self::chunked(None, 0),
        })
    }

    /// A decoded body of this length, in a file or in the read buffer.
    pub fn chunked(file: Option<File>, length: u64) -> Self {
        BufferedBody::Chunked { decoder: Box::default(), file, length }
    }

    /// How many bytes the next receive should ask for.
    pub fn next_read(&self, buf: &ReadBuf) -> usize {
        match self {
            BufferedBody::None => READ_SIZE,
            BufferedBody::InPlace(length) => {
                (buf.head.len + length).saturating_sub(buf.bytes.len()).saturating_add(BEYOND)
            }
            BufferedBody::Chunked { .. } => LONG_READ,
            BufferedBody::InFile { left, .. } => next_read(*left),
        }
    }

    /// Takes in what was received after the head.
    pub fn take_in(&mut self, buf: &mut ReadBuf, settings: &Settings) -> Result<Status, Error> {
        let at = buf.head.len;
        let may_be_followed = may_be_followed(buf, settings);
        match self {
            // What follows a request without a body is another request (RFC 9112 §9.3.2). If the connection closes after
            // this one, ignoring it does no harm.
            BufferedBody::None if buf.head.framing == Framing::None => {}
            BufferedBody::None => check_beyond(&buf.bytes[at..], may_be_followed)?,
            BufferedBody::InPlace(length) => match buf.bytes.get(at + *length..) {
                Some(beyond) => check_beyond(beyond, may_be_followed)?,
                None => return Ok(Status::Partial),
            },
            BufferedBody::InFile { file, left, .. } => {
                let received = &buf.bytes[at..];
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(received.len());
                let (taken, beyond) = received.split_at(taken);
                file.write_all(taken).map_err(|_| Error::Storage)?;
                *left -= taken.len() as u64;
                if *left > 0 {
                    buf.bytes.truncate(at);
                    return Ok(Status::Partial);
                }
                check_beyond(beyond, may_be_followed)?;
                buf.rest.extend_from_slice(beyond);
                buf.bytes.truncate(at);
                rewind(file)?;
            }
            BufferedBody::Chunked { decoder, file, length } => {
                return take_in_chunks(buf, decoder, file, length, may_be_followed, settings);
            }
        }
        Ok(Status::Complete)
    }
}

fn take_in_chunks(
    buf: &mut ReadBuf,
    decoder: &mut ChunkedDecoder,
    file: &mut Option<File>,
    length: &mut u64,
    may_be_followed: bool,
    settings: &Settings,
) -> Result<Status, Error> {
    let ReadBuf { bytes, decoded, rest, head, .. } = buf;
    let out = |data: &[u8]| decoded.extend_from_slice(data);
    let (status, used) = decode(decoder, &bytes[head.len..], length, settings.max_body, out)?;
    if status == Status::Complete {
        let beyond = &bytes[head.len + used..];
        check_beyond(beyond, may_be_followed)?;
        rest.extend_from_slice(beyond);
    }
    bytes.truncate(head.len);
    if *length > IN_MEMORY {
        let file = match file {
            Some(file) => file,
            None => file.insert(create_file(settings)?),
        };
        file.write_all(decoded).map_err(|_| Error::Storage)?;
        decoded.clear();
    }
    if let (Status::Complete, Some(file)) = (status, file) {
        rewind(file)?;
    }
    Ok(status)
}

fn create_file(settings: &Settings) -> Result<File, Error> {
    tempfile::tempfile_in(&settings.tmpdir).map_err(|_| Error::Storage)
}

fn rewind(file: &mut File) -> Result<(), Error> {
    file.rewind().map_err(|_| Error::Storage)
}
