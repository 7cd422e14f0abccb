//! Stopping: a graceful stop, and handing everything off when the process is about to end.

use std::os::fd::AsFd;

use fastrack_http::{error_response, Error};
use fastrack_sys::{epoch_seconds, monotonic_millis};

use super::access::LOG_TIME;
use super::Reactor;
use crate::accept::Backlog;
use crate::conn::{Connection, Phase, Step};
use crate::handoff::QueueHandle;
use crate::settings::{STOP_TIME, STOP_TIME_IDLE};

/// How long clients get here whose request is on its way, in milliseconds: those that were accepted and have sent nothing
/// yet, and those that have sent a part of a head if another worker can take it.
const STOP_TIME_HEAD: u64 = 1_000;

/// How long clients get here that have their last response and still send, in milliseconds: what was under way arrives, and no stop
/// waits for an upload that nobody reads.
const STOP_TIME_LINGER: u64 = 2_000;

const ROOM_TIME: u64 = 100;

/// How long the process that ends waits for bodies that are being written, in milliseconds.
const WRITE_TIME: u64 = 200;

/// How often to look whether a successor is there for a response, in milliseconds.
const SUCCESSOR_LOOK: u64 = 100;

impl Reactor {
    pub fn begin_stop(&mut self) {
        let now = monotonic_millis();
        // Also a client that begins a request at the last moment gets the time for it.
        self.stop_deadline = Some(now + self.idle_stop_time() + STOP_TIME);
        self.head_deadline = now + STOP_TIME_HEAD;
        self.set_backlog(Backlog::default());
        self.queue_handle.iter().for_each(|queue_handle| queue_handle.set_serving(false));
        for key in self.table.keys() {
            let Some((connection, _)) = self.table.take(key) else { continue };
            let deadline = connection.deadline;
            self.park(connection, deadline);
        }
    }

    /// How long an idle connection is kept while stopping. When the whole server stops, waiting gains nothing.
    fn idle_stop_time(&self) -> u64 {
        if self.control.is_draining() {
            STOP_TIME_IDLE
        } else {
            self.settings.idle_time_on_stop
        }
    }

    /// Parks a connection while stopping: it goes to another worker, or stays for a while.
    ///
    /// A client that takes a response gets all the time that it has anyway, and so does one that goes on sending a
    /// body: whoever told this worker to stop kills it when that takes too long.
    pub(super) fn park_stopping(&mut self, connection: Box<Connection>) {
        let now = monotonic_millis();
        let is_early = matches!(connection.phase(), Phase::Fresh | Phase::Head) && now < self.head_deadline;
        let given = if is_early { Err(connection) } else { self.hand_off(connection) };
        let Err(mut connection) = given else { return };
        connection.drain_no_later(now + STOP_TIME_LINGER);
        let has_successor = self.ask_member(QueueHandle::has_successor);
        let latest = match connection.phase() {
            Phase::Idle => return self.close_idle(connection),
            Phase::Fresh => self.head_deadline,
            Phase::Head if has_successor && is_early => self.head_deadline,
            Phase::Head => (now + STOP_TIME).min(self.stop_deadline.unwrap_or_default()),
            Phase::Body => now + STOP_TIME,
            Phase::Sending if has_successor => now + SUCCESSOR_LOOK,
            Phase::Sending => u64::MAX,
            Phase::Draining => connection.drains_until().unwrap_or_default(),
        };
        let deadline = latest.min(connection.deadline);
        self.keep(connection, deadline);
    }

    /// Hands a connection off to another worker. Returns it if there is none, or no room in the queue.
    ///
    /// A response does not wait in the queue, neither for a successor that is not there yet, nor behind requests, nor for a
    /// worker that is also about to stop.
    fn hand_off(&mut self, connection: Box<Connection>) -> Result<(), Box<Connection>> {
        let is_taken = match connection.phase() {
            Phase::Sending => self.is_response_taken(),
            _ => self.ask_member(QueueHandle::has_successor),
        };
        if !is_taken {
            return Err(connection);
        }
        let mut given = self.give(connection);
        if given.is_err() {
            // The queue is full. The others empty it in no time, unless they are busy.
            let has_room = |queue_handle: &QueueHandle| queue_handle.wait_for_room(ROOM_TIME);
            self.queue_stayed_full = self.queue_stayed_full || !self.ask_member(has_room);
            if !self.queue_stayed_full {
                given = given.or_else(|connection| self.give(connection));
            }
        }
        given.map(|()| self.drain_queue_if_last())
    }

    /// Whether another worker goes on with a response at once, even if all are in the application: see
    /// [`take_slow_clients`](Self::take_slow_clients). If they are for long, with requests in the queue, it must do: this
    /// worker has to end.
    fn is_response_taken(&self) -> bool {
        let is_urgent = self.stop_deadline.is_some_and(|end| end <= monotonic_millis());
        let is_request_first =
            |queue_handle: &QueueHandle| queue_handle.is_anything_queued() && !queue_handle.is_client_next();
        let is_served = match self.control.is_draining() {
            true => QueueHandle::other_masters_worker_serves,
            false => QueueHandle::is_another_serving,
        };
        self.ask_member(is_served) && (is_urgent || !self.ask_member(is_request_first))
    }

