//! What the worker does next. Nobody may starve: new clients, connections in the shared queue, and kept-alive ones.

use super::{Next, Reactor};
use crate::conn::{Connection, Step};
use crate::handoff::QueueHandle;

/// How many new clients are served in a row before the connections are polled.
const NEW_BEFORE_CONNECTIONS: u32 = 16;

/// New clients served in a row where no connection waits for an event, or where some have events; and requests of kept-alive
/// connections served before the listeners are polled again: as many of each.
pub(super) const PER_LOOK: u32 = 64;

/// What to do next.
pub(crate) enum Action {
    Serve(Box<Connection>),
    /// A client has connected, and its request is on the way.
    AwaitRequest(Box<Connection>),
    /// There may be more to do at once.
    Continue,
    Log(Vec<String>),
    /// Let the system recover.
    Pause,
    Wait,
}

impl Reactor {
    pub fn next_action(&mut self) -> Action {
        loop {
            // Twice at most: a poll begins the counts anew by which the next one is due.
            if let Some(action) = self.look_for_action() {
                return action;
            }
        }
    }

    /// None if a poll has found what to look at.
    fn look_for_action(&mut self) -> Option<Action> {
        if self.has_warnings() {
            return Some(Action::Log(self.take_warnings()));
        }
        if let Some(connection) = self.lead.schedule.first.take() {
            return Some(Action::Serve(connection));
        }
        if self.lead.schedule.kept >= PER_LOOK || self.take_long_request() {
            return self.poll_all(true);
        }
        let most = match (self.has_connections(), self.events()) {
            (true, 0) => NEW_BEFORE_CONNECTIONS,
            _ => PER_LOOK,
        };
        if self.lead.schedule.accepted < most && self.lead.listeners.is_client_likely() {
            self.lead.schedule.accepted += 1;
            return Some(self.accept());
        }
        if let Some(connection) = self.next_kept() {
            self.lead.schedule.kept += 1;
            return Some(Action::Serve(connection));
        }
        if self.take_left_queued() {
            return Some(Action::Pause);
        }
        self.poll_all(false)
    }

    /// A ready request of a client that was here before: first those that have waited for longest.
    fn next_kept(&mut self) -> Option<Box<Connection>> {
        let queued = self.lead.schedule.queue_announced
            || self.queue_handle().is_some_and(QueueHandle::is_anything_queued);
        if queued && !self.is_stopping() {
            self.lead.schedule.queue_announced = false;
            let connection = self.take_queued();
            if connection.is_some() {
                return connection;
            }
        }
        self.take_ready().or_else(|| self.handle_events())
    }

