//! The loop of one worker.

use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::{Arc, MutexGuard};

use fastrack_sys::{epoch_seconds, monotonic_millis, Events, Poller};

use crate::app::{App, Flow};
use crate::connection::{Connection, Step};
use crate::connections::Connections;
use crate::control::Control;
use crate::dispatch::{Dispatch, Seat};
use crate::exchange::{Exchange, Stage};
use crate::helper::Helper;
use crate::listener::Listener;
use crate::listeners::{Client, Listeners};
use crate::output::Output;
use crate::reactor::Reactor;
use crate::settings::Settings;
use crate::shared::Shared;

/// The poller's tokens of the master's pipe, the workers' queue, and the set of this worker's own connections.
/// Those of the listeners come below them.
const MASTER: u64 = u64::MAX;
const QUEUE: u64 = 0;
const CONNECTIONS: u64 = 1;

/// So many new clients are served in a row before the connections are looked at, or whatever else the poller knows.
const NEW_BEFORE_CONNECTIONS: u32 = 16;
const NEW_BEFORE_POLL: u32 = 128;

/// So many requests of kept connections are served in a row before new clients are looked for.
const KEPT_BEFORE_POLL: u32 = 64;

/// Requests from one connection that is given to an idle worker to the next. To give costs as much as half a short
/// request, so that this is how fast connections spread over the workers and what two pay that give to and fro.
const GIVE_INTERVAL: u32 = 128;

/// What the memory of unsent output may keep when the response has left, in bytes.
const UNSENT_KEPT: usize = 256 * 1024;

/// How long nobody is accepted after the system has run out of descriptors, in milliseconds.
const EXHAUSTION_PAUSE: u64 = 20;

/// How long a local client gets to send its request before its connection is parked, in milliseconds. A proxy
/// writes microseconds after it has connected: waiting for it costs one system call, parking it three.
const LOCAL_PATIENCE: u64 = 1;

/// Why [`Engine::run`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It was asked to stop, and has finished what had begun.
    Stopped,
    /// It has served as many requests as it was to.
    Limit,
    /// The master is gone.
    Orphaned,
    /// This is a forked child, which has let go of the connections.
    Closed,
    /// The application's side has something to deal with first, or the poller has failed.
    Broken,
}

/// What to do next.
enum Move {
    /// A request is complete.
    Serve(Box<Connection>),
    /// A client has connected, and its request is on the way.
    Expect(Box<Connection>),
    /// There may be more to do at once.
    GoOn,
    /// The system has to recover.
    Pause,
    /// Nobody wants anything.
    Wait,
}

/// One worker's listeners and connections.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    control: Arc<Control>,
    listeners: Listeners,
    /// What wakes an idle worker: listeners, the workers' queue, its own connections, the master's end.
    poller: Poller,
    events: Events,
    output: Output,
    /// Clients accepted and requests of kept connections served in a row without a look at the poller, and
    /// requests since a connection was given away.
    accepted: u32,
    kept: u32,
    since_given: u32,
    /// A request that is complete.
    first: Option<Box<Connection>>,
    /// The poller has said that there is something in the workers' queue.
    queue_announced: bool,
    /// The second of the last warning about exhaustion.
    last_warning: u64,
    /// Requests still to be served in this run.
    left: Option<u64>,
    finish: Option<Finish>,
    // Before what it works on goes.
    _helper: Helper,
    // Kept open for the poller.
    _master: Option<OwnedFd>,
}

/// The reactor, in hand.
type Hold<'a> = MutexGuard<'a, Reactor>;

