//! One turn of a worker's loop: what to do next, and doing it.

use std::io;
use std::os::fd::AsFd;

use fastrack_sys::{epoch_seconds, monotonic_millis};

use crate::app::App;
use crate::connection::{Connection, Step};
use crate::engine::{Engine, Finish, Hold, CONNECTIONS, MASTER, QUEUE};
use crate::listeners::Client;
use crate::reactor::Reactor;
use crate::response_writer::{ResponseWriter, Stage};
use crate::shared::Shared;
use crate::shared_queue::Member;

/// So many new clients are served in a row before the connections are looked at, or whatever else the poller knows.
const NEW_BEFORE_CONNECTIONS: u32 = 16;
const NEW_BEFORE_POLL: u32 = 128;

/// New clients accepted by one look while kept ones are in line: as many as kept ones are served until the next.
const NEW_IN_LINE: u32 = KEPT_BEFORE_LOOK;

/// Kept-alive requests served before the listeners are asked again, however many more are in line.
const KEPT_BEFORE_LOOK: u32 = 64;

/// After this long the listeners are asked each time the line is empty, in milliseconds. For short requests the 64 above
/// come first, which costs them next to nothing; long ones can afford the 0.2 microseconds each time.
const LOOK_INTERVAL: u64 = 1;

/// Requests from one connection that is given to an idle worker to the next. To give costs as much as half a short
/// request, so that this is how fast connections spread over the workers and what two pay that give to and fro.
const GIVE_INTERVAL: u32 = 128;

/// What the memory of unsent output may keep when the response has left, in bytes.
const UNSENT_KEPT: usize = 256 * 1024;

/// How long a local client gets to send its request before its connection is parked, in milliseconds. A proxy
/// writes microseconds after it has connected: waiting for it costs one system call, parking it three.
const LOCAL_PATIENCE: u64 = 1;

/// What to do next.
pub(crate) enum Move {
    /// A request is complete.
    Serve(Box<Connection>),
    /// A client has connected, and its request is on the way.
    Expect(Box<Connection>),
    /// There may be more to do at once.
    GoOn,
    /// There are lines for the log.
    Tell(Vec<String>),
    /// The system has to recover.
    Pause,
    /// Nobody wants anything.
    Wait,
}

impl Engine {
    /// Finds a request that is complete. None may starve another: whoever has come by a listener, is in the workers'
    /// queue or has just sent something.
    pub(crate) fn next(&mut self, hold: &mut Hold<'_>) -> Move {
        let lines = hold.warnings();
        if !lines.is_empty() {
            return Move::Tell(lines);
        }
        if let Some(connection) = self.first.take() {
            return Move::Serve(connection);
        }
        if self.kept >= KEPT_BEFORE_LOOK || self.shared.had_long_request() {
            return self.poll(hold, true);
        }
        let most = match (hold.is_watching(), hold.arrived()) {
            (false, _) => NEW_BEFORE_POLL,
            (true, 0) => NEW_BEFORE_CONNECTIONS,
            (true, _) => NEW_IN_LINE,
        };
        if self.accepted < most && self.listeners.is_anybody_likely() {
            self.accepted += 1;
            return self.accept(hold);
        }
        if let Some(connection) = self.next_in_line(hold) {
            self.kept += 1;
            return Move::Serve(connection);
        }
        if std::mem::take(&mut hold.exhausted) {
            self.warn_of_exhaustion("take a connection over", &fastrack_sys::too_many_open_files(), hold);
            return Move::Pause;
        }
        self.poll(hold, false)
    }

    /// A request of a client that was there before: first those that have waited for longest.
    fn next_in_line(&mut self, hold: &mut Hold<'_>) -> Option<Box<Connection>> {
        let queued = self.queue_announced || hold.member().is_some_and(Member::is_anybody_queued);
        if queued && !hold.is_stopping() {
            self.queue_announced = false;
            let connection = hold.take_queued();
            if connection.is_some() {
                return connection;
            }
        }
        hold.take_ready().or_else(|| hold.take_arrival())
    }

