//! The ways in which a connection ends.

use std::os::fd::AsFd;

use fastrack_http::{error_response, Error};
use fastrack_sys::epoch_seconds;

use super::Reactor;
use crate::conn::{Connection, Phase};
use crate::scoreboard::Count;

impl Reactor {
    pub fn close(&mut self, connection: Box<Connection>) {
        if self.app_is_running {
            // A child that is forked at this moment would keep the connection open.
            let _ = fastrack_sys::shutdown_both(connection.as_fd());
        }
        self.release(connection);
    }

    pub(super) fn reset(&mut self, connection: Box<Connection>) {
        self.control.counters().add(Count::Aborted, 1);
        // If this fails, the close is an orderly one. Nothing better is possible.
        let _ = fastrack_sys::reset_on_close(connection.as_fd());
        self.release(connection);
    }

    /// Ends a connection in any phase. The connection is reset if a part of a response was sent.
    pub(super) fn abort(&mut self, connection: Box<Connection>) {
        match connection.phase() {
            Phase::Sending => self.reset(connection),
            _ => self.close(connection),
        }
    }

    /// Refuses a request before the application sees it.
    pub(super) fn refuse(&mut self, connection: Box<Connection>, error: Error) {
        self.control.counters().add(Count::Refused, 1);
        self.answer_error(connection, error);
    }

    /// Answers with an error. Closes the connection once the client has read the answer.
    pub(super) fn answer_error(&mut self, connection: Box<Connection>, error: Error) {
        self.explain(&connection, error);
        let mut response = Vec::new();
        let with_body = !connection.is_head_request();
        error_response(error, self.date.at(epoch_seconds()), with_body, &mut response);
        // The answer fits into any socket's send buffer. A client whose buffer is full gets nothing.
        let sent = fastrack_sys::send(connection.as_fd(), &response);
        self.control.counters().add(Count::BytesOut, sent.as_ref().map_or(0, |sent| *sent as u64));
        if sent.is_ok_and(|sent| sent == response.len()) {
            self.lingering_close(connection);
        } else {
            self.close(connection);
        }
    }

    /// Logs why a client is refused, unless the client itself is at fault.
    fn explain(&mut self, connection: &Connection, error: Error) {
        let length = || match connection.body_length() {
            Some(length) => format!("{length} bytes"),
            None => "unknown length".into(),
        };
        self.shortage.lacks_memory |= error == Error::Memory;
        self.logging.warn_of_refusal(match error {
            Error::Storage => {
                let directory = self.settings.tmpdir.display();
                format!("cannot keep a request's body of {} in {directory}: is there room, and leave?", length())
            }
            Error::Descriptors => format!(
                "cannot buffer a request body of {} in a file: no free file descriptor (limit {}); raise `ulimit -n`",
                length(),
                fastrack_sys::fd_limit()
            ),
            Error::Memory => "no memory for a request, its client got 503: raise `ulimit -v`".into(),
            _ => return,
        });
    }

    /// Closes this process's descriptor of a connection. Another process may still have the connection.
    pub(super) fn release(&mut self, mut connection: Box<Connection>) {
        connection.release_buffer(&mut self.read_bufs);
        self.freed += connection.release_write_buf();
        self.table.remove(&connection);
        self.control.untrack_fd(connection.raw_fd());
    }
}
