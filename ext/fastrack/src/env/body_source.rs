//! Fastrack::BodySource: a body that is still coming in, lent to Ruby while its request is answered.
//!
//! The application may keep the object, or read in another thread: it finds
//! nothing once the request is answered, and nothing anywhere but in the
//! thread that was given the request.

use std::io::Write;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread::{self, ThreadId};

use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::value::Lazy;
use magnus::{method, prelude::*, Error, RModule, Ruby, Value};
use rb_sys::*;

use fastrack_engine::{BodyError, BodyRead, BodyStream, ReadAhead};

use crate::env::build::string;
use crate::response::headers::raise;
use crate::ruby::gvl::without_gvl;
use crate::ruby::interned::names;
use crate::ruby::protect::{protect, Raised};
use crate::ruby::scoped_ref as loan;

/// What makes an input of a source.
static STREAMED_BODY: Lazy<Value> = Lazy::new(|ruby| {
    let module: Result<RModule, Error> = ruby.class_object().const_get("Fastrack");
    module.and_then(|module| module.const_get("StreamedBody")).expect("init has required it")
});

/// The Ruby object.
#[magnus::wrap(class = "Fastrack::BodySource", free_immediately)]
struct BodySource {
    /// Null when the loan is over.
    ///
    /// INVARIANT: what it points to outlives the loan, which the lender ends.
    stream: AtomicPtr<BodyStream<'static>>,
    /// Whose it is.
    thread: ThreadId,
}

/// A loan, as the lender sees it: the source, or nil when there is none.
///
/// Lives on the stack, where the GC sees it.
pub(crate) struct SourceLoan(VALUE);

pub(crate) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    let class = module.define_class("BodySource", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_method("read", method!(BodySource::read, 1))?;
    ruby.require("fastrack/streamed_body")?;
    Lazy::force(&STREAMED_BODY, ruby);
    Ok(())
}

impl SourceLoan {
    pub fn none() -> Self {
        SourceLoan(Qnil as VALUE)
    }

    /// Lends a stream until [`end`](Self::end), and makes the input object that reads from it.
    ///
    /// # Safety
    /// Under protect, with the GVL; the caller's frames own nothing. The stream stays where it is until the loan has
    /// ended, which the caller sees to whatever is raised.
    pub unsafe fn begin(&mut self, stream: &BodyStream<'_>, rack_3: bool) -> VALUE {
        // SAFETY: as this function's; the source is on the stack until the input holds it. The GVL is held.
        unsafe {
            let ruby = Ruby::get_unchecked();
            let pointer = (&raw const *stream).cast_mut().cast::<BodyStream<'static>>();
            let source = BodySource { stream: AtomicPtr::new(pointer), thread: thread::current().id() };
            self.0 = ruby.obj_wrap(source).as_raw();
            let arguments = [self.0, if rack_3 { Qtrue as VALUE } else { Qfalse as VALUE }];
            rb_funcallv(ruby.get_inner(&STREAMED_BODY).as_raw(), names().id_call, 2, arguments.as_ptr())
        }
    }

    /// From now on whoever reads is told that it is too late.
    pub fn end(&mut self) {
        if self.0 == Qnil as VALUE {
            // Nearly always. To ask magnus would cost an error and its message.
            return;
        }
        // SAFETY: what is in this slot is a value that is alive.
        let source = unsafe { Value::from_raw(std::mem::replace(&mut self.0, Qnil as VALUE)) };
        if let Ok(source) = <&BodySource as magnus::TryConvert>::try_convert(source) {
            source.stream.store(std::ptr::null_mut(), Ordering::Relaxed);
            loan::note_end();
        }
    }
}

