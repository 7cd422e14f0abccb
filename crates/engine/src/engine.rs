//! The loop of one worker.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::Arc;

use fastrack_http::{error_response, DateCache, Error};
use fastrack_sys::{epoch_seconds, monotonic_millis, Events, Poller};

use crate::app::{App, Flow};
use crate::connection::{Connection, Step};
use crate::control::Control;
use crate::exchange::{Exchange, Stage};
use crate::input::InputPool;
use crate::listener::Listener;
use crate::listeners::{Client, Listeners};
use crate::parked::Parked;
use crate::settings::Settings;

/// The poller's token of the master's pipe. Those of the listeners come below it, and far below the parked connections'.
const MASTER: u64 = u64::MAX;

/// So many new clients are served in a row before the parked ones are looked at, or whatever else the poller knows.
const NEW_BEFORE_PARKED: u32 = 16;
const NEW_BEFORE_POLL: u32 = 128;

/// Descriptors that are not for parked connections: the application has files and sockets, too.
const RESERVED_DESCRIPTORS: usize = 64;

/// What the memory of unsent output may keep when the response has left, in bytes.
const UNSENT_KEPT: usize = 256 * 1024;

/// How long nobody is accepted after the system has run out of descriptors, in milliseconds.
const EXHAUSTION_PAUSE: u64 = 20;

/// How long a local client gets to send its request before its connection is parked, in milliseconds. A proxy
/// writes microseconds after it has connected: waiting for it costs one system call, parking it three.
const LOCAL_PATIENCE: u64 = 1;

/// How long a refused client gets to read the answer, in milliseconds.
const DRAIN_TIME: u64 = 2_000;

/// How long requests that have begun get to come in whole once the engine is stopping, in milliseconds.
const STOP_TIME: u64 = 5_000;

/// How long clients get then that were accepted and have sent nothing yet, in milliseconds: theirs is on its way.
const STOP_TIME_FRESH: u64 = 1_000;

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

/// One worker's listeners and connections.
#[derive(Debug)]
pub struct Engine {
    listeners: Listeners,
    settings: Settings,
    poller: Poller,
    control: Arc<Control>,
    parked: Parked,
    inputs: InputPool,
    unsent: Vec<u8>,
    date: DateCache,
    /// Connections that may be parked at most.
    most_parked: usize,
    /// The second of the last warning about exhaustion.
    last_warning: u64,
    /// Requests still to be served in this run.
    left: Option<u64>,
    finish: Option<Finish>,
    /// When what has begun is cut off; set while stopping.
    stop_deadline: Option<u64>,
    // Kept open for the poller.
    _master: Option<OwnedFd>,
}

impl Engine {
    /// An engine for these listeners. `master` is the read end of a pipe whose
    /// other end only the master holds: its end of file means that the master is gone.
    pub fn new(listeners: Vec<Listener>, master: Option<RawFd>, settings: Settings) -> io::Result<Self> {
        let poller = Poller::new()?;
        let listeners = Listeners::new(listeners);
        listeners.join(&poller)?;
        let master = master.map(fastrack_sys::duplicate).transpose()?;
        if let Some(master) = &master {
            poller.add(master, MASTER)?;
        }
        let control = Arc::new(Control::new(poller.raw_fd(), listeners.raw_fds()));
        let descriptors = fastrack_sys::descriptors();
        Ok(Engine {
            listeners,
            settings,
            poller,
            control,
            parked: Parked::default(),
            inputs: InputPool::default(),
            unsent: Vec::new(),
            date: DateCache::default(),
            most_parked: descriptors.saturating_sub(RESERVED_DESCRIPTORS).max(descriptors / 2),
            last_warning: 0,
            left: None,
            finish: None,
            stop_deadline: None,
            _master: master,
        })
    }

    /// What may be asked of this engine while it runs.
    pub fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    fn error_response(&mut self, error: Error, with_body: bool) -> Vec<u8> {
        let mut response = Vec::new();
        error_response(error, self.date.at(epoch_seconds()), with_body, &mut response);
        response
    }

    /// Serves until asked to stop, or `limit` requests have been answered.
    pub fn run(&mut self, app: &mut impl App, limit: Option<u64>) -> Finish {
        self.left = limit;
        self.finish = None;
        let mut events = Events::default();
        let mut in_a_row = 0;
        loop {
            if let Some(finish) = self.finished(app) {
                return finish;
            }
            if self.stop_deadline.is_none() && self.listeners.is_anybody_likely() {
                self.accept(app);
                in_a_row += 1;
                if in_a_row < if self.parked.is_empty() { NEW_BEFORE_POLL } else { NEW_BEFORE_PARKED } {
                    continue;
                }
            }
            in_a_row = 0;
            self.poll(app, &mut events);
        }
    }

