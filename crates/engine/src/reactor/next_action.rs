//! The leader's next action. No source may starve: new clients, connections in the shared queue, kept connections.
//!
//! | turn | source | budget until the next poll | yields |
//! | --- | --- | --- | --- |
//! | 1 | warnings | all | `Log` |
//! | 2 | the request to be served next | 1 | `Serve` |
//! | 3 | listeners | [16 or 64](super::schedule) clients | `Serve`, `AwaitRequest` or `Continue` |
//! | 4 | the shared queue | 64 requests, with 5 and 6 | `Serve` |
//! | 5 | requests that are ready | | `Serve` |
//! | 6 | connections with events | | `Serve` |
//! | 7 | a connection that had to stay in the shared queue | 1 | `Pause` |
//! | 8 | a poll | | another round of turns, `Continue` or `Wait` |
//!
//! If requests take a millisecond or more, ready ones wait in the shared queue with those of other workers: after a poll this worker moves
//! the requests of turns 5 and 6 to the queue of turn 4.
//!
//! The first source that yields something has its turn. A poll renews all budgets. The poll comes before turn 3 when the budget of 4 to 6
//! is spent, or a request has lasted.

use std::io;

use super::schedule::{ACCEPTS_BESIDE_IDLE, ACCEPTS_PER_POLL};
use super::{Next, Reactor};
use crate::conn::{Connection, Step};
use crate::handoff::QueueHandle;

/// The next action.
pub(crate) enum Action {
    Serve(Box<Connection>),
    /// A client has connected, and its request is on the way.
    AwaitRequest(Box<Connection>),
    /// There may be more work right away.
    Continue,
    Log(Vec<String>),
    /// Wait a moment, so that the system recovers.
    Pause,
    Wait,
}

impl Reactor {
    pub fn next_action(&mut self) -> Action {
        loop {
            if let Some(action) = self.take_turn() {
                return action;
            }
            if let Some(action) = self.poll_all() {
                return action;
            }
        }
    }

    /// The first turn that yields something. None if a poll is next.
    fn take_turn(&mut self) -> Option<Action> {
        if self.logging.has_warnings() {
            return Some(Action::Log(self.take_warnings()));
        }
        if let Some(connection) = self.lead.schedule.next.take() {
            return Some(Action::Serve(connection));
        }
        if self.take_long_request() {
            self.lead.schedule.spend_kept_budget();
        }
        if self.lead.schedule.is_kept_budget_spent()
            || self.lead.schedule.is_sharing_due() && self.may_share()
        {
            return None;
        }
        if self.lead.listeners.is_client_likely() && self.lead.schedule.may_accept(self.accepts_per_poll()) {
            self.lead.schedule.count_accepted();
            return Some(self.accept());
        }
        if let Some(connection) = self.next_kept() {
            self.lead.schedule.count_kept();
            return Some(Action::Serve(connection));
        }
        self.take_untaken().then_some(Action::Pause)
    }

    fn accepts_per_poll(&self) -> u32 {
        match (self.has_connections(), self.events()) {
            (true, 0) => ACCEPTS_BESIDE_IDLE,
            _ => ACCEPTS_PER_POLL,
        }
    }

    /// A request from the shared queue, or a ready one of this worker. Requests that have waited longest come first.
    fn next_kept(&mut self) -> Option<Box<Connection>> {
        let queued = self.lead.schedule.queue_announced || self.queue_says(QueueHandle::is_anything_queued);
        if queued && !self.is_stopping() {
            self.lead.schedule.queue_announced = false;
            let connection = self.take_request();
            if connection.is_some() {
                return connection;
            }
        }
        self.next_own()
    }

    fn next_own(&mut self) -> Option<Box<Connection>> {
        self.take_ready().or_else(|| self.handle_events())
    }

