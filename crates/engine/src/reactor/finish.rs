//! After the response: the connection is kept alive for the next request, or ends.

use fastrack_http::{error_body, Error};
use fastrack_sys::{monotonic_micros, monotonic_millis};
use std::os::fd::AsFd;

use super::logging::Answered;
use super::{Next, Reactor};
use crate::conn::{Arrival, BodyError, Connection, InFlight, Phase, ResponseStage, Sent, Step};
use crate::scoreboard::Count;

const NO_MEMORY: &str =
    "no memory for what a slow client has not taken of its response, which was cut: raise `ulimit -v`";

impl Reactor {
    pub fn finish(
        &mut self,
        mut connection: Box<Connection>,
        stage: ResponseStage,
        keep_alive: bool,
        in_flight: &mut InFlight,
    ) -> Next {
        let now = monotonic_millis();
        self.count(&connection, stage, in_flight, now);
        if let Some(line) = in_flight.take_spool_failure() {
            self.logging.warn_of_refusal(line);
        }
        match stage {
            ResponseStage::Finished if in_flight.write_buf().is_empty() => {
                return self.response_sent(connection, keep_alive, now);
            }
            ResponseStage::Finished => {
                let resets = std::mem::take(&mut in_flight.resets);
                connection.send_later(in_flight.take_unsent(), keep_alive, resets);
                self.park_in_phase(connection);
            }
            ResponseStage::Hijacked => self.close(connection),
            ResponseStage::Untouched => match connection.body_failure() {
                None => self.answer_error(connection, Error::Application),
                Some(BodyError::Refused(error)) => self.answer_error(connection, error),
                Some(BodyError::Gone) => self.close(connection),
            },
            ResponseStage::Begun | ResponseStage::Broken => {
                if in_flight.take_out_of_memory() {
                    self.shortage.lacks_memory = true;
                    self.logging.warn_of_refusal(NO_MEMORY.into());
                }
                self.reset(connection);
            }
        }
        Next::Kept
    }

    /// Counts a request that the application has finished.
    #[inline]
    fn count(&mut self, connection: &Connection, stage: ResponseStage, in_flight: &mut InFlight, now: u64) {
        let status = match stage {
            ResponseStage::Finished | ResponseStage::Begun | ResponseStage::Broken => in_flight.sent.status,
            stage => self.other_status(connection, stage, &mut in_flight.sent),
        };
        let sent = &in_flight.sent;
        let millis = now.saturating_sub(sent.started);
        let class = usize::from(status / 100);
        self.control.counters().count_request(class, millis, sent.queued, sent.taken);
        if sent.is_timed() {
            self.note_exact(connection, status, in_flight, now);
        }
    }

    /// Writes the line of a request that the application has finished, and counts how its time was divided.
    #[inline(never)]
    fn note_exact(&mut self, connection: &Connection, status: u16, in_flight: &InFlight, now: u64) {
        let (end, active) = (monotonic_micros(), in_flight.active());
        let timings = active.times().map(|times| times.end(end));
        if let Some(timings) = timings.as_ref().filter(|_| !active.is_stream()) {
            self.control.counters().count_timings(timings);
        }
        let duration = end.saturating_sub(in_flight.sent.began);
        let answered = Answered { status, sent: &in_flight.sent, duration, timings };
        self.logging.log_request(connection, &answered, now, self.control.counters());
    }

    /// The status of a response that the server itself makes, or that the application sends on a hijacked connection. Notes the length of
    /// the server's own body.
    #[cold]
    fn other_status(&self, connection: &Connection, stage: ResponseStage, sent: &mut Sent) -> u16 {
        if stage == ResponseStage::Hijacked {
            self.control.counters().add(Count::Hijacked, 1);
            return sent.status;
        }
        let error = match connection.body_failure() {
            None => Error::Application,
            Some(BodyError::Refused(error)) => error,
            Some(BodyError::Gone) => return 0,
        };
        sent.head = 0;
        sent.passed = if connection.is_head_request() { 0 } else { error_body(error).len() as u64 };
        error.status()
    }

    pub(super) fn response_sent(
        &mut self,
        mut connection: Box<Connection>,
        keep_alive: bool,
        now: u64,
    ) -> Next {
        if !keep_alive {
            // A client that did not expect the close may have sent another request meanwhile. Closing with that
            // unread would reset the connection, and the client could lose the response (RFC 9112 §9.6).
            let has_sent_more = connection.is_persistent() && fastrack_sys::is_readable(connection.as_fd());
            if connection.last_read_was_full() || has_sent_more {
                self.lingering_close(connection);
            } else {
                self.close(connection);
            }
            return Next::Kept;
        }
        let mut step = connection.next_request(&self.settings);
        if step == Step::Wait && connection.ended {
            step = self.read(&mut connection);
        }
        connection.answer_after_shutdown = step == Step::Ready;
        if connection.answer_after_shutdown {
            connection.ended |= fastrack_sys::has_peer_closed(connection.as_fd());
            return Next::Ready(connection);
        }
        connection.arrival = Arrival::default();
        self.settle_at(connection, step, now)
    }

    pub(super) fn send_more(&mut self, mut connection: Box<Connection>, deadline: u64) -> Next {
        let Ok(sent) = connection.send_more() else {
            self.reset(connection);
            return Next::Kept;
        };
        self.control.counters().add(Count::BytesOut, sent as u64);
        if let Some(keep_alive) = connection.is_sent() {
            connection.end_in_order();
            self.freed += connection.release_write_buf();
            // The client was slow, so other clients come first.
            return self.response_sent(connection, keep_alive, monotonic_millis());
        }
        let deadline = if sent > 0 { self.deadline(Phase::Sending) } else { deadline };
        self.park(connection, deadline);
        Next::Kept
    }
}
