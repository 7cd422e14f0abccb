//! A request in progress, and the Ruby thread that answers the request.

use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rb_sys::*;

use fastrack_engine::{Control, Request, ResponseWriter, StreamEnd, Timings};

use crate::env::SourceScope;
use crate::ruby::{exception, is_app_error, raise, Raised, ScopedRef, NIL};

/// The state of one request in progress. Unset values are nil.
///
/// INVARIANT: lives on the stack, where the GC sees the values in it.
pub(crate) struct InFlight<'a, 'e> {
    pub request: &'a Request<'a>,
    pub writer: &'a mut ResponseWriter<'e>,
    pub thread: &'static AppThread,
    /// The request's number in this process.
    pub number: usize,
    pub env: VALUE,
    /// The input of a large body, or of a body that is still arriving, until it is closed.
    pub input: VALUE,
    /// Lends the app a body that is still arriving.
    pub source: SourceScope,
    /// Lends the server's state to the block of an iteration.
    pub block: ScopedRef,
    /// The socket, once the app has hijacked the connection.
    pub hijacked: VALUE,
    /// The socket of a streaming body, during the body's call.
    pub stream: VALUE,
    /// The response's body, until it is closed.
    pub body: VALUE,
    /// How the server may end the body before the app has passed all of it. None if the client would take that end for a cut.
    pub body_end: Option<BodyEnd>,
    pub status: VALUE,
    pub headers: VALUE,
    /// The first exception of the request.
    pub error: VALUE,
    pub stage: CallStage,
}

/// The end of a body of unknown length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    LastChunk,
    /// The close of the connection.
    Close,
}

/// The progress of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallStage {
    /// The app is being called, or its response sent.
    Answering,
    /// The response has been sent.
    Answered,
    /// Body, input and stream are closed, and the callbacks are collected.
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
            body_end: None,
            status: NIL,
            headers: NIL,
            error: NIL,
            stage: CallStage::Answering,
        }
    }

    /// Ends an iteration: from now on the iteration's block raises.
    pub fn end_block(&mut self) {
        self.block.end();
        self.thread.end_scope();
    }

    /// Ends the request's scopes once the request has been answered: from now on a block or input that the app has kept
    /// raises.
    pub fn end_scopes(&mut self) {
        self.end_block();
        self.source.end();
    }

    /// The next object to call close on. A large body's file is closed without waiting for the GC, because a busy server
    /// would have hundreds of open files by then. A streaming body's socket is closed if the body's call has failed: the
    /// client would wait for more data.
    pub fn take_open(&mut self) -> Option<VALUE> {
        let slots = [&mut self.body, &mut self.input, &mut self.stream];
        let open = slots.into_iter().find(|slot| **slot != NIL)?;
        Some(std::mem::replace(open, NIL))
    }

    /// Stores the first exception. Returns whether `result` is an error of the app.
    pub fn note_error<T>(&mut self, result: &Result<T, Raised>) -> bool {
        let Err(Raised::Ruby(error)) = result else { return false };
        if self.error == NIL {
            self.error = exception(error);
        }
        is_app_error(error)
    }
}

/// Ends the call and the scopes, even if a panic outside of protect ends the request.
impl Drop for InFlight<'_, '_> {
    fn drop(&mut self) {
        self.thread.end_call();
        self.end_scopes();
    }
}

/// A Ruby thread that runs the app.
///
/// Used with the GVL only; the atomics are for the compiler. Never freed: Ruby may resume an abandoned Fiber of a request at
/// any time.
#[derive(Debug, Default)]
pub(crate) struct AppThread {
    /// The Thread; 0 if the entry is free.
    pub(super) thread: AtomicUsize,
    /// The engine's number of the thread.
    number: AtomicUsize,
    /// The request for which the app is being called; null without a call, and while a method works on the request.
    pub(super) in_flight: AtomicPtr<InFlight<'static, 'static>>,
    /// Grows when a request or an iteration begins or ends.
    generation: AtomicU64,
    /// The number of the current request, until the request's callbacks have returned; else 0.
    request: AtomicUsize,
    /// A [`BodyStage`].
    pub(super) body: AtomicU8,
    /// The control of the thread's engine.
    control: Mutex<Weak<Control>>,
}