    /// Whether there is a reason to return, and which.
    fn finished(&mut self, app: &mut impl App) -> Option<Finish> {
        if self.control.is_stopping() && self.stop_deadline.is_none() && !self.is_done() {
            self.begin_stop(app);
        }
        if self.finish.is_some() {
            return self.finish;
        }
        if self.control.is_closed() {
            return Some(Finish::Closed);
        }
        if self.left == Some(0) {
            return Some(Finish::Limit);
        }
        (self.stop_deadline.is_some() && self.parked.is_empty()).then_some(Finish::Stopped)
    }

    /// Whether no other request may be served in this run.
    fn is_done(&self) -> bool {
        self.finish.is_some() || self.left == Some(0) || self.control.is_closed()
    }

    /// From now on nobody is accepted, and only clients that are here already are waited for, each for a while.
    fn begin_stop(&mut self, app: &mut impl App) {
        if self.listeners.is_anybody_announced() {
            // The kernel has woken this worker for that client and no other one: it would wait for the next client
            // to come before anybody looked (EPOLLEXCLUSIVE, epoll_ctl(2)).
            self.accept(app);
        }
        let now = monotonic_millis();
        self.stop_deadline = Some(now + STOP_TIME);
        self.listeners.leave(&self.poller, &self.control);
        self.parked
            .hasten(|connection| now + if connection.has_begun() { STOP_TIME } else { STOP_TIME_FRESH });
    }

    /// Accepts and serves one client, if there is one.
    fn accept(&mut self, app: &mut impl App) {
        match self.listeners.accept() {
            Ok(Some(client)) => self.welcome(client, app),
            Ok(None) => {}
            Err(error) => self.make_room(&error, app),
        }
    }

    /// Something has run out, descriptors most likely: a parked connection makes room, or else time must.
    fn make_room(&mut self, error: &io::Error, app: &mut impl App) {
        self.warn_of_exhaustion(error, app);
        match self.parked.due(u64::MAX) {
            Some(key) => self.part_with(key, app),
            None => self.note(app.block(&mut || fastrack_sys::pause(EXHAUSTION_PAUSE))),
        }
    }

    /// Says so once a second at most, however often it happens.
    fn warn_of_exhaustion(&mut self, error: &io::Error, app: &mut impl App) {
        let now = epoch_seconds();
        if self.last_warning != now {
            self.last_warning = now;
            app.warn(&format!("cannot accept: {error}"));
        }
    }

    fn welcome(&mut self, client: Client, app: &mut impl App) {
        let mut connection = Connection::new(client.fd, client.peer, client.listener, self.inputs.take());
        let mut step = connection.read(&self.settings);
        if step == Step::Wait && !self.listeners.is_tcp(client.listener) && !connection.has_begun() {
            // While other threads may run, one of them may fork.
            self.control.hold(connection.raw_fd());
            self.note(app.block(&mut || {
                // Whatever comes of it, the next read tells.
                let _ = fastrack_sys::wait_readable(connection.as_fd(), LOCAL_PATIENCE);
            }));
            self.control.release(connection.raw_fd());
            step = connection.read(&self.settings);
        }
        self.proceed(connection, step, self.deadline(), app);
    }

    /// When a client that is waited for from now on has taken too long.
    fn deadline(&self) -> u64 {
        monotonic_millis().saturating_add(self.settings.timeout)
    }

    /// Does what reading has made possible.
    fn proceed(&mut self, connection: Connection, step: Step, deadline: u64, app: &mut impl App) {
        match step {
            Step::Ready => self.serve(connection, app),
            Step::Wait => self.park(connection, deadline, app),
            Step::Refuse(error) => self.refuse(connection, error, app),
            Step::Close => self.recycle(connection),
        }
    }

    fn serve(&mut self, mut connection: Connection, app: &mut impl App) {
        self.control.begin(connection.raw_fd());
        let mut exchange = Exchange::new(connection.as_fd(), &mut self.unsent, self.settings.timeout);
        let flow = app.call(&connection.request(&self.settings), &mut exchange);
        let stage = exchange.stage();
        self.control.end();
        self.note(flow);
        if self.control.is_closed() {
            return;
        }
        self.left = self.left.map(|left| left.saturating_sub(1));
        if self.unsent.capacity() > UNSENT_KEPT {
            self.unsent = Vec::new();
        }
        match stage {
            Stage::Finished if connection.may_have_more() => {
                connection.drain();
                self.park(connection, monotonic_millis() + DRAIN_TIME, app);
            }
            Stage::Finished | Stage::HandedOver => self.recycle(connection),
            Stage::Untouched => self.refuse(connection, Error::Application, app),
            Stage::Begun | Stage::Broken => {
                // If it fails the close is an orderly one, which is all that can be had then.
                let _ = fastrack_sys::reset_on_close(connection.as_fd());
                self.recycle(connection);
            }
        }
        self.note(app.after_response());
    }