impl Engine {
    /// An engine for these listeners, and its thread. `master` is the read end of a pipe whose
    /// other end only the master holds: its end of file means that the master is gone. With a
    /// `dispatch` it shares connections with the other workers of that.
    pub fn new(
        listeners: Vec<Listener>,
        master: Option<RawFd>,
        settings: Settings,
        dispatch: Option<&Dispatch>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        let listeners = Listeners::new(listeners);
        listeners.join(&poller)?;
        let master = master.map(fastrack_sys::duplicate).transpose()?;
        if let Some(master) = &master {
            poller.add(master, MASTER)?;
        }
        let connections = Connections::new()?;
        poller.add(connections.poller(), CONNECTIONS)?;
        let seat = dispatch.map(Dispatch::seat).transpose()?.flatten();
        if let Some(seat) = &seat {
            poller.add_shared(seat.receiver(), QUEUE)?;
            // From here on, for the master may send another worker away as soon as this one says that it is ready.
            seat.set_serving(true);
        }
        let set = fastrack_sys::duplicate(connections.poller().raw_fd())?;
        let held = listeners.raw_fds().chain(seat.iter().flat_map(Seat::raw_fds));
        let held = held.chain([connections.poller().raw_fd(), std::os::fd::AsRawFd::as_raw_fd(&set)]);
        let control = Arc::new(Control::new(poller.raw_fd(), held, &settings.oversight)?);
        let count = listeners.raw_fds().count();
        let reactor = Reactor::new(settings, Arc::clone(&control), connections, seat, count);
        let shared = Arc::new(Shared::new(reactor, set));
        Ok(Engine {
            control: Arc::clone(&control),
            listeners,
            poller,
            events: Events::default(),
            output: Output::default(),
            accepted: 0,
            kept: 0,
            since_given: 0,
            first: None,
            queue_announced: false,
            last_warning: 0,
            left: None,
            finish: None,
            _helper: Helper::start(Arc::clone(&shared), Arc::clone(&control))?,
            shared,
            _master: master,
        })
    }

    /// What may be asked of this engine while it runs.
    pub fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// Serves until asked to stop, or `limit` requests have been answered.
    pub fn run(&mut self, app: &mut impl App, limit: Option<u64>) -> Finish {
        if self.control.is_closed() {
            return Finish::Closed;
        }
        self.left = limit;
        self.finish = None;
        let shared = Arc::clone(&self.shared);
        shared.pulse.awake();
        let finish = self.serve_all(&shared, app);
        shared.pulse.idle();
        finish
    }

    fn serve_all(&mut self, shared: &Shared, app: &mut impl App) -> Finish {
        let mut hold = shared.reactor();
        loop {
            let in_hand = match self.finished(&mut hold) {
                Some(finish) => return finish,
                None => self.next(&mut hold, app),
            };
            shared.pulse.beat();
            // In a forked child the reactor may be in the hand of a thread that is not there.
            let after = match in_hand {
                Move::Serve(connection) => self.serve(shared, hold, connection, app),
                Move::Expect(connection) => self.expect(shared, hold, connection, app),
                Move::GoOn => self.go_on(shared, hold, app),
                Move::Pause => {
                    self.aside(shared, hold, |_| app.block(&mut || fastrack_sys::pause(EXHAUSTION_PAUSE)))
                }
                Move::Wait => self.wait(shared, hold, app),
            };
            let Some(after) = after else { return Finish::Closed };
            hold = after;
        }
    }

    /// Whether there is a reason to return, and which.
    fn finished(&mut self, hold: &mut Hold<'_>) -> Option<Finish> {
        if self.control.is_stopping() && !hold.is_stopping() && !self.is_done() {
            self.begin_stop(hold);
        }
        if self.finish.is_some() {
            return self.finish;
        }
        if self.left == Some(0) {
            return Some(Finish::Limit);
        }
        (hold.is_stopping() && hold.is_done() && self.first.is_none()).then_some(Finish::Stopped)
    }

    /// Whether no other request may be served in this run.
    fn is_done(&self) -> bool {
        self.finish.is_some() || self.left == Some(0)
    }

