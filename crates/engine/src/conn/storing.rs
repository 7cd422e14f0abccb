//! A connection whose body goes to a file, and the memory that its body takes.

use std::sync::Arc;

use fastrack_http::{Error, Status};

use super::body::Storage;
use super::disk::Write;
use super::{Connection, State, Step};

impl Connection {
    /// How much memory an incomplete body takes, in bytes.
    pub fn body_memory(&self) -> usize {
        let in_flight = self.storage().map_or(0, Storage::in_flight);
        match (&self.state, &self.read_buf) {
            (State::Body(_), Some(buf)) => buf.bytes.capacity() + buf.decoded.capacity() + in_flight,
            _ => 0,
        }
    }

    pub(super) fn storage(&self) -> Option<&Storage> {
        if let State::Body(body) = &self.state {
            body.storage()
        } else {
            None
        }
    }

    /// Whether a part of the body has to be written to a file before more is received.
    pub(super) fn has_write_due(&self) -> bool {
        self.storage().is_some_and(Storage::is_due)
    }

    pub fn is_being_written(&self) -> bool {
        self.storage().is_some_and(Storage::is_being_written)
    }

    /// What is to be written before the body goes on, for this connection's key.
    pub fn begin_write(&mut self, key: usize) -> Option<Arc<Write>> {
        match (&mut self.state, &mut self.read_buf) {
            (State::Body(body), Some(buf)) => body.begin_write(key, buf),
            _ => None,
        }
    }

    /// What has become of the last write. Ready if the body is complete; None if more of it is to be received.
    pub fn end_write(&mut self) -> Option<Step> {
        let (State::Body(body), Some(buf)) = (&mut self.state, &mut self.read_buf) else { return None };
        match body.end_write(buf) {
            Ok(None) => {
                // The event may have been that of an arrival.
                self.last_read_was_full = true;
                Some(Step::Wait)
            }
            Ok(Some(Status::Complete)) => Some(Step::Ready),
            Ok(Some(Status::Partial)) => None,
            Err(error) => Some(Step::Refuse(error)),
        }
    }

    /// Writes what is due, as the disk thread would. None if nothing is; else what [`end_write`](Self::end_write) returns.
    #[cfg(test)]
    pub fn write_due(&mut self) -> Option<Option<Step>> {
        let settings = crate::Settings::default();
        let control = crate::Control::new(-1, [], &settings.requests).expect("a control");
        self.begin_write(0)?.carry_out(&super::Spooling::new(&settings), &Arc::new(control));
        Some(self.end_write())
    }

    /// Whether its body goes to a file.
    pub fn has_long_body(&self) -> bool {
        self.storage().is_some_and(Storage::is_long)
    }

    /// Nothing is received for now, though the kernel may have more.
    pub fn put_off_reading(&mut self) {
        self.last_read_was_full = false;
    }

    /// Has what has been received of an incomplete body moved to a file.
    pub fn spool_body(&mut self) -> Result<(), Error> {
        match (&mut self.state, &mut self.read_buf) {
            (State::Body(body), Some(buf)) => body.spool(buf),
            _ => Ok(()),
        }
    }
}
