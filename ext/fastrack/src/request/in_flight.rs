//! One request in progress, and the Ruby thread that answers it.

use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rb_sys::*;

use fastrack_engine::{Control, Request, ResponseWriter};

use crate::env::SourceScope;
use crate::ruby::{exception, is_app_error, raise, Raised, ScopedRef, NIL};

/// All that belongs to one request in progress. Values are nil where there is none.
///
/// INVARIANT: lives on the stack, where the GC sees the values in it.
pub(crate) struct InFlight<'a, 'e> {
    pub request: &'a Request<'a>,
    pub writer: &'a mut ResponseWriter<'e>,
    pub thread: &'static AppThread,
    /// That of its request in this process.
    pub number: usize,
    pub env: VALUE,
    /// The input of a large body, or of one that is still coming in, while its close is due.
    pub input: VALUE,
    /// Lends the app a body that is still coming in.
    pub source: SourceScope,
    /// Lends the server's state to the block of an iteration.
    pub block: ScopedRef,
    /// The socket, once the app has hijacked the connection.
    pub hijacked: VALUE,
    /// The socket of a streaming body, while that is being called.
    pub stream: VALUE,
    /// The response's body, while its close is due.
    pub body: VALUE,
    pub status: VALUE,
    pub headers: VALUE,
    /// The first exception.
    pub error: VALUE,
    pub stage: CallStage,
}

/// How far a request has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallStage {
    /// The app is being called, or its response sent.
    Answering,
    /// The response has been sent.
    Answered,
    /// Everything is closed, and the callbacks are collected.
    Done,
}

impl<'a, 'e> InFlight<'a, 'e> {
    pub fn new(
        request: &'a Request<'a>,
        writer: &'a mut ResponseWriter<'e>,
        thread: &'static AppThread,
    ) -> Self {
        InFlight {
            request,
            writer,
            thread,
            number: thread.begin_request(),
            env: NIL,
            input: NIL,
            source: SourceScope::NONE,
            block: ScopedRef::NONE,
            hijacked: NIL,
            stream: NIL,
            body: NIL,
            status: NIL,
            headers: NIL,
            error: NIL,
            stage: CallStage::Answering,
        }
    }

    /// The iteration is over: its block finds nothing any more.
    pub fn end_block(&mut self) {
        self.block.end();
        self.thread.end_scope();
    }

    /// The request has been answered: a block or input that was kept finds nothing any more.
    pub fn end_scopes(&mut self) {
        self.end_block();
        self.source.end();
    }

    /// The next object to call close on. A large body's file is closed without waiting for the GC, because a busy
    /// server would have hundreds open by then. A streaming body's socket is closed if its call has failed: the client
    /// would wait for the rest.
    pub fn take_open(&mut self) -> Option<VALUE> {
        let slots = [&mut self.body, &mut self.input, &mut self.stream];
        let open = slots.into_iter().find(|slot| **slot != NIL)?;
        Some(std::mem::replace(open, NIL))
    }

    /// Keeps the first exception; whether this is an error of the app's.
    pub fn note_error<T>(&mut self, result: &Result<T, Raised>) -> bool {
        let Err(Raised::Ruby(error)) = result else { return false };
        if self.error == NIL {
            self.error = exception(error);
        }
        is_app_error(error)
    }
}

/// Nobody finds the request any more, even where a panic of the server's own ends it outside of protect.
impl Drop for InFlight<'_, '_> {
    fn drop(&mut self) {
        self.thread.end_call();
        self.end_scopes();
    }
}

/// A Ruby thread that runs the app.
///
/// It is used with the GVL only; the atomics are for the compiler. It is never freed: a Fiber that was left in the
/// middle of a request may be resumed at any time.
#[derive(Debug, Default)]
pub(crate) struct AppThread {
    /// The Thread; 0 while none uses this.
    pub(super) thread: AtomicUsize,
    /// Its number for the engine.
    number: AtomicUsize,
    /// The request for which the app is being called; null while there is none, or while something works on it.
    pub(super) in_flight: AtomicPtr<InFlight<'static, 'static>>,
    /// Grows when a request or an iteration begins or ends.
    generation: AtomicU64,
    /// The number of its request, until its callbacks are also over; else 0.
    request: AtomicUsize,
    /// Its engine's.
    control: Mutex<Weak<Control>>,
}

/// The number of the last request of this process.
static REQUESTS: AtomicUsize = AtomicUsize::new(0);

impl AppThread {
    /// From now on this runs the app of that engine.
    pub(super) fn set_control(&self, control: &Arc<Control>) {
        *self.weak_control() = Arc::downgrade(control);
    }

    fn weak_control(&self) -> MutexGuard<'_, Weak<Control>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None once its engine was released.
    fn control(&self) -> Option<Arc<Control>> {
        self.weak_control().upgrade()
    }

    /// A request begins. Returns its number.
    pub fn begin_request(&self) -> usize {
        let number = REQUESTS.load(Ordering::Relaxed) + 1;
        REQUESTS.store(number, Ordering::Relaxed);
        self.request.store(number, Ordering::Relaxed);
        number
    }

    /// The request and its callbacks are over.
    pub fn end_request(&self) {
        self.request.store(0, Ordering::Relaxed);
    }

    pub fn request(&self) -> usize {
        self.request.load(Ordering::Relaxed)
    }

    /// Whether the client whose request this thread has has left.
    pub fn is_client_gone(&self) -> bool {
        self.control().is_none_or(|control| control.is_client_gone(self.number()))
    }

    /// Sets the time limit of the request that this thread has, in milliseconds from now; 0 is none.
    pub fn allow(&self, millis: u64) {
        self.control().into_iter().for_each(|control| control.allow(self.number(), millis));
    }

    pub fn number(&self) -> usize {
        self.number.load(Ordering::Relaxed)
    }

    pub fn set_number(&self, number: usize) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// The app is about to be called.
    ///
    /// # Safety
    /// Needs the GVL only. Until [`end_call`](Self::end_call) nobody else uses what the pointer refers to, and it stays
    /// where it is.
    pub unsafe fn begin_call(&self, in_flight: *mut InFlight<'_, '_>) {
        self.end_scope();
        self.in_flight.store(in_flight.cast(), Ordering::Relaxed);
    }

    /// The app has returned or raised.
    pub fn end_call(&self) {
        self.end_scope();
        self.in_flight.store(std::ptr::null_mut(), Ordering::Relaxed);
    }

    /// An iteration is over.
    pub fn end_scope(&self) {
        self.generation.store(self.generation.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub fn scope(&'static self) -> Scope {
        Scope { thread: self, generation: self.generation.load(Ordering::Relaxed) }
    }

    /// Runs traps and lets other threads run, in the middle of work on a request or an iteration. Raises ThreadError if
    /// that is [over](Scope) afterwards: nothing of it may be touched then.
    pub unsafe fn check_interrupts(&'static self) {
        let scope = self.scope();
        // SAFETY: as this function's.
        unsafe {
            rb_thread_check_ints();
            if scope.is_over() {
                raise(rb_eThreadError, c"the server's block was left, and came back after its iteration");
            }
        }
    }
}

/// A part of a request: the call of the app, or an iteration over its response.
///
/// Whatever runs Ruby code may leave the Fiber that it is in, and come back when this part is over. So the scope is
/// checked after everything that does.
#[derive(Clone, Copy)]
pub(crate) struct Scope {
    thread: &'static AppThread,
    generation: u64,
}

impl Scope {
    pub fn is_over(self) -> bool {
        self.thread.generation.load(Ordering::Relaxed) != self.generation
    }
}
