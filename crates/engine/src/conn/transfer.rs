//! What a connection takes along to another worker.

use std::fs::File;

use fastrack_http::{percent_decode, Error, Status};

use super::body::BufferedBody;
use super::read_buf::ReadBuf;
use super::{Connection, State};
use crate::settings::Settings;

/// What has been read of a connection.
pub(crate) struct Contents<'a> {
    pub read_buf: Option<&'a ReadBuf>,
    /// A decoded body: its file, unless it is in the buffer, and its length.
    pub body: Option<(Option<&'a File>, u64)>,
}

impl Connection {
    /// What another process needs to go on with this connection. None if it must stay in this process: it has a response
    /// under way.
    pub fn contents(&self) -> Option<Contents<'_>> {
        let body = match &self.state {
            State::Head | State::Unread | State::Body(BufferedBody::None | BufferedBody::InPlace(_)) => None,
            State::Body(BufferedBody::Decoded { file, length, .. }) => Some((file.as_ref(), *length)),
            State::Stream(_) | State::Sending { .. } | State::Draining(_) => return None,
        };
        Some(Contents { read_buf: self.read_buf.as_deref(), body })
    }

    /// Puts in what another process has read.
    pub fn load(&mut self, read_buf: Box<ReadBuf>) {
        self.read_buf = Some(read_buf);
    }

    /// Puts in a decoded body, after its head has been [loaded](Self::load).
    pub fn load_body(&mut self, file: Option<File>, length: u64, settings: &Settings) -> Result<(), Error> {
        let Some(buf) = &mut self.read_buf else { return Err(Error::Syntax) };
        if buf.head.parse(&buf.bytes, settings.limits)? == Status::Partial {
            return Err(Error::Syntax);
        }
        if settings.decode_path {
            percent_decode(buf.head.path(&buf.bytes), &mut buf.path)?;
        }
        self.state = State::Body(BufferedBody::complete(file, length));
        Ok(())
    }
}
