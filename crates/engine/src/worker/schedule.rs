//! What the worker does next. Nobody may starve: new clients, connections in the shared queue, and kept-alive ones.

use super::request_length::RequestLength;
use super::{Driver, Schedule};
use crate::conn::{Connection, Step};
use crate::handoff::QueueHandle;
use crate::reactor::{Next, Reactor};

/// How many new clients are served in a row before the connections are polled, or everything else.
const NEW_BEFORE_CONNECTIONS: u32 = 16;
const NEW_BEFORE_POLL: u32 = 128;

/// New clients accepted by one look while kept-alive ones have events: as many as of those are served in between.
const NEW_PER_LOOK: u32 = KEPT_BEFORE_LOOK;

/// Requests of kept-alive connections served before the listeners are polled again.
const KEPT_BEFORE_LOOK: u32 = 64;

/// After this long the listeners are polled whenever no request is ready, in milliseconds. Short requests come to
/// the 64 above first, which costs them next to nothing; long ones can afford 0.2 microseconds each time.
const LOOK_INTERVAL: u64 = 1;

/// Where requests are of medium length, those that have come are put into the shared queue so often, in milliseconds. Each time
/// takes as long as a few of them.
const LINE_UP_INTERVAL: u64 = 32;

/// Requests from one connection given to an idle worker to the next. Giving costs as much as half a short request,
/// so this limits both how fast connections spread over the workers and what two workers pay that give to and fro. Longer
/// requests can afford it more often: after as many milliseconds as this.
const GIVE_INTERVAL: u32 = 128;
const GIVE_TIME: u64 = 4;

/// What to do next.
pub(super) enum Action {
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

impl Driver {
    pub(super) fn next_action(&mut self, reactor: &mut Reactor) -> Action {
        if reactor.has_warnings() {
            return Action::Log(reactor.take_warnings());
        }
        if let Some(connection) = self.schedule.first.take() {
            return Action::Serve(connection);
        }
        let lines_up = self.schedule.is_look_due() && self.schedule.is_line_up_due() && reactor.may_line_up();
        if self.schedule.kept >= KEPT_BEFORE_LOOK || reactor.take_long_request() || lines_up {
            return self.poll(reactor, true);
        }
        let most = match (reactor.has_connections(), reactor.events()) {
            (false, _) => NEW_BEFORE_POLL,
            (true, 0) => NEW_BEFORE_CONNECTIONS,
            (true, _) => NEW_PER_LOOK,
        };
        if self.schedule.accepted < most && self.listeners.is_client_likely() {
            self.schedule.accepted += 1;
            return self.accept(reactor);
        }
        if let Some(connection) = self.next_kept(reactor) {
            self.schedule.kept += 1;
            return Action::Serve(connection);
        }
        if reactor.take_left_queued() {
            return Action::Pause;
        }
        self.poll(reactor, false)
    }

    /// A ready request of a client that was here before: first those that have waited for longest.
    fn next_kept(&mut self, reactor: &mut Reactor) -> Option<Box<Connection>> {
        let queued = self.schedule.queue_announced
            || reactor.queue_handle().is_some_and(QueueHandle::is_anything_queued);
        if queued && !reactor.is_stopping() {
            self.schedule.queue_announced = false;
            let connection = reactor.take_queued();
            if connection.is_some() {
                return connection;
            }
        }
        reactor.take_ready().or_else(|| reactor.handle_events())
    }

