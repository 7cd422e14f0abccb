//! What of a connection another process needs to go on with it.

use std::borrow::Cow;
use std::fs::File;

use fastrack_http::{percent_decode, Error, Status};

use super::body::BufferedBody;
use super::read_buf::{ReadBuf, ReadBufPool};
use super::write_buf::FilePart;
use super::{Connection, State, Step};
use crate::settings::Settings;

/// How far a connection is. The numbers are those in a handoff message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing, or the beginning of a request, or a whole one that is still as received.
    Request = 0,
    /// A request with a decoded body.
    WholeBody = 1,
    /// A request with the beginning of a body.
    PartOfBody = 2,
    /// The rest of a response, after which the connection is kept alive, or closed.
    Response = 3,
    LastResponse = 4,
    /// Refused: see [`Connection::drain`].
    Draining = 5,
}

impl Kind {
    pub fn of(number: u8) -> Option<Self> {
        use Kind::*;
        [Request, WholeBody, PartOfBody, Response, LastResponse, Draining]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }

    /// Whether it is the client's turn: to take a response, or to send the rest of a body.
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
    /// What was received. Then the decoded body, or the rest of a response. Then what came after the request; or what
    /// brings a decoder to where this one is, for a part of a body.
    pub parts: [Cow<'a, [u8]>; 3],
    /// What is in a file: the body, or a part of the rest of a response, after the bytes or [before](Self::is_spool) them.
    /// Where it begins, and its length. Without a file, `length` is until when input is [discarded](Connection::drain).
    pub file: Option<&'a File>,
    pub offset: u64,
    pub length: u64,
    /// Whether the end of the last chunk follows the file.
    pub ends_chunk: bool,
    /// Whether the file is before the bytes of the rest of a response.
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
    /// What another process needs to go on; None while the application reads the body.
    pub fn transfer(&self) -> Option<Transfer<'_>> {
        let buf = self.read_buf.as_deref();
        let [received, decoded, rest] =
            buf.map_or([&[][..]; 3], |buf| [&buf.bytes[..], &buf.decoded[..], &buf.rest[..]]);
        let head = buf.map_or(0, |buf| buf.head.len);
        Some(match &self.state {
            State::Head | State::Unread | State::Body(BufferedBody::None) => {
                Transfer::new(Kind::Request, [received, &[], &[]])
            }
            State::Body(BufferedBody::InPlace(length)) => {
                let kind = if received.len() < head + length { Kind::PartOfBody } else { Kind::Request };
                Transfer::new(kind, [received, &[], &[]])
            }
            State::Body(BufferedBody::Decoded { frame, file, length }) => {
                let mut transfer = Transfer::new(Kind::WholeBody, [received, decoded, rest]);
                if let Some(replay) = frame.replay() {
                    transfer.kind = Kind::PartOfBody;
                    transfer.parts[2] = Cow::Owned(replay);
                }
                Transfer { file: file.as_ref(), length: *length, ..transfer }
            }
            State::Sending { keep_alive, .. } => {
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
            State::Draining { latest } => {
                Transfer { length: *latest, ..Transfer::new(Kind::Draining, [&[]; 3]) }
            }
            State::Stream(_) => return None,
        })
    }

    /// Goes on with what was transferred of another process's connection, whose parts are in the buffer. Says how far its
    /// request is.
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
                let loaded = load_body(&mut buf, kind, file, length, settings);
                self.read_buf = Some(buf);
                return match loaded {
                    Ok(body) => {
                        self.state = State::Body(body);
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
                // Nobody knows here whether the end of the process resets it: then its end in order undoes that.
                let is_last = kind == Kind::LastResponse;
                self.state = State::Sending { keep_alive: !is_last, resets: is_last };
                // Nobody knows here whether the client is still sending: then the close has to linger.
                self.last_read_was_full = is_last;
                buf.decoded.clear();
            }
            Kind::Draining => self.state = State::Draining { latest: length },
        }
        if buf.bytes.is_empty() && buf.rest.is_empty() {
            pool.give_back(buf);
        } else {
            self.read_buf = Some(buf);
        }
        Step::Wait
    }
}

/// What comes besides the bytes: see [`Transfer`].
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
    settings: &Settings,
) -> Result<BufferedBody, Error> {
    if buf.head.parse(&buf.bytes, settings.limits)? == Status::Partial {
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
