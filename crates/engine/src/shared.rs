//! What the two threads of a worker share.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::pulse::Pulse;
use crate::reactor::Reactor;

#[derive(Debug)]
pub(crate) struct Shared {
    reactor: Mutex<Reactor>,
    pub pulse: Pulse,
    /// The set of the reactor's connections, to wait for without the reactor.
    connections: OwnedFd,
    /// A request has lasted so long that the helper took over.
    long_request: AtomicBool,
    ended: AtomicBool,
}

impl Shared {
    pub fn new(reactor: Reactor, connections: OwnedFd) -> Self {
        Shared {
            reactor: Mutex::new(reactor),
            pulse: Pulse::default(),
            connections,
            long_request: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// The reactor. Nobody keeps it for longer than a few calls take that do not wait.
    pub fn reactor(&self) -> MutexGuard<'_, Reactor> {
        // A panic of the helper ends the process, and one of the application's thread is not caught while it has the reactor.
        self.reactor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reactor, if nobody has it.
    pub fn try_reactor(&self) -> Option<MutexGuard<'_, Reactor>> {
        match self.reactor.try_lock() {
            Ok(reactor) => Some(reactor),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub fn connections(&self) -> BorrowedFd<'_> {
        self.connections.as_fd()
    }

    pub fn note_long_request(&self) {
        self.long_request.store(true, Ordering::Relaxed);
    }

    /// Whether a request has lasted long since this was asked before.
    pub fn had_long_request(&self) -> bool {
        self.long_request.load(Ordering::Relaxed) && self.long_request.swap(false, Ordering::Relaxed)
    }

    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}
