//! The loop of one worker: accepts clients, and has the application answer their requests.

mod forking;
mod gc_pause;
mod gc_pause_priority;
mod request_length;
mod run;
mod schedule;
mod serve;
mod thread;
mod wait;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use fastrack_sys::{Events, Poller, Timer};

use crate::accept::{Backlog, Listener, Listeners};
use crate::conn::{Connection, Spooling};
use crate::control::Control;
use crate::handoff::{QueueHandle, SharedQueue};
use crate::helper::{AppThreads, Ending, Helper, HelperTimer, Shared};
use crate::reactor::{Reactor, Table};
use crate::request_state::MAX_THREADS;
use crate::settings::Settings;
use gc_pause_priority::GcPausePriority;
use request_length::RequestLength;

pub use forking::Forking;

// The poller's tokens. Those of the listeners come below the master's.
const MASTER: u64 = u64::MAX;
const QUEUE: u64 = 0;
const CONNECTIONS: u64 = 1;
const NOTICE: u64 = 2;

/// Why [`Engine::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Stopped; all that had begun is finished.
    Stopped,
    /// It has served as many requests as it was to.
    Limit,
    /// Paused, between two requests.
    Paused,
    /// The master is gone. The next run can [stop](Control::stop) as with the whole server.
    Orphaned,
    /// This is a forked child, which has let go of the connections.
    Closed,
    /// The application wants to return first, or the poller has failed.
    Broken,
    /// The application has closed descriptors of the engine's. Other workers have the connections, where that was possible.
    Lost,
    /// [`Engine::dismiss_threads`] was called, or there are enough threads: only for those besides the first.
    Dismissed,
}

/// One worker's listeners and connections. Several threads of the application may run it: of those that have no request,
/// one leads.
#[derive(Debug)]
pub struct Engine {
    // First: it is dropped before the rest, which joins the thread.
    _helper: Helper,
    shared: Arc<Shared>,
    control: Arc<Control>,
    ending: Arc<Ending>,
    spooling: Spooling,
    /// None while a thread leads. Never locked for long.
    driver: Mutex<Option<Box<Driver>>>,
    /// For the thread that pauses.
    priority: Mutex<GcPausePriority>,
}

/// What only the thread has that leads.
#[derive(Debug)]
struct Driver {
    shared: Arc<Shared>,
    control: Arc<Control>,
    listeners: Listeners,
    /// Wakes an idle worker: listeners, the shared queue, its own connections, the master's end.
    poller: Poller,
    events: Events,
    schedule: Schedule,
    /// Requests still to be served in this run.
    left: Option<u64>,
    finish: Option<Finish>,
    /// Idle for a while, with memory to give back.
    has_rested: bool,
    /// The application wants the thread back that leads.
    recalled: bool,
    /// Stopped because the application has closed descriptors.
    lost: bool,
    /// A pipe, until it is at its end, or nothing.
    master: Option<File>,
    is_orphaned: bool,
}

/// What the [schedule] goes by.
#[derive(Debug)]
struct Schedule {
    /// Clients accepted in a row without a look at the poller.
    accepted: u32,
    /// Requests of kept-alive connections served since the listeners were last polled.
    kept: u32,
    length: RequestLength,
    /// Requests take so long that their clients wait in the shared queue.
    lines_up: bool,
    /// Requests served since a connection was last given to an idle worker.
    since_given: u32,
    /// When that was, in milliseconds.
    last_given: u64,
    /// When the last request began, and when the last one had begun when the listeners were polled, and when requests were put
    /// into the shared queue, in milliseconds.
    last_began: u64,
    last_look: u64,
    last_line_up: u64,
    /// A ready request, to be served next.
    first: Option<Box<Connection>>,
    /// The poller has reported the shared queue.
    queue_announced: bool,
}

/// The reactor, locked by the application's thread.
type LockedReactor<'a> = MutexGuard<'a, Reactor>;

