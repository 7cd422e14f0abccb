//! Bodies that go to a file, and the memory of incomplete bodies.

use std::sync::Arc;

use fastrack_http::{Error, Status};

use super::body::Storage;
use super::disk::Write;
use super::{Connection, ConnectionState, Step};

impl Connection {
    /// The memory of an incomplete body, in bytes.
    pub fn body_memory(&self) -> usize {
        let in_flight = self.storage().map_or(0, Storage::in_flight);
        match (&self.state, &self.read_buf) {
            (ConnectionState::Body(_), Some(buf)) => {
                buf.bytes.capacity() + buf.decoded.capacity() + in_flight
            }
            _ => 0,
        }
    }

    pub(super) fn storage(&self) -> Option<&Storage> {
        if let ConnectionState::Body(body) = &self.state {
            body.storage()
        } else {
            None
        }
    }

    /// Whether a part of the body must be written to a file before more is received.
    pub(super) fn has_write_due(&self) -> bool {
        self.storage().is_some_and(Storage::is_due)
    }

    pub fn is_being_written(&self) -> bool {
        self.storage().is_some_and(Storage::is_being_written)
    }

    /// Starts the write that must be done before more of the body is received. `key` is the key of this connection.
    pub fn begin_write(&mut self, key: usize) -> Option<Arc<Write>> {
        match (&mut self.state, &mut self.read_buf) {
            (ConnectionState::Body(body), Some(buf)) => body.begin_write(key, buf),
            _ => None,
        }
    }

    /// Handles the result of the last write. Ready if the body is complete; None if more of the body must be received.
    pub fn end_write(&mut self) -> Option<Step> {
        let (ConnectionState::Body(body), Some(buf)) = (&mut self.state, &mut self.read_buf) else {
            return None;
        };
        let step = match body.end_write(buf) {
            Ok(None) => Step::Wait,
            Ok(Some(Status::Complete)) => Step::Ready,
            Ok(Some(Status::Partial)) => return None,
            Err(error) => return Some(Step::Refuse(error)),
        };
        // One event stands for the write and for new input, and the poller does not report the input again.
        self.last_read_was_full = true;
        Some(step)
    }

    /// Does a write that is due, as the disk thread would, and returns the result of [`end_write`](Self::end_write).
    /// None if no write is due.
    #[cfg(test)]
    pub fn write_due(&mut self) -> Option<Option<Step>> {
        let settings = crate::Settings::default();
        let control = crate::Control::new(-1, [], &settings.requests).expect("a control");
        self.begin_write(0)?.carry_out(&super::Spooling::new(&settings), &Arc::new(control));
        Some(self.end_write())
    }

    /// Whether the body goes to a file.
    pub fn has_long_body(&self) -> bool {
        self.storage().is_some_and(Storage::is_long)
    }

    /// Stops reading for now, although the kernel may hold more.
    pub fn put_off_reading(&mut self) {
        self.last_read_was_full = false;
    }

    /// Moves the received part of an incomplete body to a file.
    pub fn spool_body(&mut self) -> Result<(), Error> {
        match (&mut self.state, &mut self.read_buf) {
            (ConnectionState::Body(body), Some(buf)) => body.spool(buf),
            _ => Ok(()),
        }
    }
}
