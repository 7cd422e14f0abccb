//! A graceful stop, and the hand-off of all connections when the process is about to end.

use std::os::fd::AsFd;

use fastrack_http::{error_response, Error};
use fastrack_sys::{epoch_seconds, monotonic_millis};

use super::logging::CUT_LOG_TIME;
use super::Reactor;
use crate::accept::Backlog;
use crate::conn::{Connection, Phase, Step};
use crate::handoff::QueueHandle;
use crate::settings::STOP_TIME_IDLE;

/// Time for clients that have their last response and still send, in milliseconds: bytes under way arrive, and no stop waits for an upload
/// that nobody reads.
const STOP_TIME_LINGER: u64 = 2_000;

/// Time that a connection waits for room in the shared queue, in milliseconds.
const QUEUE_ROOM_TIME: u64 = 100;

/// Time that an ending process waits for bodies that are being written, in milliseconds.
const DISK_WRITE_TIME: u64 = 200;

impl Reactor {
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_begun()
    }

    pub fn begin_stop(&mut self) {
        self.stopping.begin(monotonic_millis(), self.idle_stop_time());
        self.set_backlog(Backlog::default());
        self.queue_handle.iter().for_each(|queue_handle| queue_handle.set_serving(false));
        for key in self.table.keys() {
            let Some((connection, _)) = self.table.take(key) else { continue };
            let deadline = connection.deadline;
            self.park(connection, deadline);
        }
    }

    /// Time that an idle connection is parked while stopping, in milliseconds. When the whole server stops, waiting gains nothing.
    fn idle_stop_time(&self) -> u64 {
        if self.control.is_draining() {
            STOP_TIME_IDLE
        } else {
            self.settings.idle_time_on_stop
        }
    }

    /// Gives a connection to another worker while stopping, or parks the connection here for a while.
    pub(super) fn park_stopping(&mut self, connection: Box<Connection>) {
        let now = monotonic_millis();
        let is_early = self.stopping.is_early(connection.phase(), now);
        let given = if is_early { Err(connection) } else { self.give_while_stopping(connection) };
        let Err(mut connection) = given else { return };
        connection.drain_no_later(now + STOP_TIME_LINGER);
        if connection.phase() == Phase::Idle {
            return self.close_idle(connection);
        }
        let has_successor = self.queue_says(QueueHandle::has_successor);
        let deadline = self.stopping.park_deadline(&connection, has_successor, now);
        self.park_here(connection, deadline);
    }

    /// Gives a connection to another worker. Returns the connection if there is no other worker, or no room in the queue.
    ///
    /// A response does not wait in the queue: not for a successor that is still to come, not behind requests, and not for a worker that is
    /// also about to stop.
    fn give_while_stopping(&mut self, connection: Box<Connection>) -> Result<(), Box<Connection>> {
        let is_taken = match connection.phase() {
            Phase::Sending => self.is_response_taken(),
            _ => self.queue_says(QueueHandle::has_successor),
        };
        if !is_taken {
            return Err(connection);
        }
        let mut given = self.give(connection);
        if given.is_err() {
            // The queue is full. Other workers empty it quickly, unless they are busy.
            let has_room = |queue_handle: &QueueHandle| queue_handle.wait_for_room(QUEUE_ROOM_TIME);
            self.stopping.queue_stayed_full = self.stopping.queue_stayed_full || !self.queue_says(has_room);
            if !self.stopping.queue_stayed_full {
                given = given.or_else(|connection| self.give(connection));
            }
        }
        given.map(|()| self.take_all_over_if_last())
    }

    /// Whether another worker continues a response at once, even if all workers are in the application: see
    /// [`take_slow_clients`](Self::take_slow_clients). If requests keep the workers busy for long, the response waits in the queue after
    /// all, because this worker has to end.
    fn is_response_taken(&self) -> bool {
        let is_urgent = self.stopping.is_overdue(monotonic_millis());
        let is_request_first =
            |queue_handle: &QueueHandle| queue_handle.is_anything_queued() && !queue_handle.is_client_next();
        let is_served = match self.control.is_draining() {
            true => QueueHandle::other_masters_worker_serves,
            false => QueueHandle::is_another_serving,
        };
        self.queue_says(is_served) && (is_urgent || !self.queue_says(is_request_first))
    }

    /// Gives away a connection whose time at this worker is over. Returns false if the connection has to end.
    pub(super) fn give_late(&mut self, connection: Box<Connection>, deadline: u64) -> bool {
        let Err(connection) = self.give_while_stopping(connection) else { return true };
        let latest = self.stopping.latest().min(connection.deadline);
        let has_more = connection.phase() == Phase::Head && deadline < latest;
        self.park_here(connection, if has_more { latest } else { deadline });
        has_more
    }

    /// Ends an idle connection, but not at once: its client may send a request at this very moment, which a close would lose. That request
    /// is answered with `Connection: close`.
    fn close_idle(&mut self, mut connection: Box<Connection>) {
        let latest = self.stopping.latest();
        let step = self.read(&mut connection);
        if step == Step::Wait && connection.phase() == Phase::Idle {
            connection.release_empty_buffer(&mut self.read_bufs);
            let deadline = latest.min(monotonic_millis() + self.idle_stop_time());
            return self.park_here(connection, deadline);
        }
        let next = self.settle(connection, step, latest);
        self.queue_if_ready(next);
    }

    /// The others may have stopped just when this worker gave them a connection. The last worker empties the queue.
    pub(super) fn take_all_over_if_last(&mut self) {
        if self.is_stopping() && !self.stopping.is_handing_off && !self.queue_says(QueueHandle::has_successor)
        {
            self.take_all_over();
        }
    }

    /// Whether the stop is complete. The last worker waits until it can take the queued connections, or its time is over.
    pub fn is_stopped(&mut self) -> bool {
        if !self.is_done() {
            return false;
        }
        self.take_all_over_if_last();
        let waits_for_queued = self.shortage.has_untaken() && !self.stopping.is_overdue(monotonic_millis());
        self.is_done() && !waits_for_queued
    }

    /// Takes one connection from the shared queue, and queues its request. A connection without a request goes back, which wakes another
    /// worker.
    pub fn take_one_over(&mut self) {
        if let Some((connection, step)) = self.take_any() {
            let next = self.settle_taken(connection, step);
            self.queue_if_ready(next);
        }
    }

    /// Takes each connection that is in the shared queue now. A connection without a request goes back to the end of the queue, for a
    /// successor.
    pub fn take_each_over(&mut self) {
        for _ in 0..self.queue_handle.as_ref().map_or(0, QueueHandle::queued) {
            self.take_one_over();
        }
    }

    /// Takes connections until the shared queue is empty, and queues their requests.
    pub fn take_all_over(&mut self) {
        while let Some(connection) = self.take_request() {
            self.queue(connection);
        }
    }

    /// The process ends in the middle of a request. All other connections go to the shared queue, for other workers or this worker's
    /// successor. So do connections that a thread returns with later. Without a queue, uploads are answered with 502, and other connections
    /// are closed.
    pub fn hand_off_all(&mut self) {
        self.queue_next();
        self.follow(&|| false);
        self.stopping.is_handing_off = true;
        self.table.disk().wait(DISK_WRITE_TIME);
        self.queue_handle.iter().for_each(|queue_handle| queue_handle.set_serving(false));
        // Responses come first: busy workers also continue connections at the head of the queue that need no application.
        let parked = self.table.keys().into_iter().filter_map(|key| self.table.take(key));
        let (first, last): (Vec<_>, Vec<_>) = parked
            .map(|(connection, _)| after_write(connection))
            .partition(|one| one.phase() == Phase::Sending);
        let ready = std::mem::take(&mut self.ready);
        for connection in first.into_iter().chain(ready).chain(last) {
            self.give_or_abort(connection);
        }
        self.flush_log(CUT_LOG_TIME);
    }

    /// Gives a connection to another worker, or ends the connection, because the process is about to end.
    pub(super) fn give_or_abort(&mut self, connection: Box<Connection>) {
        let is_taken =
            if self.is_stopping() { QueueHandle::is_another_serving } else { QueueHandle::has_successor };
        let given = if self.queue_says(is_taken) { self.give(connection) } else { Err(connection) };
        let Err(connection) = given else { return };
        if connection.phase() != Phase::Body {
            return self.abort(connection);
        }
        // An upload has begun. Its client learns that nobody will take the rest. The server reads the bytes that have arrived, because a
        // close with unread data could lose the response.
        let mut response = Vec::new();
        let with_body = !connection.is_head_request();
        error_response(Error::Ended, self.date.at(epoch_seconds()), with_body, &mut response);
        // As in `refuse`, without time to wait for the client.
        let _ = fastrack_sys::send(connection.as_fd(), &response);
        let _ = fastrack_sys::shutdown_write(connection.as_fd());
        fastrack_sys::drain_input(connection.as_fd());
        self.release(connection);
    }
}