/// The progress of a body that yields or writes its parts.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BodyStage {
    /// There is none.
    None = 0,
    /// The body has been called.
    Called = 1,
    /// The body has been called, and the stream is to end.
    Over = 2,
    /// The body has been called, and the thread has been interrupted.
    Interrupted = 3,
}

/// The number of this process's last request.
static LAST_NUMBER: AtomicUsize = AtomicUsize::new(0);

impl AppThread {
    /// Assigns the thread to the engine with this `control`.
    pub(super) fn set_control(&self, control: &Arc<Control>) {
        *self.weak_control() = Arc::downgrade(control);
    }

    fn weak_control(&self) -> MutexGuard<'_, Weak<Control>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None once the engine has been released.
    pub(super) fn control(&self) -> Option<Arc<Control>> {
        self.weak_control().upgrade()
    }

    /// Starts a request. Returns the request's number.
    pub fn begin_request(&self) -> usize {
        let number = LAST_NUMBER.load(Ordering::Relaxed) + 1;
        LAST_NUMBER.store(number, Ordering::Relaxed);
        self.request.store(number, Ordering::Relaxed);
        number
    }

    /// Ends the request. To be called after the callbacks.
    pub fn end_request(&self) {
        self.request.store(0, Ordering::Relaxed);
    }

    pub fn request(&self) -> usize {
        self.request.load(Ordering::Relaxed)
    }

    /// Whether the client of this thread's request has left.
    pub fn is_client_gone(&self) -> bool {
        self.control().is_none_or(|control| control.is_client_gone(self.number()))
    }

    /// How the time of this thread's request is divided.
    pub fn timings(&self) -> Option<Timings> {
        self.control()?.timings(self.number())
    }

    /// This thread's request mostly waits, as the app says.
    pub fn mark_io_bound(&self) {
        self.control().into_iter().for_each(|control| control.mark_io_bound(self.number()));
    }

    /// Sets the time limit of this thread's request, in milliseconds from now; 0 is no limit.
    pub fn allow(&self, millis: u64) {
        self.control().into_iter().for_each(|control| control.allow(self.number(), millis));
    }

    /// Says that the body is being called, or not.
    pub fn set_body_called(&self, is_called: bool) {
        let stage = if is_called { BodyStage::Called } else { BodyStage::None };
        self.body.store(stage as u8, Ordering::Relaxed);
    }

    /// Whether the body's stream is to end.
    #[inline]
    pub fn is_body_over(&self) -> bool {
        self.body.load(Ordering::Relaxed) >= BodyStage::Over as u8
    }

    /// Whether the stream is to end because its worker does.
    pub fn is_retired(&self) -> bool {
        self.control().is_some_and(|control| control.stream_end(self.number()) == Some(StreamEnd::Retired))
    }

    pub fn number(&self) -> usize {
        self.number.load(Ordering::Relaxed)
    }

    pub fn set_number(&self, number: usize) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// Makes the request available to methods called by the app.
    ///
    /// # Safety
    /// Needs the GVL only. Until [`end_call`](Self::end_call), the request does not move, and no other code uses it.
    pub unsafe fn begin_call(&self, in_flight: *mut InFlight<'_, '_>) {
        self.end_scope();
        self.in_flight.store(in_flight.cast(), Ordering::Relaxed);
    }

    /// Ends the availability of the request. To be called when the app has returned or raised.
    pub fn end_call(&self) {
        self.end_scope();
        self.in_flight.store(std::ptr::null_mut(), Ordering::Relaxed);
    }

    /// Ends the current [`Scope`].
    pub fn end_scope(&self) {
        self.generation.store(self.generation.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub fn scope(&'static self) -> Scope {
        Scope { thread: self, generation: self.generation.load(Ordering::Relaxed) }
    }

    /// Runs traps and lets other threads run, during work on a request or an iteration. Raises ThreadError if the
    /// [`Scope`] is over afterwards: then the state of the request may be gone.
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
/// Ruby code may switch to another Fiber, and return when this part is over. So the scope is checked after all Ruby code.
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