impl Engine {
    /// An engine for these listeners. It starts the helper's thread.
    ///
    /// `master` is the read end of a pipe whose other end only the master holds: its end of file means that the
    /// master is gone. A byte in it wakes the engine, to see that it was told to stop or to pause. The worker shares
    /// connections with the other members of the `queue`.
    pub fn new(
        listeners: Vec<Listener>,
        master: Option<BorrowedFd<'_>>,
        settings: Settings,
        queue: Option<&SharedQueue>,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        let listeners = Listeners::new(listeners);
        listeners.register(&poller)?;
        let master = master.map(|fd| fd.try_clone_to_owned()).transpose()?.map(File::from);
        if let Some(master) = &master {
            poller.add(master, MASTER)?;
        }
        let table = Table::new()?;
        poller.add(table.poller(), CONNECTIONS)?;
        let queue_handle = queue.map(SharedQueue::handle).transpose()?.flatten();
        if let Some(queue_handle) = &queue_handle {
            poller.add_shared(queue_handle.receiver(), QUEUE)?;
            // The master may stop another worker as soon as this one says that it is ready.
            queue_handle.set_serving(true);
        }
        let set = table.poller().as_fd().try_clone_to_owned()?;
        let watch = &settings.requests;
        let app_threads = AppThreads::new(watch.threads.min(MAX_THREADS))?;
        // With several threads the helper looks after new clients, too.
        let watched = if app_threads.is_alone() { set } else { poller.as_fd().try_clone_to_owned()? };
        let watched_fd = Some(watched.as_raw_fd()).filter(|_| Poller::IS_INHERITED);
        // There it sees new clients already.
        let beside = if app_threads.is_alone() { listeners.shared() } else { Vec::new() };
        let timer = HelperTimer::new(watched, beside)?;
        if !app_threads.is_alone() && Poller::TAKES_TIMERS {
            let waits = Timer::new()?;
            timer.watch_beside(&waits)?;
            app_threads.app_lock().tell_by(waits);
        }
        let fds = listeners.raw_fds().chain(queue_handle.iter().flat_map(QueueHandle::raw_fds));
        let fds = fds.chain(timer.inherited_fds()).chain(watched_fd).chain(app_threads.inherited_fds());
        let fds = fds.chain(poller.inherited_fds()).chain(table.poller().inherited_fds());
        let control = Arc::new(Control::new(poller.raw_fd(), fds, watch)?);
        if let Some(waker) = control.waker() {
            poller.watch(waker, NOTICE)?;
        }
        let watch = settings.requests.clone();
        let spooling = Spooling::new(&settings);
        let mut reactor = Reactor::new(settings, Arc::clone(&control), table, queue_handle);
        reactor.set_backlog(Backlog::new(listeners.shared()));
        reactor.start_log()?;
        let shared = Arc::new(Shared::new(reactor, timer, app_threads));
        let ending = Arc::new(Ending::new(Arc::clone(&shared), Arc::clone(&control), &watch));
        let driver = Driver {
            shared: Arc::clone(&shared),
            control: Arc::clone(&control),
            listeners,
            poller,
            events: Events::default(),
            schedule: Schedule::new(),
            left: None,
            finish: None,
            recalled: false,
            lost: false,
            has_rested: false,
            master,
            is_orphaned: false,
        };
        Ok(Engine {
            _helper: Helper::start(Arc::clone(&shared), Arc::clone(&control), Arc::clone(&ending))?,
            shared,
            control,
            ending,
            spooling,
            driver: Mutex::new(Some(Box::new(driver))),
            priority: Mutex::default(),
        })
    }

    /// What other threads and signal handlers may do with this engine while it runs.
    pub fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// Answers the clients if the process ends in the middle of a request.
    pub fn ending(&self) -> Arc<Ending> {
        Arc::clone(&self.ending)
    }

    /// Lets the application fork.
    pub fn forking(&self) -> Forking {
        Forking::new(Arc::clone(&self.shared), Arc::clone(&self.control))
    }
}
