//! How answers leave, and what becomes of their connections: the reactor's side of the way out.

use std::os::fd::AsFd;

use fastrack_http::{error_response, Error};
use fastrack_sys::{epoch_seconds, monotonic_millis};

use crate::body_reader::BodyError;
use crate::connection::{Connection, Phase, Step};
use crate::output::Output;
use crate::reactor::Reactor;
use crate::response_writer::Stage;

impl Reactor {
    /// What becomes of a connection whose request has been answered; gives back one with another request.
    pub fn settle(
        &mut self,
        mut connection: Box<Connection>,
        stage: Stage,
        goes_on: bool,
        output: &mut Output,
    ) -> Option<Box<Connection>> {
        match stage {
            Stage::Finished if !output.is_empty() => {
                connection.send_later(output.take(), goes_on);
                let deadline = self.deadline(Phase::Sending);
                self.park(connection, deadline);
            }
            Stage::Finished => return self.sent(connection, goes_on),
            Stage::HandedOver => self.discard(connection),
            Stage::Untouched => match connection.body_failure() {
                None => self.refuse(connection, Error::Application),
                Some(BodyError::Refused(error)) => self.refuse(connection, error),
                Some(BodyError::Gone) => self.discard(connection),
            },
            Stage::Begun | Stage::Broken => self.reset(connection),
        }
        output.clear();
        None
    }

    /// The response has left.
    pub(crate) fn sent(&mut self, mut connection: Box<Connection>, goes_on: bool) -> Option<Box<Connection>> {
        if !goes_on {
            if connection.is_brimful() || self.settings.keep_alive && has_sent_more(&connection) {
                connection.drain();
                let deadline = self.deadline(Phase::Draining);
                self.park(connection, deadline);
            } else {
                self.discard(connection);
            }
            return None;
        }
        let mut step = connection.turn_over(&self.settings);
        if step == Step::Wait && connection.ended {
            step = connection.read(&self.settings, &mut self.inputs);
        }
        connection.pipelined = step == Step::Ready;
        if connection.pipelined {
            connection.ended |= fastrack_sys::has_peer_closed(connection.as_fd());
            return Some(connection);
        }
        let deadline = self.deadline(connection.phase());
        self.proceed(connection, step, deadline)
    }

    /// Goes on with a response that the client has not taken whole.
    pub(crate) fn send_more(
        &mut self,
        mut connection: Box<Connection>,
        deadline: u64,
    ) -> Option<Box<Connection>> {
        match connection.send_more() {
            Ok(_) if connection.output.is_empty() => {
                let goes_on = connection.goes_on_after_sending();
                return self.sent(connection, goes_on);
            }
            Ok(sent) => {
                let deadline = if sent > 0 { self.deadline(Phase::Sending) } else { deadline };
                self.park(connection, deadline);
            }
            Err(_) => self.reset(connection),
        }
        None
    }

    /// Answers with an error, and lets the client read it before the close.
    pub fn refuse(&mut self, mut connection: Box<Connection>, error: Error) {
        if error == Error::Storage {
            let directory = self.settings.tmpdir.display();
            self.warnings
                .push(format!("cannot keep a request's body in {directory}: is there room, and leave?"));
        }
        let mut response = Vec::new();
        let with_body = !connection.is_head_request();
        error_response(error, self.date.at(epoch_seconds()), with_body, &mut response);
        // It fits into any socket's buffer; a client that takes nothing gets nothing.
        let sent = fastrack_sys::send(connection.as_fd(), &response);
        if sent.is_ok_and(|sent| sent == response.len()) {
            connection.drain();
            let deadline = self.deadline(Phase::Draining);
            self.park(connection, deadline);
        } else {
            self.discard(connection);
        }
    }

    /// The client must not take what it has got for all.
    pub(crate) fn reset(&mut self, connection: Box<Connection>) {
        // If it fails the close is an orderly one, which is all that can be had then.
        let _ = fastrack_sys::reset_on_close(connection.as_fd());
        self.forget(connection);
    }

    /// Closes a connection and keeps its memory.
    pub fn discard(&mut self, connection: Box<Connection>) {
        if self.beside_application {
            // A child that is forked in this moment would keep the connection open.
            let _ = fastrack_sys::shutdown_both(connection.as_fd());
        }
        self.forget(connection);
    }

    /// Lets go of a connection, which lives on where another process has it.
    pub(crate) fn forget(&mut self, mut connection: Box<Connection>) {
        connection.rest(&mut self.inputs, true);
        self.connections.part(&connection);
        // Before the close: the number may be another thread's in no time, and a child that is forked then would let
        // go of what is not the engine's.
        self.control.release(connection.raw_fd());
    }

    /// Waits a little longer for an idle client, while stopping.
    pub(crate) fn linger(&mut self, mut connection: Box<Connection>) {
        connection.rest(&mut self.inputs, false);
        let latest = self.stop_deadline.unwrap_or_default();
        let deadline = latest.min(monotonic_millis() + self.parting_time());
        self.keep(connection, deadline);
    }
}

/// Whether a client that did not expect the close has sent another request meanwhile: with that unread, the close would
/// be a reset, and might take the answer from the client before it has read it (RFC 9112 §9.6).
fn has_sent_more(connection: &Connection) -> bool {
    connection.is_to_go_on() && fastrack_sys::is_readable(connection.as_fd())
}
