//! Continuations (`callcc`) that are called in another request than their own.
//!
//! Ruby restores the whole stack then, so that the server would go on with a request that it has answered long ago.

use rb_sys::*;

use crate::ruby::{call, log_line, protect};

const LINE: &str =
    "the app has called a continuation (callcc) of an earlier request: this worker ends and is replaced";

/// Ends the process as `exit!` does: the client of the request in progress gets a 502, the other connections go to other
/// workers. Nothing on the stack is touched.
#[cold]
#[inline(never)]
pub(super) fn end_process() -> ! {
    // A log that fails is no reason to go on.
    let _ = log_line(LINE);
    let _ = protect(|| {
        // SAFETY: under protect, and owning nothing.
        unsafe { call(rb_mProcess, rb_intern(c"exit!".as_ptr()), &[LONG2FIX(1)]) };
    });
    fastrack_sys::exit_at_once(1)
}
