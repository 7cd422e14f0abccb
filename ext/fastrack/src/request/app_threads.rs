//! Finds the request that the current Ruby thread is answering, when the app calls a method of the server.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use magnus::{Error, Ruby};
use rb_sys::rb_thread_current;

use crate::request::in_flight::{AppThread, InFlight};
use crate::ruby::io_error;

/// The Ruby threads that run one engine's app.
#[derive(Debug, Default)]
pub(crate) struct AppThreads(Mutex<Vec<&'static AppThread>>);

impl AppThreads {
    /// An entry for the current thread, until it [leaves](Self::leave).
    pub fn enter(&self, ruby: &Ruby) -> &'static AppThread {
        let current = current_thread(ruby);
        let mut threads = self.lock();
        let is_free = |entry: &&&AppThread| [0, current].contains(&entry.thread.load(Ordering::Relaxed));
        let free = threads.iter().find(is_free).copied();
        let entry = free.unwrap_or_else(|| {
            let entry: &AppThread = Box::leak(Box::default());
            threads.push(entry);
            entry
        });
        entry.thread.store(current, Ordering::Relaxed);
        entry
    }

    pub fn leave(&self, entry: &AppThread) {
        entry.thread.store(0, Ordering::Relaxed);
    }

    /// Works on the request for which the current thread is calling the app. Ruby code that the work runs does not find
    /// the request. After such code the work checks its [`Scope`](crate::request::in_flight::Scope).
    ///
    /// Returns an IOError if there is no such request.
    pub fn with_request<T>(
        &self,
        ruby: &Ruby,
        work: impl FnOnce(&mut InFlight<'_, '_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let entry = self.current(ruby)?;
        let scope = entry.scope();
        let pointer = entry.in_flight.swap(std::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: if it is not null the app is being called in this thread, which keeps the request where it is; and
        // the pointer is the only one.
        let result = unsafe { pointer.as_mut() }.map(work);
        // `work` returns what Ruby raises, so that this is always reached.
        if !scope.is_over() {
            entry.in_flight.store(pointer, Ordering::Relaxed);
        }
        result.unwrap_or_else(|| Err(no_request(ruby)))
    }

    /// The current thread's entry; an IOError if it does not run the engine.
    pub fn current(&self, ruby: &Ruby) -> Result<&'static AppThread, Error> {
        let current = current_thread(ruby);
        let entry = self.lock().iter().find(|entry| entry.thread.load(Ordering::Relaxed) == current).copied();
        entry.ok_or_else(|| no_request(ruby))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<&'static AppThread>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn no_request(ruby: &Ruby) -> Error {
    io_error(ruby, "the request is over, or another thread's")
}

fn current_thread(_ruby: &Ruby) -> usize {
    // SAFETY: needs the GVL, of which `_ruby` is the proof.
    unsafe { rb_thread_current() as usize }
}