    /// Polls the connections and, if that is due, the listeners and the queue. None if a request is likely to be found.
    fn poll_all(&mut self) -> Option<Action> {
        // Clients that send without a pause must not keep new clients out.
        let is_urgent = self.events() > 0;
        let polls_listeners = self.lead.schedule.begin_poll(is_urgent);
        self.resume_listeners_if_accepting();
        let mut result = self.poll_connections();
        self.give_one_if_due();
        self.expire(&|| false);
        let mut is_busy = polls_listeners || self.lead.schedule.next.is_some() || self.has_pending();
        // Waiting polls as well. But for new clients a look without unlocking everything is worth its cost.
        if result.is_ok() && (polls_listeners || !is_busy && !self.has_connections()) {
            result = self.poll_listeners();
            is_busy |= !self.lead.polled.is_empty();
        }
        self.note_poll(result);
        if polls_listeners && self.lead.schedule.shares && self.lead.finish.is_none() && self.may_share() {
            self.share_ready();
        }
        let is_over = self.lead.finish.is_some();
        let is_request_likely = self.lead.schedule.next.is_some() || self.lead.listeners.is_client_likely();
        if is_request_likely && !is_over && !self.logging.has_warnings() {
            // The application handles its signals after this request.
            return None;
        }
        is_busy |= is_request_likely || is_over || self.lead.schedule.queue_announced;
        is_busy |= self.is_stopping() && (self.is_done() && self.is_rest_done() || self.has_only_streams());
        // Logs before the wait, which may be long.
        is_busy |= self.logging.has_warnings();
        if is_busy {
            return Some(Action::Continue);
        }
        self.lead.schedule.note_wait();
        Some(Action::Wait)
    }

    /// Puts this worker's ready requests in one order with those of other workers.
    fn share_ready(&mut self) {
        let next = self.lead.schedule.next.take();
        let is_counted = next.is_some();
        self.lead.schedule.next = self.share(next, self.lead.listeners.is_client_likely());
        if self.lead.schedule.next.is_some() && !is_counted {
            self.lead.schedule.count_kept();
        }
    }

    /// Whether there is a shared queue from which other workers take requests.
    fn may_share(&self) -> bool {
        !self.is_stopping() && self.has_others()
    }

    fn resume_listeners_if_accepting(&mut self) {
        if self.accepts_clients() && self.lead.listeners.is_paused() {
            if let Err(error) = self.lead.resume_listeners() {
                self.note_unwatched_listeners(&error);
            }
        }
    }

    fn poll_connections(&mut self) -> io::Result<()> {
        // Otherwise finished writes for clients that have left would end each wait.
        if self.has_connections() || self.table.disk().has_news() {
            return self.poll();
        }
        Ok(())
    }

    /// Gives one of several connections to an idle worker, if there is one. Then the next request is one of this worker's own: from the
    /// queue this worker would take back the connection before the idle worker has woken up.
    fn give_one_if_due(&mut self) {
        if self.lead.schedule.may_give() && self.give_one() {
            self.lead.schedule.note_given();
            self.lead.schedule.next = self.next_own();
            if self.lead.schedule.next.is_some() {
                self.lead.schedule.count_kept();
            }
        }
    }

    /// Notes how a poll has ended.
    fn note_poll(&mut self, result: io::Result<()>) {
        match result {
            Err(error) => self.fail(&error),
            Ok(()) if std::mem::take(&mut self.shortage.lost_descriptors) => self.stop_lost(),
            Ok(()) => {}
        }
    }

    fn accept(&mut self) -> Action {
        if !self.accepts_clients() {
            self.lead.pause_listeners();
            return Action::Continue;
        }
        let client = match self.lead.listeners.accept() {
            Ok(Some(client)) => client,
            Ok(None) => return Action::Continue,
            Err(error) if fastrack_sys::is_lost_fd(&error) => {
                self.stop_lost();
                return Action::Continue;
            }
            // If this failure begins a pause, the next try pauses the listeners.
            Err(error) => {
                self.note_failed_accept(&error);
                return Action::Continue;
            }
        };
        if self.has_connections() {
            // Kept-alive clients may send before the next look. If each look took one new client, the backlog would stay full.
            if let Err(error) = self.poll_listeners() {
                self.fail(&error);
            }
        }
        let is_local = !self.lead.listeners.is_tcp(client.listener);
        let is_behind = self.has_waiting_requests();
        match self.read_first(client) {
            (connection, Step::Ready) if is_behind && self.lead.schedule.shares => {
                self.give_or_queue(connection)
            }
            // Kept-alive clients have sent something. The new clients of this look come next, once each, and then the kept ones.
            (mut connection, Step::Ready) if self.events() > 0 => {
                // The client may shut down its sending side at any moment, and still wait for the response.
                connection.answer_after_shutdown = true;
                self.queue(connection);
            }
            (connection, Step::Ready) if is_behind => self.give_or_queue(connection),
            (connection, Step::Ready) => return Action::Serve(connection),
            (connection, Step::Wait) if is_local && !connection.has_begun() => {
                return Action::AwaitRequest(connection);
            }
            (connection, step) => self.settle_next(connection, step),
        }
        Action::Continue
    }

