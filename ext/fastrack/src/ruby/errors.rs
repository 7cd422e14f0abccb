//! What becomes of an exception that the application lets out.

use std::io::Write;

use magnus::error::ErrorType;
use magnus::rb_sys::AsRawValue;
use magnus::Error;
use rb_sys::*;

use crate::ruby::interned::names;
use crate::ruby::protect::protect;

/// Whether an exception is the application's failure, to be reported and
/// answered with 500. The others are meant for the process, or for a frame
/// further out: exit, a signal, the end of this thread, a throw.
pub(crate) fn is_failure(error: &Error) -> bool {
    let ErrorType::Exception(exception) = error.error_type() else { return false };
    let exception = exception.as_raw();
    // SAFETY: the exception is alive, being part of `error`, which is on the stack; the
    // classes are constants of Ruby's own; this does not raise.
    unsafe {
        let meant_for_the_process = [rb_eSystemExit, rb_eSignal, rb_eFatal];
        !meant_for_the_process.into_iter().any(|class| rb_obj_is_kind_of(exception, class) == Qtrue as VALUE)
    }
}

/// The exception that an error is; nil for a jump that is none.
pub(crate) fn exception(error: &Error) -> VALUE {
    match error.error_type() {
        ErrorType::Exception(exception) => exception.as_raw(),
        _ => Qnil as VALUE,
    }
}

/// Writes an exception with its backtrace to the request's rack.errors (Rack
/// SPEC, "The Error Stream"), or to stderr when there is none.
pub(crate) fn report(error: &Error, env: VALUE) {
    let ErrorType::Exception(exception) = error.error_type() else { return };
    let exception = exception.as_raw();
    let reported = protect(|| {
        // SAFETY: under protect, and owning nothing.
        unsafe {
            let names = names();
            let stream =
                if env == Qnil as VALUE { rb_stderr } else { rb_hash_lookup(env, names.rack_errors) };
            let stream = if stream == Qnil as VALUE { rb_stderr } else { stream };
            let options = rb_hash_new();
            rb_hash_aset(options, RB_ID2SYM(rb_intern(c"highlight".as_ptr())), Qfalse as VALUE);
            let text = rb_funcallv_kw(exception, names.id_full_message, 1, &options, RB_PASS_KEYWORDS as _);
            rb_funcallv(stream, names.id_puts, 1, &text);
            rb_funcallv(stream, names.id_flush, 0, std::ptr::null())
        }
    });
    if reported.is_err() {
        warn("an exception of the application's could not be written to rack.errors");
    }
}

/// A line for the server's log, which is stderr. Its reader may be gone, or slow: that must not matter here.
pub(crate) fn warn(line: &str) {
    let _ = writeln!(std::io::stderr(), "fastrack: {line} (worker {})", std::process::id());
}
