//! The loop of one worker.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, MutexGuard};

use fastrack_sys::{Events, Poller};

use crate::alarm::Alarm;
use crate::app::{App, Flow};
use crate::connection::Connection;
use crate::connections::Connections;
use crate::control::Control;
use crate::exit_handler::ExitHandler;
use crate::helper::Helper;
use crate::listener::Listener;
use crate::listeners::{Client, Listeners};
use crate::output::Output;
use crate::reactor::Reactor;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::shared_queue::{Member, SharedQueue};
use crate::turn::{greet, Move};

/// The poller's tokens of the master's pipe, the workers' queue, and the set of this worker's own connections.
/// Those of the listeners come below them.
pub(crate) const MASTER: u64 = u64::MAX;
pub(crate) const QUEUE: u64 = 0;
pub(crate) const CONNECTIONS: u64 = 1;

/// How long nobody is accepted after the system has run out of descriptors, in milliseconds.
const EXHAUSTION_PAUSE: u64 = 20;

/// Why [`Engine::run`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It was asked to stop, and has finished what had begun.
    Stopped,
    /// It has served as many requests as it was to.
    Limit,
    /// It was asked to pause, and no request is being answered.
    Paused,
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
    pub(crate) shared: Arc<Shared>,
    pub(crate) control: Arc<Control>,
    pub(crate) listeners: Listeners,
    /// What wakes an idle worker: listeners, the workers' queue, its own connections, the master's end.
    pub(crate) poller: Poller,
    pub(crate) events: Events,
    pub(crate) output: Output,
    /// Clients accepted and requests of kept connections served in a row without a look at the poller, and
    /// requests since a connection was given away.
    pub(crate) accepted: u32,
    pub(crate) kept: u32,
    pub(crate) since_given: u32,
    /// When the last request began, and when the last one had begun when the listeners were asked, in milliseconds.
    pub(crate) last_began: u64,
    pub(crate) looked: u64,
    /// A request that is complete.
    pub(crate) first: Option<Box<Connection>>,
    /// The poller has said that there is something in the workers' queue.
    pub(crate) queue_announced: bool,
    /// The second of the last warning about exhaustion.
    pub(crate) last_warning: u64,
    /// Requests still to be served in this run.
    pub(crate) left: Option<u64>,
    pub(crate) finish: Option<Finish>,
    // Before what it works on goes.
    pub(crate) _helper: Helper,
    // Kept open for the poller.
    pub(crate) _master: Option<OwnedFd>,
}

/// The reactor, in hand.
pub(crate) type Hold<'a> = MutexGuard<'a, Reactor>;

