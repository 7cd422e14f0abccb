//! The Ruby threads that run apps, and their current requests.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use magnus::{Error, Ruby};
use rb_sys::{rb_thread_current, VALUE};

use fastrack_engine::{Control, StreamEnd};

use crate::request::in_flight::{AppThread, BodyStage, InFlight};
use crate::ruby::{bytes, call, interned, io_error, is_string};

/// All entries, in use or free. Threads of later engines reuse free entries, so that the number of entries is the greatest
/// number of threads that ran apps at the same time.
static APP_THREADS: Mutex<Vec<&'static AppThread>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<&'static AppThread>> {
    APP_THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The current thread's entry, while it runs an engine's app.
pub(crate) struct Entered(&'static AppThread);

impl Entered {
    pub fn thread(&self) -> &'static AppThread {
        self.0
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.end_request();
        self.0.thread.store(0, Ordering::Relaxed);
    }
}

impl AppThread {
    /// An entry for the current thread and the engine with this `control`.
    pub fn enter(ruby: &Ruby, control: &Arc<Control>) -> Entered {
        let mut all = all();
        let free = all.iter().find(|entry| entry.thread.load(Ordering::Relaxed) == 0).copied();
        let entry = free.unwrap_or_else(|| {
            let entry: &AppThread = Box::leak(Box::default());
            all.push(entry);
            entry
        });
        entry.set_control(control);
        entry.thread.store(current_thread(ruby), Ordering::Relaxed);
        Entered(entry)
    }

    /// The thread of the request with this number; None if the request is over.
    pub fn of_request(number: usize) -> Option<&'static AppThread> {
        all().iter().find(|entry| entry.request() == number).copied()
    }

    /// Ends the stream of another thread of this engine: if the thread waits for more of its body, raises Fastrack::ClientGone,
    /// Fastrack::StreamTimeout or Fastrack::WorkerRetired there, once. A thread that computes is stopped at the next part of its body: an
    /// exception in the middle could leave the app's objects half changed.
    ///
    /// # Safety
    /// Under protect, with the GVL: the other thread does not go on meanwhile.
    pub unsafe fn interrupt(&self, number: usize) {
        let Some(control) = self.control() else { return };
        let is_it = |entry: &&&'static AppThread| {
            entry.thread.load(Ordering::Relaxed) != 0
                && entry.number() == number
                && entry.control().is_some_and(|other| Arc::ptr_eq(&other, &control))
        };
        let found = all().iter().find(is_it).copied();
        let end = control.stream_end(number);
        drop(control);
        let (Some(entry), Some(end)) = (found, end) else { return };
        let class = match end {
            StreamEnd::ClientGone => interned().client_gone_error,
            StreamEnd::Timeout => interned().stream_timeout_error,
            StreamEnd::Retired => interned().worker_retired_error,
        };
        let stage = entry.body.load(Ordering::Relaxed);
        if stage != BodyStage::Called as u8 && stage != BodyStage::Over as u8 {
            return;
        }
        entry.body.store(BodyStage::Over as u8, Ordering::Relaxed);
        // SAFETY: as this function's; a thread that runs the app is alive. Nothing here owns anything.
        unsafe {
            let thread = entry.thread.load(Ordering::Relaxed) as VALUE;
            let status = call(thread, interned().id.status, &[]);
            if is_string(status) && bytes(status) == b"sleep" {
                entry.body.store(BodyStage::Interrupted as u8, Ordering::Relaxed);
                call(thread, interned().id.raise, &[class]);
            }
        }
    }

    /// Runs `work` on this thread's request while the thread is calling the app. Ruby code run by `work` does not find the
    /// request. After such code, `work` checks its [`Scope`](crate::request::in_flight::Scope).
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
        // SAFETY: if the pointer is not null, this thread is calling the app, so that the request does not move. No other
        // pointer to the request is in use.
        let result = unsafe { pointer.as_mut() }.map(work);
        // `work` returns exceptions instead of raising, so that this line is always reached.
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
    // SAFETY: needs the GVL; `_ruby` is the proof.
    unsafe { rb_thread_current() as usize }
}
