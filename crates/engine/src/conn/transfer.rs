//! What a connection takes along to another worker.

use std::fs::File;

use fastrack_http::{percent_decode, Error, Status};

use crate::conn::body::buffered::Body;
use crate::conn::read_buf::Input;
use crate::conn::{Connection, State};
use crate::settings::Settings;

/// What has been read of a connection.
pub(crate) struct Contents<'a> {
    pub input: Option<&'a Input>,
    /// A decoded body: the file that it is in, unless it is in the input, and its length.
    pub body: Option<(Option<&'a File>, u64)>,
}

impl Connection {
    /// What another process needs to go on with this connection, whose request has been read whole or whose head is
    /// under way; None in a phase that stays with this process.
    pub fn contents(&self) -> Option<Contents<'_>> {
        let body = match &self.state {
            State::Head | State::Unread | State::Body(Body::None | Body::InPlace(_)) => None,
            State::Body(Body::Chunked { file, length, .. }) => Some((file.as_ref(), *length)),
            State::Body(Body::Spooled { file, length, .. }) => Some((Some(file), *length)),
            State::Stream(_) | State::Sending(_) | State::Draining(_) => return None,
        };
        Some(Contents { input: self.input.as_deref(), body })
    }

    /// Puts bytes in that another process has read.
    pub fn load(&mut self, input: Box<Input>) {
        self.input = Some(input);
    }

    /// Puts a body in that another process has read, after its head has been [loaded](Self::load).
    pub fn load_body(&mut self, file: Option<File>, length: u64, settings: &Settings) -> Result<(), Error> {
        let Some(input) = &mut self.input else { return Err(Error::Syntax) };
        if input.head.parse(&input.bytes, settings.limits)? == Status::Partial {
            return Err(Error::Syntax);
        }
        if settings.decode_path {
            percent_decode(input.head.path(&input.bytes), &mut input.path)?;
        }
        self.state = State::Body(Body::Chunked { decoder: Box::default(), file, length });
        Ok(())
    }
}
