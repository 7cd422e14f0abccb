//! Sources of the helper's wake-ups: its timer, its waker, and during a long request also the connections and the listeners.
//!
//! The leader sets the timer when it makes a step and the helper [sleeps](crate::admission::Baton::fall_asleep). Nobody stops the timer: at
//! worst the helper looks once for nothing. Only the helper watches and ignores connections.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use fastrack_sys::{Events, Poller, Timer, Waker};

use crate::sync::Mutex;

/// Milliseconds from the step of the leader that wakes the helper to the helper's look. The helper notices requests that last longer.
pub(crate) const FIRST_LOOK: u64 = 1;

/// Sources that the helper's poller watches. The number of each is its token.
#[repr(u64)]
enum Watched {
    Connections,
    Timer,
    Waker,
    /// The [timer](HelperTimer::watch_admissions) that says when another request may begin.
    Admissions,
    /// The [pipe](HelperTimer::watch_master) at whose end the master is gone.
    Master,
    /// The first listener; the others follow.
    Listener,
}

/// A descriptor that the helper watches.
pub(crate) trait Source: AsFd + Debug + Send + Sync {}
impl<T: AsFd + Debug + Send + Sync> Source for T {}

/// The listeners, which are not in the connections' poller. They are watched while a request lasts and all workers are busy.
///
/// Not with EPOLLEXCLUSIVE (epoll_ctl(2)): if the kernel woke this helper alone, and its worker was about to stop, nobody would
/// tell a worker that has become idle since.
#[derive(Debug, Default)]
struct Listening {
    sources: Vec<Arc<dyn Source>>,
    is_watched: bool,
}

impl Listening {
    fn watch(&mut self, poller: &Poller, is_wanted: bool) {
        if std::mem::replace(&mut self.is_watched, is_wanted) == is_wanted {
            return;
        }
        for (source, token) in self.sources.iter().zip(Watched::Listener as u64..) {
            // These calls cannot fail. If they did, clients would wait in the backlog.
            let _ = match is_wanted {
                true => poller.add(source.as_fd(), token),
                false => poller.remove(source.as_fd()),
            };
        }
    }
}

#[derive(Debug)]
pub(crate) struct HelperTimer {
    timer: Timer,
    waker: Waker,
    /// The timer, the waker and, while they are watched, the connections and the listeners.
    poller: Poller,
    connections: OwnedFd,
    /// The leader releases the listeners when it stops. Otherwise only the helper uses the lock.
    listening: Mutex<Listening>,
}

impl HelperTimer {
    /// `connections` is a descriptor of their poller. `listeners` are those that this poller does not have.
    pub fn new<S: Source + 'static>(connections: OwnedFd, listeners: Vec<Arc<S>>) -> io::Result<Self> {
        let (timer, poller, waker) = (Timer::new()?, Poller::new()?, Waker::new()?);
        poller.watch_timer(&timer, Watched::Timer as u64)?;
        poller.watch(&waker, Watched::Waker as u64)?;
        poller.add(&connections, Watched::Connections as u64)?;
        poller.set_wanted(&connections, Watched::Connections as u64, false)?;
        let sources = listeners.into_iter().map(|source| -> Arc<dyn Source> { source }).collect();
        let listening = Mutex::new(Listening { sources, is_watched: false });
        Ok(HelperTimer { timer, waker, poller, connections, listening })
    }

    /// The descriptors that a forked child inherits.
    pub fn inherited_fds(&self) -> impl Iterator<Item = RawFd> + use<> {
        self.timer.raw_fds().chain(self.waker.raw_fds()).chain(self.poller.inherited_fds())
    }

    /// Has this timer wake the helper, too.
    pub fn watch_admissions(&self, timer: &Timer) -> io::Result<()> {
        self.poller.watch_timer(timer, Watched::Admissions as u64)
    }

    /// Has the end of the master's pipe wake the helper, too.
    pub fn watch_master(&self, pipe: impl AsFd) -> io::Result<()> {
        self.poller.watch(pipe, Watched::Master as u64)
    }

    /// Whether these events tell that the master is gone.
    pub fn is_master_gone(&self, events: &Events) -> bool {
        events.iter().any(|event| event.token == Watched::Master as u64 && event.ended)
    }

    // --- the leader

    /// Has the helper look soon. One system call.
    pub fn set(&self) {
        // Setting the timer cannot fail for this time.
        let _ = self.timer.set(Duration::from_millis(FIRST_LOOK));
    }

    /// Releases the listeners, which are about to be closed.
    ///
    /// Other processes have the listeners open, so a listener that stayed in the helper's poller would be reported for ever.
    pub fn close_listeners(&self) {
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        listening.watch(&self.poller, false);
        listening.sources.clear();
    }

    // --- any thread

    /// Wakes the helper, now or when it waits next. One system call; async-signal-safe.
    pub fn wake_helper(&self) {
        self.waker.call();
    }

    // --- the helper

    /// Waits for any of what is watched, or until this many milliseconds are over. None if the application has closed the poller.
    pub fn wait(&self, events: &mut Events, millis: Option<u64>) -> Option<()> {
        match self.poller.wait(events, millis) {
            Err(error) if fastrack_sys::is_lost_fd(&error) => return None,
            // This should not happen. If it does, lose no request and do not spin.
            Err(_) => fastrack_sys::sleep(1),
            Ok(()) => {}
        }
        Some(())
    }

    /// Watches the connections from now on, or ignores them. One system call.
    pub fn watch_connections(&self, is_wanted: bool) {
        // The call cannot fail. If it did, the helper would see the connections at its next look.
        let _ = self.poller.set_wanted(&self.connections, Watched::Connections as u64, is_wanted);
    }

    /// Watches the listeners from now on, or ignores them.
    pub fn watch_listeners(&self, is_wanted: bool) {
        let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
        listening.watch(&self.poller, is_wanted);
    }
}

// The model compiles this file by its path, where the tests would be looked for in another folder.
#[cfg(test)]
#[path = "timer/tests.rs"]
mod tests;
