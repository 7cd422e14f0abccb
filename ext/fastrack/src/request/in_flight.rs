//! The request whose application is being called, for what that application asks of the server meanwhile.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::{Error, Ruby, Value};
use rb_sys::*;

use fastrack_engine::{Content, Request, ResponseWriter};
use fastrack_http::{ResponseHead, Version};

use crate::env::body_source::read_ahead;
use crate::request::socket::socket_object;
use crate::response::headers::{take_headers, Orders};
use crate::ruby::interned::names;
use crate::ruby::protect::protect;
use crate::ruby::scoped_ref::Loan;

/// Where the call is noted while it lasts. One for all requests: an object of its own for each of them would cost more
/// than all that is done with it.
#[derive(Default)]
pub(crate) struct Current {
    call: AtomicPtr<Call>,
    /// Grows with each beginning and each end. What a call asks for may run Ruby code, in a Fiber that is left there and
    /// resumed when the call is over: then nothing that the call has pointed to is there any more.
    turn: AtomicU64,
}

/// What belongs to the call of the application.
///
/// INVARIANT: lives on the stack, where the GC sees the values in it, for as long as it is noted in a [`Current`].
pub(crate) struct Call {
    /// The thread that calls the application.
    thread: VALUE,
    env: VALUE,
    /// The socket object, once the application has taken the connection over.
    io: VALUE,
    writer: *mut ResponseWriter<'static>,
    request: *const Request<'static>,
}

impl Call {
    /// The pointers outlive the call, and are used by nobody else until it has [ended](Current::end).
    pub fn new(env: VALUE, writer: *mut ResponseWriter<'_>, request: *const Request<'_>) -> Self {
        // SAFETY: has no requirements for a thread of Ruby's, with the GVL.
        let thread = unsafe { rb_thread_current() };
        Call { thread, env, io: Qnil as VALUE, writer: writer.cast(), request: request.cast() }
    }

    /// Whether the application has taken the connection over.
    pub fn is_hijacked(&self) -> bool {
        self.io != Qnil as VALUE
    }

    /// `is_on` tells whether the call is not over, which has to be asked after everything that runs Ruby code.
    fn hijack(&mut self, ruby: &Ruby, is_on: &dyn Fn() -> bool) -> Result<VALUE, Error> {
        if self.is_hijacked() {
            return Ok(self.io);
        }
        // SAFETY: by the contract of `new`.
        let (writer, request) = unsafe { (&mut *self.writer, &*self.request) };
        if let (true, Content::Stream(stream)) = (writer.is_untouched(), &request.content) {
            protect(|| {
                // SAFETY: under protect; what the closure borrows it does not own.
                unsafe { read_ahead(stream) };
                Qnil as VALUE
            })
            .map_err(|raised| raised.into_error(ruby))?;
        }
        if !writer.claim() {
            return Err(Error::new(ruby.exception_io_error(), "the response has begun"));
        }
        let env = self.env;
        let io = protect(|| {
            // SAFETY: under protect; what the closure borrows it does not own.
            unsafe {
                let io = socket_object(&*writer, request);
                rb_hash_aset(env, names().hijack_io, io)
            }
        })
        .map_err(|raised| raised.into_error(ruby))?;
        if !is_on() {
            return Err(over(ruby));
        }
        self.io = io;
        writer.hand_over();
        Ok(io)
    }

    /// As [`hijack`](Self::hijack).
    fn hint(&mut self, ruby: &Ruby, headers: VALUE, is_on: &dyn Fn() -> bool) -> Result<(), Error> {
        // SAFETY: by the contract of `new`.
        let (writer, request) = unsafe { (&mut *self.writer, &*self.request) };
        // A client of HTTP/1.0 knows nothing of interim responses (RFC 9110 §15.2).
        if request.head.version != Version::Http11 || !writer.is_untouched() {
            return Ok(());
        }
        // Its own: the response's may be begun before this has come to its end.
        let mut head = ResponseHead::default();
        head.start(103);
        let mut loan = Loan::none();
        let taken = protect(|| {
            // SAFETY: under protect; the closure owns nothing.
            unsafe { take_headers(headers, &mut head, &mut loan, &mut Orders::none()) };
            Qnil as VALUE
        });
        loan.end();
        taken.map_err(|raised| raised.into_error(ruby))?;
        if !is_on() {
            return Err(over(ruby));
        }
        let mut encoded = Vec::new();
        head.write_interim(&mut encoded);
        if !encoded.is_empty() {
            writer.send_interim(&encoded);
        }
        Ok(())
    }
}

impl Current {
    /// Notes a call.
    ///
    /// # Safety
    /// [`end`](Self::end) is called before `call` goes, and before the frames that it lies in are left.
    pub unsafe fn begin(&self, call: *mut Call) {
        self.turn.fetch_add(1, Ordering::Relaxed);
        self.call.store(call, Ordering::Relaxed);
    }

    /// The call is over.
    pub fn end(&self) {
        self.turn.fetch_add(1, Ordering::Relaxed);
        self.call.store(std::ptr::null_mut(), Ordering::Relaxed);
    }

    /// Takes the connection over for the application (Rack SPEC, "Full Hijack"); the socket object. An IOError when
    /// there is no request of this thread's, or its response has begun.
    pub fn hijack(&self, ruby: &Ruby) -> Result<Value, Error> {
        let io = self.with(ruby, |call, is_on| call.hijack(ruby, is_on))?;
        // SAFETY: a socket object; the call keeps it in sight of the GC.
        Ok(unsafe { Value::from_raw(io) })
    }

    /// Sends early hints (RFC 8297). Raises what is wrong with the headers, or an IOError as [`hijack`](Self::hijack).
    pub fn hint(&self, ruby: &Ruby, headers: Value) -> Result<(), Error> {
        self.with(ruby, |call, is_on| call.hint(ruby, headers.as_raw(), is_on))
    }

    /// Does something with the call that this thread is in. Nobody finds it meanwhile: what the work calls may come
    /// back here.
    fn with<T>(
        &self,
        ruby: &Ruby,
        work: impl FnOnce(&mut Call, &dyn Fn() -> bool) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let turn = self.turn.load(Ordering::Relaxed);
        let is_on = || self.turn.load(Ordering::Relaxed) == turn;
        let pointer = self.call.swap(std::ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: needs the GVL only, of which `ruby` is the proof.
        let thread = unsafe { rb_thread_current() };
        // SAFETY: not null while the application is called, and valid as long, by the contract of `begin`: its thread
        // is in this frame, or waits for the GVL. Nobody else finds the pointer now.
        let call = unsafe { pointer.as_mut() }.filter(|call| call.thread == thread);
        // The work lets no exception through, so that the pointer comes back.
        let result = call.map(|call| work(call, &is_on));
        if is_on() {
            self.call.store(pointer, Ordering::Relaxed);
        }
        result.unwrap_or_else(|| Err(over(ruby)))
    }
}

fn over(ruby: &Ruby) -> Error {
    Error::new(ruby.exception_io_error(), "the request is over, or another thread's")
}
