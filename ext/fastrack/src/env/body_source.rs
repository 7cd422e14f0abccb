//! Fastrack::BodySource: reads a request's body while it arrives (StreamBody=true).
//!
//! The app may keep the object, or use the object in another thread. But only the thread that answers the request can read
//! the body, and only until the request has been answered.

use std::sync::atomic::{AtomicPtr, Ordering};

use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::{method, prelude::*, Error, RModule, Ruby, TryConvert, Value};
use rb_sys::*;

use fastrack_engine::{BodyError, BodyRead, BodyStream};

use crate::ruby::{call, interned, io_error, protect, string, without_gvl, NIL};

/// The Ruby object.
#[magnus::wrap(class = "Fastrack::BodySource", free_immediately)]
struct BodySource {
    /// Null once the request has been answered.
    ///
    /// INVARIANT: the stream stays at this address until [`SourceScope::end`].
    stream: AtomicPtr<BodyStream<'static>>,
    /// The Ruby thread that answers the request. Ruby does not free the Thread before the request has been answered.
    thread: VALUE,
}

pub(super) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    let class = module.define_class("BodySource", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_method("read", method!(BodySource::read, 1))
}

/// The period in which a source can be read. Holds the BodySource, or nil. Lives on the stack, where the GC sees the value.
pub(crate) struct SourceScope(VALUE);

impl SourceScope {
    pub const NONE: Self = SourceScope(NIL);

    /// Makes an input that reads from the stream until [`end`](Self::end).
    ///
    /// # Safety
    /// The stream does not move before [`end`](Self::end). The caller calls `end` even if this function, or later code, raises.
    pub unsafe fn begin(&mut self, stream: &BodyStream<'_>, rack_3: bool) -> VALUE {
        // SAFETY: as this function's; the source is on the stack until the input refers to it. The GVL is held.
        unsafe {
            let pointer = (&raw const *stream).cast_mut().cast::<BodyStream<'static>>();
            let source = BodySource { stream: AtomicPtr::new(pointer), thread: rb_thread_current() };
            self.0 = Ruby::get_unchecked().obj_wrap(source).as_raw();
            let rack_3 = if rack_3 { Qtrue as VALUE } else { Qfalse as VALUE };
            call(interned().streamed_body, interned().id.call, &[self.0, rack_3])
        }
    }

    /// From now on reading raises IOError.
    pub fn end(&mut self) {
        if self.0 == NIL {
            // The common case. Converting nil would format an error message.
            return;
        }
        // SAFETY: the slot keeps the object alive.
        let source = unsafe { Value::from_raw(std::mem::replace(&mut self.0, NIL)) };
        if let Ok(source) = <&BodySource>::try_convert(source) {
            source.stream.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
    }
}

impl BodySource {
    /// `read(max)`: from 1 to `max` bytes of the body as a binary String, as soon as any have arrived; nil at the end.
    ///
    /// Raises EOFError if the client has gone before the end. Raises IOError if the body is invalid or too slow, after the
    /// request has been answered, and in another thread.
    fn read(ruby: &Ruby, this: &Self, max: usize) -> Result<Option<Value>, Error> {
        loop {
            let mut piece = Ok(NIL);
            let progress = this.stream(ruby)?.read(max.max(1), &mut |bytes| {
                // SAFETY: under protect, and owning nothing.
                piece = protect(|| unsafe { string(bytes) });
            });
            match progress {
                Ok(BodyRead::Taken) => {
                    let piece = piece.map_err(|raised| raised.into_error(ruby))?;
                    // SAFETY: a new String, on the stack since its creation.
                    return Ok(Some(unsafe { Value::from_raw(piece) }));
                }
                Ok(BodyRead::End) => return Ok(None),
                Ok(BodyRead::Blocked) => this.wait(ruby)?,
                Err(error @ BodyError::Gone) => {
                    return Err(Error::new(ruby.exception_eof_error(), error.to_string()))
                }
                Err(error @ BodyError::Refused(_)) => return Err(io_error(ruby, error.to_string())),
            }
        }
    }

    /// Waits for the client without the GVL. Runs traps, and returns their exceptions.
    fn wait(&self, ruby: &Ruby) -> Result<(), Error> {
        let stream = self.stream(ruby)?;
        without_gvl(&mut || stream.wait());
        // SAFETY: under protect, and owning nothing.
        protect(|| unsafe { rb_thread_check_ints() }).map_err(|raised| raised.into_error(ruby))
    }

    fn stream(&self, ruby: &Ruby) -> Result<&BodyStream<'_>, Error> {
        let pointer = self.stream.load(Ordering::Relaxed);
        if pointer.is_null() {
            return Err(io_error(ruby, "the body can be read only until its request has been answered"));
        }
        // The native thread would be wrong: it changes with RUBY_MN_THREADS=1.
        // SAFETY: needs the GVL; `ruby` is the proof.
        if self.thread != unsafe { rb_thread_current() } {
            return Err(io_error(ruby, "the body can be read only in the thread that answers its request"));
        }
        // SAFETY: the pointer is not null, so the scope has not ended. Only Ruby code in this thread can end the scope. The
        // caller calls `stream` again after running Ruby code.
        Ok(unsafe { &*pointer })
    }
}
