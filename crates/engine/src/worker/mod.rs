//! The loop of one worker: accepts clients, and has the application answer their requests.

mod forking;
mod gc_pause;
mod serve;
mod thread;
mod wait;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, MutexGuard, OnceLock};

use fastrack_sys::{Poller, Timer, Waker};

use crate::accept::{Backlog, Listener, Listeners, Token};
use crate::admission::{AppThreads, Room};
use crate::conn::{LentBuffer, Spooling};
use crate::control::Control;
use crate::ending::Ending;
use crate::handoff::{QueueHandle, SharedQueue};
use crate::helper::Helper;
use crate::reactor::{Lead, Reactor, Table};
use crate::scoreboard::MAX_PROCESSES;
use crate::settings::Settings;
use crate::shared::{HelperTimer, Shared};

pub use forking::Forking;
pub use gc_pause::GcPause;

/// One worker's listeners and connections. Several threads of the application may run the engine. One of the threads without a request
/// leads.
#[derive(Debug)]
pub struct Engine {
    // Declared first, because its drop joins the thread before the rest is dropped.
    _helper: Helper,
    shared: Arc<Shared>,
    control: Arc<Control>,
    spooling: Spooling,
    /// The response buffers of the application's threads, by the thread's number.
    lent_buffers: Box<[OnceLock<Arc<LentBuffer>>]>,
    /// The poller of [`Lead`], for the thread that waits.
    poller: Arc<Poller>,
    /// The engine owns the waker, because other owners of the control may outlive the engine.
    _waker: Option<Arc<Waker>>,
}

/// The reactor, locked by the application's thread.
type LockedReactor<'a> = MutexGuard<'a, Reactor>;

impl Engine {
    /// Makes an engine for these listeners, and starts the helper's thread.
    ///
    /// `master` is the read end of a pipe whose other end only the master holds: the end of file means that the master is gone. A byte in
    /// the pipe wakes the engine, which then sees whether it was told to stop or to pause. The worker shares connections with the other
    /// members of the `queue`. If the queue has no place for this worker, the log says so.
    pub fn new(
        listeners: Vec<Listener>,
        master: Option<BorrowedFd<'_>>,
        settings: Settings,
        queue: Option<&SharedQueue>,
    ) -> io::Result<Self> {
        let poller = Arc::new(Poller::new()?);
        let listeners = Listeners::new(listeners);
        listeners.register(&poller)?;
        let master = master.map(|fd| fd.try_clone_to_owned()).transpose()?.map(File::from);
        if let Some(master) = &master {
            poller.add(master, Token::Master.number())?;
        }
        let spooling = Spooling::new(&settings);
        let table = Table::new(spooling.clone())?;
        poller.add(table.poller(), Token::Connections.number())?;
        let queue_handle = queue.map(SharedQueue::handle).transpose()?.flatten();
        if let Some(queue_handle) = &queue_handle {
            poller.add_shared(queue_handle.receiver(), Token::Queue.number())?;
            // The master may stop another worker as soon as this worker says that it is ready.
            queue_handle.set_serving(true);
        }
        let set = table.poller().as_fd().try_clone_to_owned()?;
        let watch = &settings.requests;
        let room = Room::new(watch.threads, watch.streams);
        let app_threads = AppThreads::new(room)?;
        // With several threads the helper also looks after new clients.
        let watched = if app_threads.is_alone() { set } else { poller.as_fd().try_clone_to_owned()? };
        let watched_fd = Some(watched.as_raw_fd()).filter(|_| Poller::IS_INHERITED);
        // With several threads the helper sees new clients in the leader's poller.
        let beside = if app_threads.is_alone() { listeners.shared() } else { Vec::new() };
        let timer = HelperTimer::new(watched, beside)?;
        if !app_threads.is_alone() && Poller::TAKES_TIMERS {
            let waits = Timer::new()?;
            timer.watch_admissions(&waits)?;
            app_threads.gvl_usage().wake_by(waits);
        }
        if let Some(master) = &master {
            timer.watch_master(master)?;
        }
        let fds = listeners.raw_fds().chain(queue_handle.iter().flat_map(QueueHandle::raw_fds));
        let fds = fds.chain(timer.inherited_fds()).chain(watched_fd).chain(app_threads.inherited_fds());
        let fds = fds.chain(poller.inherited_fds()).chain(table.inherited_fds());
        let fds = fds.chain(master.iter().map(File::as_raw_fd));
        let mut control = Control::new(poller.raw_fd(), fds, watch)?;
        let waker = (!app_threads.is_alone()).then(Waker::new).transpose()?.map(Arc::new);
        if let Some(waker) = &waker {
            poller.watch(&**waker, Token::Notice.number())?;
            control.wake_by(waker);
        }
        let control = Arc::new(control);
        let (watch, orphan) = (settings.requests.clone(), settings.orphan.clone());
        let lent_buffers = (0..room.threads()).map(|_| OnceLock::new()).collect();
        let backlog = Backlog::new(listeners.shared());
        let lead = Lead::new(listeners, Arc::clone(&poller), master);
        let mut reactor = Reactor::new(settings, Arc::clone(&control), table, queue_handle, lead);
        reactor.set_backlog(backlog);
        if queue.is_some() && reactor.queue_handle().is_none() {
            reactor.warn(format!(
                "no connections are shared with other workers: {MAX_PROCESSES} processes do so already"
            ));
        }
        reactor.start_log()?;
        let shared = Arc::new(Shared::new(reactor, Arc::clone(control.baton()), timer, app_threads));
        let ending = Ending::new(Arc::clone(&shared), Arc::clone(&control), &watch, orphan);
        Ok(Engine {
            _helper: Helper::start(Arc::clone(&shared), Arc::clone(&control), ending, &watch)?,
            shared,
            control,
            spooling,
            lent_buffers,
            poller,
            _waker: waker,
        })
    }

    /// Calls that other threads and signal handlers may make while this engine runs.
    pub fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// Lets the application fork.
    pub fn forking(&self) -> Forking {
        Forking::new(Arc::clone(&self.shared), Arc::clone(&self.control))
    }

    #[cfg(test)]
    pub(crate) fn reactor(&self) -> LockedReactor<'_> {
        self.shared.reactor()
    }
}