    /// Polls the kept-alive connections and, where that is due, the listeners and the queue.
    ///
    /// INVARIANT: `kept` is reset only where the listeners are polled. Otherwise fewer than [`KEPT_BEFORE_LOOK`]
    /// busy clients would keep new ones in the backlog for as long as they go on.
    fn poll(&mut self, reactor: &mut Reactor, due: bool) -> Action {
        self.schedule.accepted = 0;
        // Clients that send without a pause do not keep new ones out either.
        let due = due || reactor.events() > 0 || self.schedule.kept > 0 && self.schedule.is_look_due();
        if due {
            let schedule = &mut self.schedule;
            schedule.lines_up = schedule.is_line_up_due() && reactor.may_line_up();
            (schedule.kept, schedule.last_look) = (0, schedule.last_began);
            if schedule.lines_up {
                schedule.last_line_up = schedule.last_began;
            }
        }
        if reactor.accepts_clients() && self.listeners.is_paused() {
            if let Err(error) = self.listeners.resume(&self.poller) {
                reactor.note_unwatched_listeners(&error);
            }
        }
        let mut result = Ok(());
        if reactor.has_connections() {
            result = reactor.poll();
        }
        if self.schedule.may_give() && reactor.share() {
            (self.schedule.since_given, self.schedule.last_given) = (0, self.schedule.last_began);
            // From the queue it would take what it has just given, before the idle worker has woken up.
            self.schedule.first = reactor.take_ready().or_else(|| reactor.handle_events());
        }
        reactor.expire(&|| false);
        let mut busy = due || self.schedule.first.is_some() || reactor.has_pending();
        // Waiting polls as well; but for new clients it is worth a look without unlocking everything.
        if result.is_ok() && (due || !busy && !reactor.has_connections()) {
            result = self.poll_listeners();
            busy |= !self.events.is_empty();
        }
        if due && self.schedule.lines_up && result.is_ok() && self.finish.is_none() {
            let first = self.schedule.first.take();
            self.schedule.first = reactor.line_up(first, self.listeners.is_client_likely());
        }
        self.schedule.kept += u32::from(self.schedule.first.is_some());
        busy |= self.schedule.queue_announced || self.listeners.is_client_likely();
        busy |= self.finish.is_some() || reactor.is_stopping() && reactor.is_done() && self.is_rest_done();
        if let Err(error) = result {
            self.fail(&error, reactor);
        } else if reactor.take_lost_descriptors() {
            self.stop_lost(reactor);
        }
        // Log before waiting, which may take long.
        if busy || reactor.has_warnings() {
            Action::Continue
        } else {
            self.schedule.length.wait();
            Action::Wait
        }
    }

    fn accept(&mut self, reactor: &mut Reactor) -> Action {
        if !reactor.accepts_clients() {
            self.listeners.pause(&self.poller);
            return Action::Continue;
        }
        let client = match self.listeners.accept() {
            Ok(Some(client)) => client,
            Ok(None) => return Action::Continue,
            Err(error) if fastrack_sys::is_lost_fd(&error) => {
                self.stop_lost(reactor);
                return Action::Continue;
            }
            // If that begins a pause, the next try pauses the listeners.
            Err(error) => {
                reactor.note_failed_accept(&error);
                return Action::Continue;
            }
        };
        if reactor.has_connections() {
            // Kept-alive clients may come before the next look: with one new client each the backlog would stay full.
            if let Err(error) = self.poll_listeners() {
                self.fail(&error, reactor);
            }
        }
        let is_local = !self.listeners.is_tcp(client.listener);
        let is_behind = reactor.has_waiting_requests();
        match reactor.greet(client) {
            (connection, Step::Ready) if is_behind && self.schedule.lines_up => {
                reactor.queue_behind_waiting(connection)
            }
            // Kept-alive clients have sent something: the new ones of this look come next, each once, and then those.
            (mut connection, Step::Ready) if reactor.events() > 0 => {
                // It may shut down its sending side any moment now, and still wait for the response.
                connection.answer_after_shutdown = true;
                reactor.queue(connection);
            }
            (connection, Step::Ready) if is_behind => reactor.queue_behind_waiting(connection),
            (connection, Step::Ready) => return Action::Serve(connection),
            (connection, Step::Wait) if is_local && !connection.has_begun() => {
                return Action::AwaitRequest(connection);
            }
            (connection, step) => self.enter(connection, step, reactor),
        }
        Action::Continue
    }

    /// Takes in a connection that is new here; serves it next if its request is ready.
    pub(super) fn enter(&mut self, connection: Box<Connection>, step: Step, reactor: &mut Reactor) {
        if let Next::Ready(connection) = reactor.enter(connection, step) {
            self.schedule.first = Some(connection);
        }
    }
}

impl Schedule {
    pub(super) fn new() -> Self {
        Schedule {
            accepted: 0,
            kept: 0,
            length: RequestLength::new(fastrack_sys::tick_millis()),
            lines_up: false,
            since_given: 0,
            last_given: 0,
            last_began: 0,
            last_look: 0,
            last_line_up: 0,
            first: None,
            queue_announced: false,
        }
    }