impl Engine {
    /// An engine for these listeners, and its thread. `master` is the read end of a pipe whose
    /// other end only the master holds: its end of file means that the master is gone. With a
    /// `queue` it shares connections with the other workers of that.
    pub fn new(
        listeners: Vec<Listener>,
        master: Option<BorrowedFd<'_>>,
        settings: Settings,
        queue: Option<&SharedQueue>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        let listeners = Listeners::new(listeners);
        listeners.join(&poller)?;
        let master = master.map(|fd| fd.try_clone_to_owned()).transpose()?;
        if let Some(master) = &master {
            poller.add(master, MASTER)?;
        }
        let connections = Connections::new()?;
        poller.add(connections.poller(), CONNECTIONS)?;
        let member = queue.map(SharedQueue::member).transpose()?.flatten();
        if let Some(member) = &member {
            poller.add_shared(member.receiver(), QUEUE)?;
            // From here on, for the master may send another worker away as soon as this one says that it is ready.
            member.set_serving(true);
        }
        let set = connections.poller().as_fd().try_clone_to_owned()?;
        let held = listeners.raw_fds().chain(member.iter().flat_map(Member::raw_fds));
        let held = held.chain([connections.poller().raw_fd(), std::os::fd::AsRawFd::as_raw_fd(&set)]);
        let alarm = Alarm::new(set)?;
        let held = held.chain(alarm.raw_fds());
        let control = Arc::new(Control::new(poller.raw_fd(), held, &settings.watch)?);
        let reactor = Reactor::new(settings, Arc::clone(&control), connections, member);
        let shared = Arc::new(Shared::new(reactor, alarm));
        Ok(Engine {
            control: Arc::clone(&control),
            listeners,
            poller,
            events: Events::default(),
            output: Output::default(),
            accepted: 0,
            kept: 0,
            since_given: 0,
            last_began: 0,
            looked: 0,
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

    /// What its clients get when the process comes to its end in the middle of it.
    pub fn exit_handler(&self) -> ExitHandler {
        ExitHandler::new(Arc::clone(&self.shared), Arc::clone(&self.control))
    }

    /// Serves until asked to stop, or `limit` requests have been answered.
    pub fn run(&mut self, app: &mut impl App, limit: Option<u64>) -> Finish {
        if self.control.is_closed() {
            return Finish::Closed;
        }
        self.left = limit;
        self.finish = None;
        let shared = Arc::clone(&self.shared);
        shared.awake();
        let finish = self.serve_all(&shared, app);
        let lines = self.hold(&shared).map(|mut hold| hold.warnings());
        lines.into_iter().flatten().for_each(|line| app.warn(&line));
        if !self.control.is_closed() {
            shared.idle();
        }
        finish
    }

    fn serve_all(&mut self, shared: &Shared, app: &mut impl App) -> Finish {
        let mut hold = shared.reactor();
        loop {
            let in_hand = match self.finished(&mut hold) {
                Some(finish) => return finish,
                None => self.next(&mut hold),
            };
            if let Move::Wait = in_hand {
                shared.pulse.beat();
            } else {
                shared.begin(matches!(in_hand, Move::Serve(_)));
            }
            // In a forked child the reactor may be in the hand of a thread that is not there.
            let after = match in_hand {
                Move::Serve(connection) => self.serve(shared, hold, connection, app),
                Move::Expect(connection) => self.expect(shared, hold, connection, app),
                Move::GoOn => self.go_on(shared, hold, app),
                Move::Tell(lines) => self.tell(shared, hold, &lines, app),
                Move::Pause => {
                    self.aside(shared, hold, |_| app.block(&mut || fastrack_sys::sleep(EXHAUSTION_PAUSE)))
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
        if hold.is_stopping() && self.first.is_none() && hold.has_left_nobody() {
            return Some(Finish::Stopped);
        }
        self.control.take_pause().then_some(Finish::Paused)
    }

    /// Whether no other request may be served in this run.
    fn is_done(&self) -> bool {
        self.finish.is_some() || self.left == Some(0)
    }

    /// From now on nobody is accepted, and only clients that are here already are waited for, each for a while.
    fn begin_stop(&mut self, hold: &mut Hold<'_>) {
        if self.control.is_draining() {
            // Nobody else would: they would be cut off with the last listener.
            self.listeners.accept_all().into_iter().for_each(|client| admit(client, hold));
        }
        // The kernel has woken this worker for those clients and no other one: they would wait for the next client to
        // come before anybody looked (EPOLLEXCLUSIVE, epoll_ctl(2)). One for each listener.
        while self.listeners.is_anybody_announced() {
            let Ok(Some(client)) = self.listeners.accept() else { break };
            admit(client, hold);
        }
        self.listeners.leave(&self.poller, &self.control);
        hold.begin_stop();
        let Some(member) = hold.member() else { return };
        // It fails only if the queue is not there, which is what is wanted.
        let _ = self.poller.remove(member.receiver());
        if !member.is_followed() {
            hold.drain_queue();
        } else if !member.is_another_serving() {
            hold.answer_queued();
        } else if self.queue_announced {
            // As with a client that was announced to this worker alone.
            hold.pass_on_queued();
        }
    }

    /// The reactor again, after something outside has had the thread; None in a forked child.
    pub(crate) fn hold<'a>(&self, shared: &'a Shared) -> Option<Hold<'a>> {
        (!self.control.is_closed()).then(|| shared.reactor())
    }

    /// Nothing was answered: others may want the thread. None in a forked child.
    pub(crate) fn go_on<'a>(
        &mut self,
        shared: &'a Shared,
        hold: Hold<'a>,
        app: &mut impl App,
    ) -> Option<Hold<'a>> {
        self.aside(shared, hold, |_| app.check())
    }

    /// Runs what is not the engine's own, with the reactor in nobody's hand. None in a forked child.
    pub(crate) fn aside<'a>(
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

    /// Passes on what there is for the log, which may take its time, and run a signal's handler that asks for the end.
    /// None in a forked child.
    fn tell<'a>(
        &mut self,
        shared: &'a Shared,
        hold: Hold<'a>,
        lines: &[String],
        app: &mut impl App,
    ) -> Option<Hold<'a>> {
        self.aside(shared, hold, |_| {
            lines.iter().for_each(|line| app.warn(line));
            app.check()
        })
    }

    pub(crate) fn fail(&mut self, error: &io::Error, hold: &mut Hold<'_>) {
        hold.warnings.push(format!("cannot wait: {error}"));
        self.finish = Some(Finish::Broken);
    }

    pub(crate) fn note(&mut self, flow: Flow) {
        if flow == Flow::Break {
            self.finish = Some(Finish::Broken);
        }
    }
}

/// Lets in a client that has come before the end.
fn admit(client: Client, hold: &mut Hold<'_>) {
    let (connection, step) = greet(client, hold);
    hold.enter(connection, step).into_iter().for_each(|connection| hold.queue(connection));
}