    /// Takes in a connection that is new in this worker. Serves it next if its request is ready.
    pub fn settle_next(&mut self, connection: Box<Connection>, step: Step) {
        if let Next::Ready(connection) = self.settle_new(connection, step) {
            self.lead.schedule.next = Some(connection);
        }
    }

    /// Leaves a request that was to be served next to another thread.
    pub fn queue_next(&mut self) {
        self.lead.schedule.next.take().into_iter().for_each(|connection| self.queue(connection));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::super::schedule::GIVING_INTERVAL;
    use super::*;
    use crate::accept::Client;
    use crate::handoff::SharedQueue;
    use crate::settings::Settings;
    use crate::worker::Engine;

    /// Runs `test` with another worker, and with the reactor of an engine that has two ready requests.
    fn with_two_ready(test: impl FnOnce(&QueueHandle, &mut Reactor)) {
        let queue = SharedQueue::new().expect("a queue");
        let engine = Engine::new(Vec::new(), None, Settings::default(), Some(&queue)).expect("an engine");
        let other = queue.handle().expect("a member").expect("free");
        other.set_serving(true);
        let mut reactor = engine.reactor();
        let mut clients = Vec::new();
        for _ in 0..2 {
            let (mut client, server) = UnixStream::pair().expect("a pair");
            server.set_nonblocking(true).expect("nonblocking");
            client.write_all(&b"GET / HTTP/1.1\r\nHost: h\r\n\r\n".repeat(2)).expect("write");
            clients.push(client);
            let (connection, step) =
                reactor.read_first(Client { fd: server.into(), peer: None, listener: 0 });
            assert_eq!(step, Step::Ready);
            reactor.queue(connection);
        }
        test(&other, &mut reactor);
    }

    /// A worker with three ready requests decides after a request of this many milliseconds. Returns whether it serves one, and how many
    /// requests it leaves in the shared queue.
    fn after_a_request_of(millis: u64) -> (bool, u32) {
        let queue = SharedQueue::new().expect("a queue");
        let engine = Engine::new(Vec::new(), None, Settings::default(), Some(&queue)).expect("an engine");
        let other = queue.handle().expect("a member").expect("free");
        other.set_serving(true);
        let mut reactor = engine.reactor();
        let _clients: Vec<_> = (0..3)
            .map(|_| {
                let (mut client, server) = UnixStream::pair().expect("a pair");
                server.set_nonblocking(true).expect("nonblocking");
                let (connection, step) =
                    reactor.read_first(Client { fd: server.into(), peer: None, listener: 0 });
                reactor.settle_next(connection, step);
                client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
                client
            })
            .collect();
        reactor.poll().expect("polled");
        reactor.lead.schedule.count_request(1_000);
        reactor.lead.schedule.begin_poll(true);
        reactor.lead.schedule.count_kept();
        reactor.lead.schedule.count_request(1_000 + millis);
        let is_served = (0..3).any(|_| matches!(reactor.next_action(), Action::Serve(_)));
        (is_served, other.queued())
    }

    #[test]
    fn the_ready_requests_of_a_worker_wait_in_the_shared_queue_after_a_long_request_and_not_after_a_short_one(
    ) {
        assert_eq!([after_a_request_of(0), after_a_request_of(1)], [(true, 0), (true, 2)]);
    }

    #[test]
    fn an_idle_worker_is_given_one_of_several_pipelined_requests() {
        with_two_ready(|other, reactor| {
            assert!(!reactor.give_one());
            other.set_idle(true);
            assert!(reactor.give_one());
            // The worker keeps its last connection.
            assert!(!reactor.give_one());
            assert_eq!(other.queued(), 1);
        });
    }

    #[test]
    fn a_worker_that_has_given_a_request_away_serves_its_own_and_leaves_that_one_in_the_queue() {
        with_two_ready(|other, reactor| {
            other.set_idle(true);
            reactor.lead.count_request(GIVING_INTERVAL);
            assert!(reactor.poll_all().is_none());
            assert!(matches!(reactor.next_action(), Action::Serve(_)));
            assert_eq!(other.queued(), 1);
        });
    }
}
