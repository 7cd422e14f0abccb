//! A request's body while it comes in.
//!
//! Up to 1 MiB it stays in memory: a body of known length where it was
//! received, right after the head; a chunked one beside it, decoded. A larger
//! one goes to a file that has no name any more, so that nothing is left
//! behind whatever becomes of this process.

use std::fs::File;
use std::io::{Seek, Write};

use fastrack_http::{ChunkedDecoder, Error, Framing, Status};

use crate::conn::read_buf::{Input, READ_SIZE};
use crate::settings::Settings;

/// The longest body that is kept in memory, in bytes.
const MEMORY: u64 = 1024 * 1024;

/// What one read of a long body asks for.
pub(crate) const LONG_READ: usize = 64 * 1024;

/// A read asks for this much more than is due, to notice what should not be there: more than a CRLF.
pub(crate) const BEYOND: usize = 3;

#[derive(Debug)]
pub(crate) enum Body {
    /// There is none, or one of length 0.
    None,
    /// So many bytes after the head, in the input.
    InPlace(usize),
    /// Decoded into the input's second buffer, or its file, as it comes.
    Chunked { decoder: Box<ChunkedDecoder>, file: Option<File>, length: u64 },
    /// In a file; `left` bytes are still to come.
    Spooled { file: File, length: u64, left: u64 },
}

impl Body {
    /// The body that a head announces.
    pub fn of(input: &mut Input, settings: &Settings) -> Result<Self, Error> {
        Ok(match input.head.framing {
            Framing::None | Framing::Length(0) => Body::None,
            Framing::Length(length) => {
                check_length(length, settings.max_body)?;
                match usize::try_from(length) {
                    Ok(in_place) if length <= MEMORY => Body::InPlace(in_place),
                    _ => Body::Spooled { file: spool(settings)?, length, left: length },
                }
            }
            Framing::Chunked => Body::Chunked { decoder: Box::default(), file: None, length: 0 },
        })
    }

    /// How many bytes the next read should ask for.
    pub fn wanted(&self, input: &Input) -> usize {
        match self {
            Body::None => READ_SIZE,
            Body::InPlace(length) => {
                (input.head.len + length).saturating_sub(input.bytes.len()).saturating_add(BEYOND)
            }
            Body::Chunked { .. } => LONG_READ,
            Body::Spooled { left, .. } => {
                usize::try_from(*left).unwrap_or(LONG_READ).saturating_add(BEYOND).min(LONG_READ)
            }
        }
    }

    /// Takes in what was received after the head, and says whether that is all.
    ///
    /// Bytes beyond the end are the next request of a connection that goes on. On
    /// one that carries no other they are an error: they would be somebody's smuggled second request.
    pub fn take(&mut self, input: &mut Input, settings: &Settings) -> Result<Status, Error> {
        let at = input.head.len;
        let nothing_beyond = if goes_on(input, settings) { anything_beyond } else { nothing_beyond };
        match self {
            // Without a body what follows is another request (RFC 9112 §9.3.2): on a connection that closes
            // after the first one it is not heard, which harms nobody.
            Body::None if input.head.framing == Framing::None => Ok(Status::Complete),
            Body::None => nothing_beyond(&input.bytes[at..]),
            Body::InPlace(length) => match input.bytes.get(at + *length..) {
                Some(beyond) => nothing_beyond(beyond),
                None => Ok(Status::Partial),
            },
            Body::Spooled { file, left, .. } => {
                let received = &input.bytes[at..];
                let due = usize::try_from(*left).unwrap_or(usize::MAX).min(received.len());
                let (due, beyond) = received.split_at(due);
                file.write_all(due).map_err(|_| Error::Storage)?;
                *left -= due.len() as u64;
                let status = if *left == 0 { nothing_beyond(beyond)? } else { Status::Partial };
                input.rest.extend_from_slice(beyond);
                input.bytes.truncate(at);
                if status == Status::Complete {
                    file.rewind().map_err(|_| Error::Storage)?;
                }
                Ok(status)
            }
            Body::Chunked { decoder, file, length } => {
                let Input { bytes, decoded, rest, .. } = input;
                let (status, used) = decoder.decode(&bytes[at..], |data| {
                    *length += data.len() as u64;
                    check_length(*length, settings.max_body)?;
                    decoded.extend_from_slice(data);
                    Ok(())
                })?;
                if status == Status::Complete {
                    let _ = nothing_beyond(&bytes[at + used..])?;
                    rest.extend_from_slice(&bytes[at + used..]);
                }
                bytes.truncate(at);
                if *length > MEMORY {
                    spill(decoded, file, settings)?;
                }
                if let (Status::Complete, Some(file)) = (status, file) {
                    file.rewind().map_err(|_| Error::Storage)?;
                }
                Ok(status)
            }
        }
    }
}

pub(crate) fn check_length(length: u64, most: Option<u64>) -> Result<(), Error> {
    match most {
        Some(most) if length > most => Err(Error::BodyTooLarge),
        _ => Ok(()),
    }
}

/// Moves decoded data to the file.
fn spill(decoded: &mut Vec<u8>, file: &mut Option<File>, settings: &Settings) -> Result<(), Error> {
    let file = match file {
        Some(file) => file,
        None => file.insert(spool(settings)?),
    };
    file.write_all(decoded).map_err(|_| Error::Storage)?;
    decoded.clear();
    Ok(())
}

fn spool(settings: &Settings) -> Result<File, Error> {
    tempfile::tempfile_in(&settings.tmpdir).map_err(|_| Error::Storage)
}

/// Whether another request may follow on this connection.
pub(crate) fn goes_on(input: &Input, settings: &Settings) -> bool {
    settings.keep_alive && input.head.is_persistent()
}

fn anything_beyond(_: &[u8]) -> Result<Status, Error> {
    Ok(Status::Complete)
}

/// A lone CRLF after a body is what old clients send (RFC 9112 §2.2), and means nothing.
pub(crate) fn nothing_beyond(beyond: &[u8]) -> Result<Status, Error> {
    match beyond {
        b"" | b"\r" | b"\r\n" => Ok(Status::Complete),
        _ => Err(Error::Framing),
    }
}