/// Takes the result of the disk thread's write of the connection's body, if there is a write. An unfinished write leaves the body
/// incomplete.
fn after_write(mut connection: Box<Connection>) -> Box<Connection> {
    let _ = connection.end_write();
    connection
}

#[cfg(test)]
mod tests {
    use std::io::{self, IoSlice, Write};

    use super::*;
    use crate::conn::{Spooling, WriteBuf};
    use crate::handoff::SharedQueue;
    use crate::reactor::tests::{pair, reactor, REQUEST};

    /// A reactor with a request that is to be served next and one that waits, its clients, and another worker.
    fn with_first() -> (Reactor, QueueHandle, [impl Sized; 2]) {
        let queue = SharedQueue::new().expect("a queue");
        let queue_handle = || queue.handle().expect("a member").expect("free");
        let (mut reactor, other) =
            (Reactor { queue_handle: Some(queue_handle()), ..reactor() }, queue_handle());
        other.set_serving(true);
        let clients = [false, true].map(|is_first| {
            let (mut client, mut connection) = pair();
            client.write_all(REQUEST).expect("write");
            assert_eq!(reactor.read(&mut connection), Step::Ready);
            if is_first {
                reactor.settle_next(connection, Step::Ready);
            } else {
                reactor.queue(connection);
            }
            client
        });
        (reactor, other, clients)
    }