    /// Answers with an error, and lets the client read it before the close.
    fn refuse(&mut self, mut connection: Connection, error: Error, app: &mut impl App) {
        let response = self.error_response(error, !connection.is_head_request());
        // It fits into any socket's buffer; a client that takes nothing gets nothing.
        let sent = fastrack_sys::writev(connection.as_fd(), &[IoSlice::new(&response)]);
        if sent.is_ok_and(|sent| sent == response.len()) {
            connection.drain();
            self.park(connection, monotonic_millis() + DRAIN_TIME, app);
        } else {
            self.recycle(connection);
        }
    }

    fn park(&mut self, connection: Connection, deadline: u64, app: &mut impl App) {
        let deadline = self.stop_deadline.map_or(deadline, |stop| deadline.min(stop));
        if self.parked.len() >= self.most_parked {
            if let Some(key) = self.parked.due(u64::MAX) {
                self.part_with(key, app);
            }
        }
        if let Err(error) = self.parked.park(connection, deadline, &self.poller, &self.control) {
            app.warn(&format!("cannot wait for a client: {error}"));
        }
    }

    /// Closes the connection and keeps its memory.
    fn recycle(&mut self, connection: Connection) {
        self.inputs.give_back(connection.input);
    }

    /// Asks the poller, waits for it if it knows of nothing, and handles its events.
    fn poll(&mut self, app: &mut impl App, events: &mut Events) {
        let mut result = self.poller.wait(events, Some(0));
        let busy = !events.is_empty() || self.listeners.is_anybody_likely();
        if result.is_ok() && !busy {
            result = self.wait(app, events);
        }
        if self.control.is_closed() {
            return;
        }
        if let Err(error) = result {
            app.warn(&format!("cannot wait: {error}"));
            self.finish = Some(Finish::Broken);
        }
        self.handle(events, app);
        self.expire(app);
        if busy {
            self.note(app.check());
        }
    }

    fn wait(&mut self, app: &mut impl App, events: &mut Events) -> io::Result<()> {
        self.listeners.missed();
        let timeout = self.parked.next_deadline().map(|at| at.saturating_sub(monotonic_millis()));
        let mut result = Ok(());
        let poller = &self.poller;
        let flow = app.block(&mut || result = poller.wait(events, timeout));
        self.note(flow);
        result
    }

    fn handle(&mut self, events: &Events, app: &mut impl App) {
        // The listeners first: whatever the others lead to, what the kernel said of these must not be forgotten.
        for event in events.iter() {
            self.listeners.announce(event.token);
        }
        for event in events.iter() {
            // What is left is reported again, if there is a next time.
            if self.is_done() {
                return;
            }
            match event.token {
                // Nobody ever writes to this pipe: readable means end of file.
                MASTER => self.finish = Some(Finish::Orphaned),
                token if self.listeners.is_token(token) => {}
                key => self.resume(key as usize, app),
            }
        }
    }

    /// Goes on with a parked connection that has become readable.
    fn resume(&mut self, key: usize, app: &mut impl App) {
        let taken = self.parked.take(key, &self.poller, &self.control);
        let Some((mut connection, deadline)) = taken else { return };
        let was_in_body = connection.is_in_body();
        let step = connection.read(&self.settings);
        // A head has its time as a whole, so that it cannot be sent for ever byte by byte.
        let deadline = if was_in_body { self.deadline() } else { deadline };
        self.proceed(connection, step, deadline, app);
    }

    /// Parts with the connections that took too long.
    fn expire(&mut self, app: &mut impl App) {
        if self.parked.is_empty() {
            return;
        }
        let now = monotonic_millis();
        while let Some(key) = self.parked.due(now) {
            self.part_with(key, app);
        }
    }

    /// Ends a parked connection, with a word if the client has begun a request.
    fn part_with(&mut self, key: usize, app: &mut impl App) {
        let Some((connection, _)) = self.parked.take(key, &self.poller, &self.control) else { return };
        if connection.has_begun() {
            self.refuse(connection, Error::Timeout, app);
        } else {
            self.recycle(connection);
        }
    }

    fn note(&mut self, flow: Flow) {
        if flow == Flow::Break {
            self.finish = Some(Finish::Broken);
        }
    }
}