impl BodySource {
    /// `read(most)`: from 1 to `most` bytes of the body as a binary String, as soon as there are any, or nil at its end.
    ///
    /// Raises EOFError when the client has gone before the end, and IOError when it breaks a rule, is too slow, or this
    /// is not the time or the thread to read in.
    fn read(ruby: &Ruby, this: &Self, most: usize) -> Result<Option<Value>, Error> {
        loop {
            let mut piece = Ok(Qnil as VALUE);
            let intake = this.lent(ruby)?.read(most.max(1), &mut |bytes| {
                piece = protect(|| {
                    // SAFETY: under protect, and owning nothing.
                    unsafe { string(bytes) }
                });
            });
            match intake {
                Ok(BodyRead::Taken) => {
                    let piece = piece.map_err(|raised| error(ruby, raised))?;
                    // SAFETY: a String that has just been made; it was on the stack all the time.
                    return Ok(Some(unsafe { Value::from_raw(piece) }));
                }
                Ok(BodyRead::End) => return Ok(None),
                Ok(BodyRead::Blocked) => this.wait(ruby)?,
                Err(failure) => return Err(failed(ruby, failure)),
            }
        }
    }

    /// Waits for the client without the GVL. Traps run here, and what they raise comes back.
    fn wait(&self, ruby: &Ruby) -> Result<(), Error> {
        let stream = self.lent(ruby)?;
        without_gvl(&mut || stream.wait());
        let checked = protect(|| {
            // SAFETY: under protect, and owning nothing.
            unsafe { rb_thread_check_ints() };
            Qnil as VALUE
        });
        checked.map(|_| ()).map_err(|raised| error(ruby, raised))
    }

    fn lent(&self, ruby: &Ruby) -> Result<&BodyStream<'_>, Error> {
        let pointer = self.stream.load(Ordering::Relaxed);
        if pointer.is_null() {
            return Err(io_error(ruby, "the body can be read only until its request has been answered"));
        }
        if self.thread != thread::current().id() {
            return Err(io_error(ruby, "the body can be read only in the thread that answers its request"));
        }
        // SAFETY: the loan is not over, and it is this thread that ends it: not before this method has returned.
        Ok(unsafe { &*pointer })
    }
}

/// Receives a body to its end, so that whoever takes the connection over finds what comes after it. Waits for the client
/// without the GVL. What the application has not read stays to be read.
///
/// Raises as [`BodySource::read`], and an IOError where more than a mebibyte would have to be kept.
///
/// # Safety
/// Under protect, with the GVL; the caller's frames own nothing.
pub(crate) unsafe fn read_ahead(stream: &BodyStream<'_>) {
    // SAFETY: as this function's; nothing here owns anything.
    unsafe {
        loop {
            match stream.read_ahead() {
                Ok(ReadAhead::Whole) => return,
                Ok(ReadAhead::Blocked) => {
                    without_gvl(&mut || stream.wait());
                    loan::check_interrupts();
                }
                Ok(ReadAhead::TooMuch) => {
                    raise(rb_eIOError, c"the body must be read before the connection is taken over")
                }
                Err(failure) => {
                    let class = if failure == BodyError::Gone { rb_eEOFError } else { rb_eIOError };
                    let mut text = [0; 100];
                    let mut left = &mut text[..];
                    // What does not fit is left out.
                    let _ = write!(left, "{failure}");
                    let unused = left.len();
                    rb_exc_raise(rb_exc_new(class, text.as_ptr().cast(), (text.len() - unused) as _))
                }
            }
        }
    }
}

fn failed(ruby: &Ruby, failure: BodyError) -> Error {
    match failure {
        BodyError::Gone => Error::new(ruby.exception_eof_error(), failure.to_string()),
        BodyError::Refused(_) => io_error(ruby, &failure.to_string()),
    }
}

fn io_error(ruby: &Ruby, message: &str) -> Error {
    Error::new(ruby.exception_io_error(), message.to_owned())
}

fn error(ruby: &Ruby, raised: Raised) -> Error {
    match raised {
        Raised::Ruby(error) => error,
        Raised::Panic(message) => Error::new(ruby.exception_runtime_error(), message),
    }
}