    /// Whether the listeners are to be polled again, going by when requests began: no clock is asked.
    fn is_look_due(&self) -> bool {
        self.last_began >= self.last_look + LOOK_INTERVAL
    }

    /// Whether the requests that have come are to wait in the shared queue.
    fn is_line_up_due(&self) -> bool {
        let is_time = || self.last_began >= self.last_line_up + LINE_UP_INTERVAL;
        self.length.is_long() || self.length.is_medium() && is_time()
    }

    fn may_give(&self) -> bool {
        self.since_given >= GIVE_INTERVAL || self.last_began >= self.last_given + GIVE_TIME
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::super::request_length::{LONG_REQUESTS, MEDIUM_REQUESTS};
    use super::*;
    use crate::accept::Client;
    use crate::handoff::SharedQueue;
    use crate::settings::Settings;
    use crate::worker::Engine;

    /// What a worker does that has three clients with requests, after so many in one tick of the clock, so many milliseconds after
    /// clients have lined up, and how many of the clients are in the shared queue then.
    fn after(requests: u32, millis: u64) -> (bool, u32) {
        let queue = SharedQueue::new().expect("a queue");
        let engine = Engine::new(Vec::new(), None, Settings::default(), Some(&queue)).expect("an engine");
        let other = queue.handle().expect("a member").expect("free");
        other.set_serving(true);
        let mut driver = engine.driver.lock().expect("no panic").take().expect("nobody leads");
        let mut reactor = engine.shared.reactor();
        let _clients: Vec<_> = (0..3)
            .map(|_| {
                let (mut client, server) = UnixStream::pair().expect("a pair");
                server.set_nonblocking(true).expect("nonblocking");
                let (connection, step) = reactor.greet(Client { fd: server.into(), peer: None, listener: 0 });
                driver.enter(connection, step, &mut reactor);
                client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
                client
            })
            .collect();
        reactor.poll().expect("polled");
        driver.schedule.last_line_up = 1_000 - millis;
        (0..requests).for_each(|_| driver.count_request(1_000));
        let is_served = (0..3).any(|_| matches!(driver.next_action(&mut reactor), Action::Serve(_)));
        (is_served, other.queued())
    }

    /// With an engine, another worker, and the engine's reactor, in which two clients' requests are ready.
    fn with_two_ready(test: impl FnOnce(&Engine, &QueueHandle, &mut Reactor)) {
        let queue = SharedQueue::new().expect("a queue");
        let engine = Engine::new(Vec::new(), None, Settings::default(), Some(&queue)).expect("an engine");
        let other = queue.handle().expect("a member").expect("free");
        other.set_serving(true);
        let mut reactor = engine.shared.reactor();
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
        test(&engine, &other, &mut reactor);
    }

    #[test]
    fn an_idle_worker_is_given_one_of_several_pipelined_requests() {
        with_two_ready(|_, other, reactor| {
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
        // Also when requests line up, because they are long.
        for long_requests in [0, 1] {
            with_two_ready(|engine, other, reactor| {
                other.set_idle(true);
                let mut driver = engine.driver.lock().expect("no panic").take().expect("nobody leads");
                driver.schedule.last_began = GIVE_TIME;
                (0..long_requests).for_each(|_| driver.count_request(1_000));
                assert!(matches!(driver.poll(reactor, true), Action::Continue));
                assert_eq!(driver.schedule.lines_up, long_requests > 0);
                assert!(matches!(driver.next_action(reactor), Action::Serve(_)));
                assert_eq!(other.queued(), 1);
            });
        }
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

    #[test]
    fn clients_line_up_after_long_requests_now_and_then_after_medium_ones_and_not_after_short_ones() {
        let [long, medium] = [LONG_REQUESTS, MEDIUM_REQUESTS].map(|most| most * fastrack_sys::tick_millis());
        assert_eq!([1, long, long + 1].map(|requests| after(requests, 1)), [(true, 2), (true, 2), (true, 0)]);
        let later = [long + 1, medium, medium + 1].map(|requests| after(requests, LINE_UP_INTERVAL));
        assert_eq!(later, [(true, 2), (true, 2), (true, 0)]);
    }
}
