//! The state of a connection that another process needs to continue it.

use std::borrow::Cow;
use std::fs::File;

use fastrack_http::{percent_decode, Error, Status};

use super::body::BufferedBody;
use super::read_buf::{ReadBuf, ReadBufPool};
use super::write_buf::FilePart;
use super::{Connection, ConnectionState, Step};
use crate::settings::Settings;

/// The state of a connection in a handoff message, with its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing, or the received bytes of a request, complete or not.
    Request = 0,
    /// A request with a decoded body.
    WholeBody = 1,
    /// A request with a part of a body.
    PartOfBody = 2,
    /// The rest of a response. The connection is kept alive after it.
    Response = 3,
    /// The rest of a response. The connection is closed after it.
    LastResponse = 4,
    /// A refused request: see [`Connection::drain`].
    Draining = 5,
}

impl Kind {
    pub fn of(number: u8) -> Option<Self> {
        use Kind::*;
        [Request, WholeBody, PartOfBody, Response, LastResponse, Draining]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }

    /// Whether the connection waits for its client, to receive a response or to send the rest of a body.
    pub fn needs_client(self) -> bool {
        !matches!(self, Kind::Request | Kind::WholeBody)
    }

    pub fn is_response(self) -> bool {
        matches!(self, Kind::Response | Kind::LastResponse)
    }
}

#[derive(Debug)]
pub(crate) struct Transfer<'a> {
    pub kind: Kind,
    /// First the received bytes, then the decoded body or the rest of a response, then the bytes after the request. For
    /// a part of a body the last part is the input that brings another decoder to the same position.
    pub parts: [Cow<'a, [u8]>; 3],
    /// The file of a body, or of a part of the response that follows the bytes or [precedes](Self::is_spool) them.
    pub file: Option<&'a File>,
    /// The start of the part in the file, in bytes.
    pub offset: u64,
    /// The length of the part in bytes. For [`Kind::Draining`], the end of the [drain](Connection::drain).
    pub length: u64,
    /// Whether the end of the last chunk follows the file.
    pub ends_chunk: bool,
    /// Whether the file precedes the bytes of the rest of a response.
    pub is_spool: bool,
}

impl<'a> Transfer<'a> {
    fn new(kind: Kind, parts: [&'a [u8]; 3]) -> Self {
        Transfer {
            kind,
            parts: parts.map(Cow::Borrowed),
            file: None,
            offset: 0,
            length: 0,
            ends_chunk: false,
            is_spool: false,
        }
    }
}

impl Connection {
    /// The state that another process needs; None while the application reads the body, or the disk thread writes it.
    pub fn transfer(&self) -> Option<Transfer<'_>> {
        let buf = self.read_buf.as_deref();
        let [received, decoded, rest] =
            buf.map_or([&[][..]; 3], |buf| [&buf.bytes[..], &buf.decoded[..], &buf.rest[..]]);
        let head = buf.map_or(0, |buf| buf.head.len);
        Some(match &self.state {
            ConnectionState::Head | ConnectionState::Unread | ConnectionState::Body(BufferedBody::None) => {
                Transfer::new(Kind::Request, [received, &[], &[]])
            }
            ConnectionState::Body(BufferedBody::InPlace(length)) => {
                let kind = if received.len() < head + length { Kind::PartOfBody } else { Kind::Request };
                Transfer::new(kind, [received, &[], &[]])
            }
            // The write is done soon.
            ConnectionState::Body(BufferedBody::Decoded { storage, .. })
                if storage.is_being_written() || storage.is_due() =>
            {
                return None
            }
            ConnectionState::Body(BufferedBody::Decoded { frame, storage }) => {
                let mut transfer = Transfer::new(Kind::WholeBody, [received, decoded, rest]);
                if let Some(replay) = frame.replay() {
                    transfer.kind = Kind::PartOfBody;
                    transfer.parts[2] = Cow::Owned(replay);
                }
                let (file, length) = storage.file().unzip();
                Transfer { file, length: length.unwrap_or_default(), ..transfer }
            }
            ConnectionState::Sending { keep_alive, .. } => {
                let kind = if *keep_alive { Kind::Response } else { Kind::LastResponse };
                let transfer = Transfer::new(kind, [received, self.write_buf.bytes(), rest]);
                match self.write_buf.file() {
                    None => transfer,
                    Some(part) => Transfer {
                        file: Some(&part.file),
                        offset: part.offset,
                        length: part.left,
                        ends_chunk: part.ends_chunk,
                        is_spool: part.is_spool,
                        ..transfer
                    },
                }
            }
            ConnectionState::Draining { latest } => {
                Transfer { length: *latest, ..Transfer::new(Kind::Draining, [&[]; 3]) }
            }
            ConnectionState::Stream(_) => return None,
        })
    }

    /// Continues a connection of another process, whose [parts](Transfer::parts) are in the buffer. Returns its next
    /// step.
    pub fn load(
        &mut self,
        mut buf: Box<ReadBuf>,
        transfer: Loaded,
        settings: &Settings,
        pool: &mut ReadBufPool,
    ) -> Step {
        let Loaded { kind, file, offset, length, ends_chunk, is_spool } = transfer;
        match kind {
            Kind::Request => {
                self.read_buf = Some(buf);
                return self.parse_buffered(settings);
            }
            Kind::WholeBody | Kind::PartOfBody => {
                let loaded = load_body(&mut buf, kind, file, length, self.listener, settings);
                self.read_buf = Some(buf);
                return match loaded {
                    Ok(body) => {
                        self.state = ConnectionState::Body(body);
                        if kind == Kind::WholeBody {
                            Step::Ready
                        } else {
                            Step::Wait
                        }
                    }
                    Err(error) => Step::Refuse(error),
                };
            }
            Kind::Response | Kind::LastResponse => {
                let part =
                    |file| FilePart { _tracked: None, file, offset, left: length, ends_chunk, is_spool };
                self.write_buf.load(&buf.decoded, file.map(part));
                // The other process may have set the socket to be reset. `resets` makes `end_in_order` undo that.
                let is_last = kind == Kind::LastResponse;
                self.state =
                    ConnectionState::Sending { keep_alive: !is_last, resets: is_last, _reservation: None };
                // The client may still be sending. Then the close has to linger.
                self.last_read_was_full = is_last;
                buf.decoded.clear();
            }
            Kind::Draining => self.state = ConnectionState::Draining { latest: length },
        }
        if buf.bytes.is_empty() && buf.rest.is_empty() {
            pool.give_back(buf);
        } else {
            self.read_buf = Some(buf);
        }
        Step::Wait
    }
}

/// A received [`Transfer`], without its bytes.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub kind: Kind,
    pub file: Option<File>,
    pub offset: u64,
    pub length: u64,
    pub ends_chunk: bool,
    pub is_spool: bool,
}

fn load_body(
    buf: &mut ReadBuf,
    kind: Kind,
    file: Option<File>,
    length: u64,
    listener: usize,
    settings: &Settings,
) -> Result<BufferedBody, Error> {
    if buf.parse_head(listener, settings)? == Status::Partial {
        return Err(Error::Syntax);
    }
    if settings.decode_path {
        percent_decode(buf.head.path(&buf.bytes), &mut buf.path)?;
    }
    if kind == Kind::WholeBody {
        return Ok(BufferedBody::complete(file, length));
    }
    let replay = std::mem::take(&mut buf.rest);
    BufferedBody::resume(buf, file, length, &replay)
}