    /// Asks for what has arrived on the kept connections and, where that is due, on the listeners and the queue.
    ///
    /// INVARIANT: `kept` is reset only where the listeners are asked. Otherwise fewer than [`KEPT_BEFORE_LOOK`] busy
    /// clients would keep new ones in the backlog for as long as they go on.
    fn poll(&mut self, hold: &mut Hold<'_>, due: bool) -> Move {
        self.accepted = 0;
        // Clients that send without a pause do not keep new ones out either.
        let due =
            due || hold.arrived() > 0 || self.kept > 0 && self.last_began >= self.looked + LOOK_INTERVAL;
        if due {
            (self.kept, self.looked) = (0, self.last_began);
        }
        let mut result = Ok(());
        if hold.is_watching() {
            result = hold.poll();
            if self.since_given >= GIVE_INTERVAL && hold.arrived() > 1 && hold.share() {
                self.since_given = 0;
            }
        }
        hold.expire(&|| false);
        let mut busy = due || hold.has_pending();
        // The wait asks as well; but for new clients it is worth a look without letting go of everything.
        if result.is_ok() && (due || !busy && !hold.is_watching()) {
            result = self.poller.wait(&mut self.events, Some(0));
            self.announce();
            busy |= !self.events.is_empty();
        }
        busy |= self.queue_announced || self.listeners.is_anybody_likely();
        busy |= self.finish.is_some() || hold.is_stopping() && hold.is_done();
        if let Err(error) = result {
            self.fail(&error, hold);
        }
        // What is to be told comes first: the wait may be long.
        if busy || !hold.warnings.is_empty() {
            Move::GoOn
        } else {
            Move::Wait
        }
    }

    /// Takes note of what the poller has said.
    fn announce(&mut self) {
        for event in self.events.iter() {
            match event.token {
                // Nobody ever writes to this pipe: readable means end of file.
                MASTER => self.finish = self.finish.or(Some(Finish::Orphaned)),
                QUEUE => self.queue_announced = true,
                CONNECTIONS => {}
                listener => self.listeners.announce(listener),
            }
        }
    }