    /// From now on nobody is accepted, and only clients that are here already are waited for, each for a while.
    fn begin_stop(&mut self, hold: &mut Hold<'_>) {
        if self.control.is_draining() {
            // Nobody else would: they would be cut off with the last listener.
            for client in self.listeners.accept_all() {
                let (connection, step) = greet(client, hold);
                hold.enter(connection, step).into_iter().for_each(|connection| hold.queue(connection));
            }
        } else if self.listeners.is_anybody_announced() {
            // The kernel has woken this worker for that client and no other one: it would wait for the next client
            // to come before anybody looked (EPOLLEXCLUSIVE, epoll_ctl(2)).
            if let Ok(Some(client)) = self.listeners.accept() {
                let (connection, step) = greet(client, hold);
                hold.enter(connection, step).into_iter().for_each(|connection| hold.queue(connection));
            }
        }
        self.listeners.leave(&self.poller, &self.control);
        hold.begin_stop();
        let Some(seat) = hold.seat() else { return };
        // It fails only if the queue is not there, which is what is wanted.
        let _ = self.poller.remove(seat.receiver());
        if !seat.is_followed() {
            hold.drain_queue();
        } else if !seat.is_another_serving() {
            hold.answer_queued();
        } else if self.queue_announced {
            // As with a client that was announced to this worker alone.
            hold.pass_on_queued();
        }
    }

    /// Finds a request that is complete. None may starve another: whoever has come by a listener, is in the workers'
    /// queue or has just sent something.
    fn next(&mut self, hold: &mut Hold<'_>, app: &mut impl App) -> Move {
        if let Some(connection) = self.first.take() {
            return Move::Serve(connection);
        }
        if self.kept >= KEPT_BEFORE_POLL || self.shared.had_long_request() {
            return self.poll(hold, app, true);
        }
        let most = if hold.is_watching() { NEW_BEFORE_CONNECTIONS } else { NEW_BEFORE_POLL };
        if self.accepted < most && self.listeners.is_anybody_likely() {
            self.accepted += 1;
            return self.accept(hold, app);
        }
        if let Some(connection) = self.next_in_line(hold) {
            self.kept += 1;
            return Move::Serve(connection);
        }
        self.poll(hold, app, false)
    }

    /// A request of a client that was there before: first those that have waited for longest.
    fn next_in_line(&mut self, hold: &mut Hold<'_>) -> Option<Box<Connection>> {
        let queued = self.queue_announced || hold.seat().is_some_and(Seat::is_anybody_queued);
        if queued && !hold.is_stopping() {
            self.queue_announced = false;
            let connection = hold.take_queued();
            if connection.is_some() {
                return connection;
            }
        }
        hold.take_ready().or_else(|| hold.take_arrival())
    }

    /// Asks for what has arrived, on the kept connections and, where that is due, elsewhere.
    fn poll(&mut self, hold: &mut Hold<'_>, app: &mut impl App, due: bool) -> Move {
        (self.accepted, self.kept) = (0, 0);
        // Whoever sends without a pause keeps nobody from being accepted.
        let due = due || hold.arrived() > 0;
        let mut result = Ok(());
        if hold.is_watching() {
            result = hold.poll();
            if self.since_given >= GIVE_INTERVAL && hold.arrived() > 1 && hold.share() {
                self.since_given = 0;
            }
        }
        hold.expire();
        let mut busy = due || hold.has_pending();
        // The wait asks as well; but for new clients it is worth a look without letting go of everything.
        if result.is_ok() && (due || !busy && !hold.is_watching()) {
            result = self.poller.wait(&mut self.events, Some(0));
            self.announce();
            busy |= !self.events.is_empty();
        }
        busy |= self.queue_announced || self.listeners.is_anybody_likely();
        busy |= self.finish.is_some() || hold.is_stopping() && hold.is_done();
        self.log(hold, app);
        if let Err(error) = result {
            self.fail(&error, app);
        }
        if busy {
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
    fn wait<'a>(&mut self, shared: &'a Shared, hold: Hold<'a>, app: &mut impl App) -> Option<Hold<'a>> {
        self.listeners.missed();
        let timeout = hold.next_deadline().map(|at| at.saturating_sub(monotonic_millis()));
        if let Some(seat) = hold.seat() {
            seat.set_idle(!hold.is_stopping());
        }
        drop(hold);
        shared.pulse.idle();
        let mut result = Ok(());
        let (poller, events) = (&self.poller, &mut self.events);
        events.clear();
        let flow = app.block(&mut || {
            result = poller.wait(events, timeout);
            shared.pulse.awake();
        });
        shared.pulse.awake();
        self.note(flow);
        let hold = self.hold(shared)?;
        if let Some(seat) = hold.seat() {
            seat.set_idle(false);
        }
        if let Err(error) = result {
            self.fail(&error, app);
        }
        self.announce();
        Some(hold)
    }

    /// The reactor again, after something outside has had the thread; None in a forked child.
    fn hold<'a>(&self, shared: &'a Shared) -> Option<Hold<'a>> {
        (!self.control.is_closed()).then(|| shared.reactor())
    }

