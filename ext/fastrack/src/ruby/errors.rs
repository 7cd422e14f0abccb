//! Exceptions: raised, classified, reported.

use std::ffi::CStr;
use std::io;

use fastrack_sys::write_stderr_all;
use magnus::error::ErrorType;
use magnus::rb_sys::AsRawValue;
use magnus::{Error, Ruby};
use rb_sys::*;

use crate::ruby::interned::interned;
use crate::ruby::protect::{protect, Raised};
use crate::ruby::value::{call, NIL};

/// Raises an exception with a fixed message.
pub(crate) unsafe fn raise(class: VALUE, message: &CStr) -> ! {
    // SAFETY: as this function's; the format takes the message as its only argument.
    unsafe { rb_raise(class, c"%s".as_ptr(), message.as_ptr()) }
}

/// Raises the SystemCallError of a failed system call.
pub(crate) unsafe fn raise_errno(error: io::Error, what: &CStr) -> ! {
    let errno = error.raw_os_error().unwrap_or(0);
    drop(error);
    // SAFETY: as this function's; `error` has been dropped.
    unsafe { rb_syserr_fail(errno, what.as_ptr()) }
}

/// An IOError for the Ruby method that is being called.
pub(crate) fn io_error(ruby: &Ruby, message: impl Into<String>) -> Error {
    Error::new(ruby.exception_io_error(), message.into())
}

/// An IOError with the failed object and the reason.
pub(crate) fn system_error(ruby: &Ruby, what: &str, error: &io::Error) -> Error {
    io_error(ruby, format!("{what}: {error}"))
}

/// The exception of an error; nil for a jump without an exception (throw, the end of a thread).
pub(crate) fn exception(error: &Error) -> VALUE {
    match error.error_type() {
        ErrorType::Exception(exception) => exception.as_raw(),
        _ => NIL,
    }
}

/// Whether an exception is an error of the app: to be reported, and answered with 500. Other exceptions and jumps are for
/// the process or an outer frame: exit, a signal, the end of this thread, a throw.
pub(crate) fn is_app_error(error: &Error) -> bool {
    let exception = exception(error);
    // SAFETY: `error` is on the stack and keeps the exception alive; this does not raise.
    exception != NIL
        && unsafe {
            let is_a = |class| rb_obj_is_kind_of(exception, class) == Qtrue as VALUE;
            !is_a(rb_eSystemExit) && !is_a(rb_eSignal) && !is_a(rb_eFatal)
        }
}

/// Whether an exception is one by which the server ends a stream.
pub(crate) fn is_stream_end(error: &Error) -> bool {
    is_a(error, interned().stream_ended_error)
}

/// Whether an exception is the one by which a worker ends its streams.
pub(crate) fn is_worker_retired(error: &Error) -> bool {
    is_a(error, interned().worker_retired_error)
}

/// Whether an error is an exception of this class.
pub(super) fn is_a(error: &Error, class: VALUE) -> bool {
    let exception = exception(error);
    // SAFETY: `error` is on the stack and keeps the exception alive; this does not raise.
    exception != NIL && unsafe { rb_obj_is_kind_of(exception, class) == Qtrue as VALUE }
}

/// Whether an exception is Ruby's `fatal`, such as for a deadlock of all threads: an error of the app that also ends the
/// process.
pub(crate) fn is_fatal(error: &Error) -> bool {
    let exception = exception(error);
    // SAFETY: `error` is on the stack and keeps the exception alive; this does not raise.
    exception != NIL && unsafe { rb_obj_is_kind_of(exception, rb_eFatal) == Qtrue as VALUE }
}

/// Writes an exception with its backtrace to rack.errors (Rack SPEC, "The Error Stream"), or to the log if `env` is nil or
/// has no rack.errors.
pub(crate) fn report(error: &Error, env: VALUE) {
    let exception = exception(error);
    if exception == NIL {
        return;
    }
    let reported = protect(|| {
        // SAFETY: under protect, and owning nothing.
        unsafe {
            let report = rb_path2class(c"Fastrack::ExceptionReport".as_ptr());
            call(report, rb_intern(c"write".as_ptr()), &[exception, env]);
        }
    });
    if reported.is_err() {
        warn("an exception could not be written to rack.errors");
    }
}

/// Writes a line to the server's log, in its format (LogFormat) and to its destination (`logger`).
pub(crate) fn log_line(line: &str) -> Result<(), Raised> {
    let text = format!("{line} (worker {})", std::process::id());
    protect(|| {
        // SAFETY: under protect. The closure borrows the text, and owns nothing.
        unsafe {
            let text = rb_utf8_str_new(text.as_ptr().cast(), text.len() as _);
            let level = RB_ID2SYM(rb_intern(c"warn".as_ptr()));
            let log = rb_path2class(c"Fastrack::Log".as_ptr());
            call(log, rb_intern(c"line".as_ptr()), &[text, level]);
        }
    })
}

/// Writes a line to stderr without calling Ruby. A failed write is ignored.
pub(crate) fn warn(line: &str) {
    write_stderr_all(format!("fastrack: {line} (worker {})\n", std::process::id()).as_bytes());
}