    /// Hands off a connection whose time is over at this worker. False if it is over for good.
    pub(super) fn hand_off_late(&mut self, connection: Box<Connection>, deadline: u64) -> bool {
        let Err(connection) = self.hand_off(connection) else { return true };
        let latest = self.stop_deadline.unwrap_or_default().min(connection.deadline);
        let has_more = connection.phase() == Phase::Head && deadline < latest;
        self.keep(connection, if has_more { latest } else { deadline });
        has_more
    }

    /// Ends an idle connection, but not at once: a busy client may send a request at this very moment, which a
    /// close would lose. That request is answered with `Connection: close`.
    fn close_idle(&mut self, mut connection: Box<Connection>) {
        let latest = self.stop_deadline.unwrap_or_default();
        let step = self.read(&mut connection);
        if step == Step::Wait && connection.phase() == Phase::Idle {
            connection.release_empty_buffer(&mut self.read_bufs);
            let deadline = latest.min(monotonic_millis() + self.idle_stop_time());
            return self.keep(connection, deadline);
        }
        let next = self.proceed(connection, step, latest);
        self.queue_if_ready(next);
    }

    /// The others may have stopped just when this worker gave them a connection: the last one empties the queue.
    pub(super) fn drain_queue_if_last(&mut self) {
        if self.is_stopping() && !self.handed_off && !self.ask_member(QueueHandle::has_successor) {
            self.drain_queue();
        }
    }

    /// Whether the stop is complete. The last worker waits until what is queued can be taken, until its time is over.
    pub fn is_stopped(&mut self) -> bool {
        if !self.is_done() {
            return false;
        }
        self.drain_queue_if_last();
        let waits_for_queued =
            self.has_left_queued && self.stop_deadline.is_some_and(|end| monotonic_millis() < end);
        self.is_done() && !waits_for_queued
    }

    /// Takes one queued connection; puts it back unless its request is ready, which wakes another worker.
    pub fn pass_on_queued(&mut self) {
        if let Some((connection, step)) = self.receive_queued() {
            let next = self.resume(connection, step);
            self.queue_if_ready(next);
        }
    }

    /// Answers the queued requests. Connections without one go back to the end of the queue, for a successor.
    pub fn answer_queued(&mut self) {
        for _ in 0..self.queue_handle.as_ref().map_or(0, QueueHandle::queued) {
            self.pass_on_queued();
        }
    }

    pub fn drain_queue(&mut self) {
        while let Some(connection) = self.take_queued() {
            self.queue(connection);
        }
    }

    /// The process ends in the middle of a request. All other connections go to the shared queue, for other workers or
    /// this one's successor; so do those that a thread comes back with afterwards. Where that cannot be, uploads are answered
    /// with 502, and the others are closed.
    pub fn hand_off_all(&mut self) {
        self.put_off();
        self.follow(&|| false);
        self.handed_off = true;
        self.table.disk().wait(WRITE_TIME);
        self.queue_handle.iter().for_each(|queue_handle| queue_handle.set_serving(false));
        // Responses first: busy workers also go on with what is at the head of the queue and needs no application.
        let parked = self.table.keys().into_iter().filter_map(|key| self.table.take(key));
        let (first, last): (Vec<_>, Vec<_>) = parked
            .map(|(connection, _)| after_write(connection))
            .partition(|one| one.phase() == Phase::Sending);
        let ready = std::mem::take(&mut self.ready);
        for connection in first.into_iter().chain(ready).chain(last) {
            self.give_or_abort(connection);
        }
        self.flush_log(LOG_TIME);
    }

    pub(super) fn give_or_abort(&mut self, connection: Box<Connection>) {
        let is_taken =
            if self.is_stopping() { QueueHandle::is_another_serving } else { QueueHandle::has_successor };
        let given = if self.ask_member(is_taken) { self.give(connection) } else { Err(connection) };
        let Err(connection) = given else { return };
        if connection.phase() != Phase::Body {
            return self.abort(connection);
        }
        // An upload that has begun: its client learns that nobody will take the rest. What has arrived is read, because a
        // close with unread data could lose the response.
        let mut response = Vec::new();
        let with_body = !connection.is_head_request();
        error_response(Error::Ended, self.date.at(epoch_seconds()), with_body, &mut response);
        // As in `refuse`, but there is no time to wait for the client.
        let _ = fastrack_sys::send(connection.as_fd(), &response);
        let _ = fastrack_sys::shutdown_write(connection.as_fd());
        fastrack_sys::drain_input(connection.as_fd());
        self.release(connection);
    }
}

/// A connection whose body may have been written meanwhile. One that is not written, or not whole, shows that to whoever gives it.
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
                reactor.take_in(connection, Step::Ready);
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
        reactor.take_in(connection, Step::Ready);
        assert_eq!(reactor.files().count(), 1);
    }

    #[test]
    fn a_worker_that_stops_is_not_done_before_the_request_that_is_to_be_served_next() {
        let (mut reactor, _other, _clients) = with_first();
        drop(reactor.take_ready());
        reactor.begin_stop();
        assert!(!reactor.is_stopped() && reactor.finished().is_none());
        drop(reactor.lead.schedule.first.take());
        assert!(reactor.is_stopped());
    }
}