    /// Polls the kept-alive connections and, where that is due, the listeners and the queue. None if a request is likely to be there.
    ///
    /// INVARIANT: `kept` is reset only where the listeners are polled. Otherwise fewer than [`PER_LOOK`]
    /// busy clients would keep new ones in the backlog for as long as they go on.
    fn poll_all(&mut self, due: bool) -> Option<Action> {
        self.lead.schedule.accepted = 0;
        // Clients that send without a pause do not keep new ones out either.
        let due = due || self.events() > 0 || self.lead.schedule.kept > 0 && self.lead.schedule.is_look_due();
        if due {
            let schedule = &mut self.lead.schedule;
            (schedule.kept, schedule.last_look) = (0, schedule.last_began);
        }
        if self.accepts_clients() && self.lead.listeners.is_paused() {
            if let Err(error) = self.lead.resume_listeners() {
                self.note_unwatched_listeners(&error);
            }
        }
        let mut result = Ok(());
        // Else what the disk has done for a client that has left would end each wait.
        if self.has_connections() || self.table.disk().has_news() {
            result = self.poll();
        }
        if self.lead.schedule.may_give() && self.share() {
            (self.lead.schedule.since_given, self.lead.schedule.last_given) =
                (0, self.lead.schedule.last_began);
            // From the queue it would take what it has just given, before the idle worker has woken up.
            self.lead.schedule.first = self.take_ready().or_else(|| self.handle_events());
        }
        self.expire(&|| false);
        let mut busy = due || self.lead.schedule.first.is_some() || self.has_pending();
        // Waiting polls as well; but for new clients it is worth a look without unlocking everything.
        if result.is_ok() && (due || !busy && !self.has_connections()) {
            result = self.poll_listeners();
            busy |= !self.lead.polled.is_empty();
        }
        self.lead.schedule.kept += u32::from(self.lead.schedule.first.is_some());
        let is_request_likely = self.lead.schedule.first.is_some() || self.lead.listeners.is_client_likely();
        busy |= self.lead.schedule.queue_announced || is_request_likely;
        busy |= self.lead.finish.is_some() || self.is_stopping() && self.is_done() && self.is_rest_done();
        if let Err(error) = result {
            self.fail(&error);
        } else if self.take_lost_descriptors() {
            self.stop_lost();
        }
        if is_request_likely && self.lead.finish.is_none() && !self.has_warnings() {
            // The application sees to its signals after this request.
            None
        } else if busy || self.has_warnings() {
            // Log before waiting, which may take long.
            Some(Action::Continue)
        } else {
            Some(Action::Wait)
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
            // If that begins a pause, the next try pauses the listeners.
            Err(error) => {
                self.note_failed_accept(&error);
                return Action::Continue;
            }
        };
        if self.has_connections() {
            // Kept-alive clients may come before the next look: with one new client each the backlog would stay full.
            if let Err(error) = self.poll_listeners() {
                self.fail(&error);
            }
        }
        let is_local = !self.lead.listeners.is_tcp(client.listener);
        let is_behind = self.has_waiting_requests();
        match self.greet(client) {
            // Kept-alive clients have sent something: the new ones of this look come next, each once, and then those.
            (mut connection, Step::Ready) if self.events() > 0 => {
                // It may shut down its sending side any moment now, and still wait for the response.
                connection.answer_after_shutdown = true;
                self.queue(connection);
            }
            (connection, Step::Ready) if is_behind => self.queue_behind_waiting(connection),
            (connection, Step::Ready) => return Action::Serve(connection),
            (connection, Step::Wait) if is_local && !connection.has_begun() => {
                return Action::AwaitRequest(connection);
            }
            (connection, step) => self.take_in(connection, step),
        }
        Action::Continue
    }

    /// Takes in a connection that is new here; serves it next if its request is ready.
    pub fn take_in(&mut self, connection: Box<Connection>, step: Step) {
        if let Next::Ready(connection) = self.enter(connection, step) {
            self.lead.schedule.first = Some(connection);
        }
    }

    /// Leaves a request that was to be served next to another thread.
    pub fn put_off(&mut self) {
        self.lead.schedule.first.take().into_iter().for_each(|connection| self.queue(connection));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::super::schedule::{Schedule, GIVE_INTERVAL, GIVE_TIME};
    use super::*;
    use crate::accept::Client;
    use crate::handoff::SharedQueue;
    use crate::settings::Settings;
    use crate::worker::Engine;

    /// With an engine, another worker, and the engine's reactor, in which two clients' requests are ready.
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
            let (connection, step) = reactor.greet(Client { fd: server.into(), peer: None, listener: 0 });
            assert_eq!(step, Step::Ready);
            reactor.queue(connection);
        }
        test(&other, &mut reactor);
    }

    #[test]
    fn an_idle_worker_is_given_one_of_several_pipelined_requests() {
        with_two_ready(|other, reactor| {
            assert!(!reactor.share());
            other.set_idle(true);
            assert!(reactor.share());
            // The last one stays.
            assert!(!reactor.share());
            assert_eq!(other.queued(), 1);
        });
    }

    #[test]
    fn a_worker_that_has_given_a_request_away_serves_its_own_and_leaves_that_one_in_the_queue() {
        with_two_ready(|other, reactor| {
            other.set_idle(true);
            reactor.lead.schedule.last_began = GIVE_TIME;
            assert!(reactor.poll_all(true).is_none());
            assert!(matches!(reactor.next_action(), Action::Serve(_)));
            assert_eq!(other.queued(), 1);
        });
    }

    #[test]
    fn a_worker_gives_again_after_many_requests_or_some_time() {
        let mut schedule = Schedule::new();
        (schedule.last_given, schedule.last_began) = (1_000, 1_003);
        assert!(!schedule.may_give());
        schedule.last_began = 1_004;
        assert!(schedule.may_give());
        (schedule.last_given, schedule.since_given) = (1_004, GIVE_INTERVAL);
        assert!(schedule.may_give());
    }
}
