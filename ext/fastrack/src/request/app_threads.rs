//! The Ruby threads that run an engine's app, and which of them has a request.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use magnus::{Error, Ruby};
use rb_sys::rb_thread_current;

use fastrack_engine::Control;

use crate::request::in_flight::{AppThread, InFlight};
use crate::ruby::io_error;

/// The Ruby threads that run one engine's app.
#[derive(Debug, Default)]
pub(crate) struct AppThreads(Mutex<Vec<&'static AppThread>>);

/// Those of all engines.
static ALL: AppThreads = AppThreads(Mutex::new(Vec::new()));

impl AppThreads {
    /// An entry for the current thread, until it [leaves](Self::leave).
    pub fn enter(&self, ruby: &Ruby, control: &Arc<Control>) -> &'static AppThread {
        let current = current_thread(ruby);
        let mut threads = self.lock();
        let is_free = |entry: &&&AppThread| [0, current].contains(&entry.thread.load(Ordering::Relaxed));
        let free = threads.iter().find(is_free).copied();
        let entry = free.unwrap_or_else(|| {
            let entry: &AppThread = Box::leak(Box::new(AppThread::new(control)));
            threads.push(entry);
            ALL.lock().push(entry);
            entry
        });
        entry.thread.store(current, Ordering::Relaxed);
        entry
    }

    pub fn leave(&self, entry: &AppThread) {
        entry.thread.store(0, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<&'static AppThread>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AppThread {
    /// The thread that has the request with this number; None when that is over.
    pub fn of_request(number: usize) -> Option<&'static AppThread> {
        ALL.lock().iter().find(|entry| entry.request() == number).copied()
    }

    /// Works on this thread's request, for which it is calling the app. Ruby code that the work runs does not find the
    /// request. After such code the work checks its [`Scope`](crate::request::in_flight::Scope).
    ///
    /// Returns an IOError if there is no such request, or if this is not the current thread.
    pub fn with_request<T>(
        &'static self,
        ruby: &Ruby,
        work: impl FnOnce(&mut InFlight<'_, '_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.thread.load(Ordering::Relaxed) != current_thread(ruby) {
            return Err(no_request(ruby));
        }
        let scope = self.scope();
        let pointer = self.in_flight.swap(std::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: if it is not null the app is being called in this thread, which keeps the request where it is; and
        // the pointer is the only one.
        let result = unsafe { pointer.as_mut() }.map(work);
        // `work` returns what Ruby raises, so that this is always reached.
        if !scope.is_over() {
            self.in_flight.store(pointer, Ordering::Relaxed);
        }
        result.unwrap_or_else(|| Err(no_request(ruby)))
    }
}

pub(crate) fn no_request(ruby: &Ruby) -> Error {
    io_error(ruby, "the request is over, or another thread's")
}

fn current_thread(_ruby: &Ruby) -> usize {
    // SAFETY: needs the GVL, of which `_ruby` is the proof.
    unsafe { rb_thread_current() as usize }
}