    /// Accepts one client, if there is one.
    fn accept(&mut self, hold: &mut Hold<'_>, app: &mut impl App) -> Move {
        let client = match self.listeners.accept() {
            Ok(Some(client)) => client,
            Ok(None) => return Move::GoOn,
            // Something has run out, descriptors most likely: a parked connection makes room, or else time must.
            Err(error) => {
                self.warn_of_exhaustion(&error, app);
                return if hold.make_room() { Move::GoOn } else { Move::Pause };
            }
        };
        let local = !self.listeners.is_tcp(client.listener);
        match greet(client, hold) {
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

    /// Gives a local client a moment to send its request. None in a forked child.
    fn expect<'a>(
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

    /// Nothing was answered: others may want the thread. None in a forked child.
    fn go_on<'a>(&mut self, shared: &'a Shared, hold: Hold<'a>, app: &mut impl App) -> Option<Hold<'a>> {
        self.aside(shared, hold, |_| app.check())
    }

    /// Runs what is not the engine's own, with the reactor in nobody's hand. None in a forked child.
    fn aside<'a>(
        &mut self,
        shared: &'a Shared,
        hold: Hold<'a>,
        work: impl FnOnce(&mut Self) -> Flow,
    ) -> Option<Hold<'a>> {
        drop(hold);
        let flow = work(self);
        self.note(flow);
        self.hold(shared)
    }

    /// Says so once a second at most, however often it happens.
    fn warn_of_exhaustion(&mut self, error: &io::Error, app: &mut impl App) {
        let now = epoch_seconds();
        if self.last_warning != now {
            self.last_warning = now;
            app.warn(&format!("cannot accept: {error}"));
        }
    }

    /// Has the application answer a request. None in a forked child.
    fn serve<'a>(
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
        self.control.begin(connection.raw_fd(), &request);
        let control = Arc::clone(&self.control);
        let mut exchange =
            Exchange::new(connection.as_fd(), &mut self.output, &control, &request, settings, last);
        self.control.set_pending(hold.has_pending());
        drop(hold);
        let flow = app.call(&request, &mut exchange);
        let (stage, goes_on) = (exchange.stage(), exchange.is_persistent());
        shared.pulse.beat();
        self.control.end();
        let mut hold = self.hold(shared)?;
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

    /// Passes on what the reactor has to say.
    fn log(&self, hold: &mut Hold<'_>, app: &mut impl App) {
        hold.warnings().iter().for_each(|line| app.warn(line));
    }

    fn fail(&mut self, error: &io::Error, app: &mut impl App) {
        app.warn(&format!("cannot wait: {error}"));
        self.finish = Some(Finish::Broken);
    }

    fn note(&mut self, flow: Flow) {
        if flow == Flow::Break {
            self.finish = Some(Finish::Broken);
        }
    }
}

/// Reads what a client has sent that has just been accepted.
fn greet(client: Client, reactor: &mut Reactor) -> (Box<Connection>, Step) {
    let mut connection = Connection::new(client.fd, client.peer, client.listener);
    let step = connection.read(&reactor.settings, &mut reactor.inputs);
    (connection, step)
}
