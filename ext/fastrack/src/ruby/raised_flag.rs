//! Clears the flag that a NoMemoryError or a SystemStackError sets in its Ruby thread.
//!
//! While the flag is set, the thread runs no trap, no Thread#raise and no Thread#kill, and a second NoMemoryError ends the process
//! ("[FATAL] failed to allocate memory"). Ruby clears the flag when the exception passes a frame of Ruby code. An exception of a method
//! in C, called from here, passes none. Any other exception clears the flag, too (`rb_longjmp` in eval.c).

use std::sync::OnceLock;

use magnus::{Error, Ruby};
use rb_sys::*;

use crate::ruby::errors::{exception, is_a};
use crate::ruby::protect::protect;
use crate::ruby::value::{call, NIL};

/// An exception that can be raised without memory: with a backtrace, and with a cause that was set when it was raised first.
static PREPARED: OnceLock<VALUE> = OnceLock::new();

/// To be called when the extension is loaded.
pub(crate) fn init(ruby: &Ruby) -> Result<(), Error> {
    // SAFETY: under protect, and owning nothing.
    let made = protect(|| unsafe {
        let made = rb_class_new_instance(0, std::ptr::null(), rb_eRuntimeError);
        rb_gc_register_mark_object(made);
        call(made, rb_intern(c"set_backtrace".as_ptr()), &[rb_ary_new()]);
        made
    });
    let made = made.map_err(|raised| raised.into_error(ruby))?;
    raise_and_catch(*PREPARED.get_or_init(|| made));
    Ok(())
}

/// To be called with each exception that [`protect`] has caught.
pub(super) fn clear_after(error: &Error) {
    // SAFETY: both are classes that Ruby defines before it loads an extension.
    let sets_flag =
        exception(error) != NIL && unsafe { is_a(error, rb_eNoMemError) || is_a(error, rb_eSysStackError) };
    if let (true, Some(prepared)) = (sets_flag, PREPARED.get()) {
        raise_and_catch(*prepared);
    }
}

fn raise_and_catch(prepared: VALUE) {
    // SAFETY: the exception is registered with the GC, and the closure owns nothing.
    let _ = magnus::rb_sys::protect(|| unsafe { rb_exc_raise(prepared) });
}