    /// Waits until somebody wants something. None in a forked child.
    pub(crate) fn wait<'a>(
        &mut self,
        shared: &'a Shared,
        hold: Hold<'a>,
        app: &mut impl App,
    ) -> Option<Hold<'a>> {
        self.listeners.missed();
        let timeout = hold.next_deadline().map(|at| at.saturating_sub(monotonic_millis()));
        if let Some(member) = hold.member() {
            member.set_idle(!hold.is_stopping());
        }
        shared.rest(hold);
        let mut result = Ok(());
        let (poller, events) = (&self.poller, &mut self.events);
        events.clear();
        let flow = app.block(&mut || {
            result = poller.wait(events, timeout);
            shared.awake();
        });
        self.note(flow);
        if self.control.is_closed() {
            return None;
        }
        shared.awake();
        let mut hold = self.hold(shared)?;
        if let Some(member) = hold.member() {
            member.set_idle(false);
        }
        if let Err(error) = result {
            self.fail(&error, &mut hold);
        }
        self.announce();
        Some(hold)
    }

    /// Accepts one client, if there is one.
    fn accept(&mut self, hold: &mut Hold<'_>) -> Move {
        let client = match self.listeners.accept() {
            Ok(Some(client)) => client,
            Ok(None) => return Move::GoOn,
            // Something has run out, descriptors most likely: a parked connection makes room, or else time must.
            Err(error) => {
                self.warn_of_exhaustion("accept", &error, hold);
                return if hold.make_room() { Move::GoOn } else { Move::Pause };
            }
        };
        if hold.is_watching() {
            self.look_for_more(hold);
        }
        let local = !self.listeners.is_tcp(client.listener);
        match greet(client, hold) {
            // Kept clients are in line: the new ones of this look come next, each once, and then those.
            (connection, Step::Ready) if hold.arrived() > 0 => {
                hold.queue(connection);
                Move::GoOn
            }
            (connection, Step::Ready) if hold.is_crowded() => {
                hold.line_up(connection);
                Move::GoOn
            }
            (connection, Step::Ready) => Move::Serve(connection),
            (connection, Step::Wait) if local && !connection.has_begun() => Move::Expect(connection),
            (connection, step) => {
                self.first = hold.enter(connection, step);
                Move::GoOn
            }
        }
    }

    /// Whether somebody else waits behind the client just accepted. Kept clients may come in between before the listeners
    /// are asked again, and one new client at a time would leave a crowd in the backlog.
    fn look_for_more(&mut self, hold: &mut Hold<'_>) {
        match self.poller.wait(&mut self.events, Some(0)) {
            Ok(()) => self.announce(),
            Err(error) => self.fail(&error, hold),
        }
    }

    /// Gives a local client a moment to send its request. None in a forked child.
    pub(crate) fn expect<'a>(
        &mut self,
        shared: &'a Shared,
        hold: Hold<'a>,
        mut connection: Box<Connection>,
        app: &mut impl App,
    ) -> Option<Hold<'a>> {
        let fd = connection.raw_fd();
        self.control.hold(fd);
        let mut hold = self.aside(shared, hold, |_| {
            // Whatever comes of it, the next read tells.
            app.block(&mut || drop(fastrack_sys::wait_readable(connection.as_fd(), LOCAL_PATIENCE)))
        })?;
        self.control.release(fd);
        let reactor = &mut *hold;
        let step = connection.read(&reactor.settings, &mut reactor.inputs);
        self.first = hold.enter(connection, step);
        Some(hold)
    }

    /// Has the application answer a request. None in a forked child.
    pub(crate) fn serve<'a>(
        &mut self,
        shared: &'a Shared,
        mut hold: Hold<'a>,
        mut connection: Box<Connection>,
        app: &mut impl App,
    ) -> Option<Hold<'a>> {
        let settings = &hold.settings;
        connection.open_body(settings, &self.control);
        let Some(request) = connection.request(settings) else {
            // Nothing is ever complete without one.
            hold.discard(connection);
            return Some(hold);
        };
        let served = connection.served.saturating_add(1);
        let last = settings.keep_alive_requests != 0 && served >= settings.keep_alive_requests;
        self.last_began = self.control.begin(connection.raw_fd(), &request);
        let mut writer = ResponseWriter::new(
            connection.as_fd(),
            &mut self.output,
            &self.control,
            &request,
            settings,
            last,
        );
        self.control.set_pending(hold.has_pending());
        drop(hold);
        let flow = app.call(&request, &mut writer);
        let (stage, goes_on) = (writer.stage(), writer.is_persistent());
        shared.pulse.beat();
        self.control.end();
        let mut hold = self.hold(shared)?;
        // What is called after the response may last, too.
        shared.begin(true);
        // What comes on a connection that was handed over is somebody else's.
        let goes_on = (stage == Stage::HandedOver || connection.pass_over_body()) && goes_on;
        self.left = self.left.map(|left| left.saturating_sub(1));
        self.since_given = self.since_given.saturating_add(1);
        if let Some(next) = hold.settle(connection, stage, goes_on, &mut self.output) {
            hold.queue(next);
        }
        self.output.shrink(UNSENT_KEPT);
        drop(hold);
        self.note(flow);
        let flow = app.after_response();
        self.note(flow);
        shared.pulse.beat();
        self.hold(shared)
    }

    /// Says so once a second at most, however often it happens.
    fn warn_of_exhaustion(&mut self, what: &str, error: &io::Error, hold: &mut Hold<'_>) {
        let now = epoch_seconds();
        if self.last_warning != now {
            self.last_warning = now;
            hold.warnings.push(format!("cannot {what}: {error}"));
        }
    }
}

/// Reads what a client has sent that has just been accepted.
pub(crate) fn greet(client: Client, reactor: &mut Reactor) -> (Box<Connection>, Step) {
    let mut connection = Connection::new(client.fd, client.peer, client.listener);
    let step = connection.read(&reactor.settings, &mut reactor.inputs);
    (connection, step)
}
