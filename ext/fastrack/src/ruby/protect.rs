//! Stops Ruby exceptions and Rust panics at the boundary between the languages.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

use magnus::{Error, Ruby};

use crate::ruby::raised_flag::clear_after;
use crate::ruby::value::NIL;

/// The reason for which protected work did not complete.
pub(crate) enum Raised {
    /// An exception, or another jump (throw, the end of a thread).
    Ruby(Error),
    /// The message of a panic in Rust code.
    Panic(String),
}

impl Raised {
    /// Converts the reason to an error for the current Ruby method.
    pub fn into_error(self, ruby: &Ruby) -> Error {
        match self {
            Raised::Ruby(error) => error,
            Raised::Panic(message) => Error::new(ruby.exception_runtime_error(), message),
        }
    }
}

/// Runs work that calls Ruby, and returns its exception as an error.
///
/// A raise jumps over the frames of `work` without running any destructor: no frame between here and Ruby may own memory,
/// a lock or a descriptor. The work borrows such values from outside.
pub(crate) fn protect<T>(work: impl FnOnce() -> T) -> Result<T, Raised> {
    let mut outcome = None;
    let protected = magnus::rb_sys::protect(|| {
        outcome = Some(catch_unwind(AssertUnwindSafe(work)));
        NIL
    });
    match (protected, outcome) {
        (Err(error), _) => {
            clear_after(&error);
            Err(Raised::Ruby(error))
        }
        (Ok(_), Some(Ok(value))) => Ok(value),
        (Ok(_), Some(Err(payload))) => Err(Raised::Panic(panic_message(payload.as_ref()))),
        (Ok(_), None) => Err(Raised::Panic("protected work did not run".to_owned())),
    }
}

/// Runs the Rust part of a callback from Ruby. None after a panic, which the panic hook has reported on stderr.
pub(crate) fn callback<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic").to_owned()
}