    #[test]
    fn the_request_that_was_to_be_served_next_is_handed_off_like_all_others() {
        let ends: [fn(&mut Reactor); 2] =
            [Reactor::hand_off_all, |reactor| reactor.fail(&io::Error::from_raw_os_error(9))];
        for end in ends {
            let (mut reactor, other, clients) = with_first();
            assert!(!reactor.is_done());
            end(&mut reactor);
            assert_eq!((other.queued(), reactor.is_done()), (2, true));
            drop(clients);
        }
    }

    #[test]
    fn a_child_that_is_forked_lets_go_of_that_requests_file_too() {
        let mut reactor = reactor();
        let (_client, mut connection) = pair();
        let (spooling, mut unsent) = (Spooling::new(&reactor.settings), WriteBuf::default());
        unsent.push(&[IoSlice::new(b"spooled")], 0).expect("room");
        assert!(unsent.spool(u64::MAX, || spooling.create(&reactor.control)).expect("written"));
        connection.send_later((unsent, None), true, false);
        reactor.settle_next(connection, Step::Ready);
        assert_eq!(reactor.files().count(), 1);
    }

    #[test]
    fn a_worker_that_stops_is_not_done_before_the_request_that_is_to_be_served_next() {
        let (mut reactor, _other, _clients) = with_first();
        drop(reactor.take_ready());
        reactor.begin_stop();
        assert!(!reactor.is_stopped() && reactor.finished().is_none());
        drop(reactor.lead.schedule.next.take());
        assert!(reactor.is_stopped());
    }
}
