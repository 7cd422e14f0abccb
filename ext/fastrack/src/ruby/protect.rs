//! The border that neither a Ruby exception nor a Rust panic crosses.

use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};

use magnus::{Error, Ruby};
use rb_sys::{Qnil, VALUE};

/// Why protected work did not come to its end.
pub(crate) enum Raised {
    /// An exception, or a jump that is none (throw, the end of a thread).
    Ruby(Error),
    /// Rust code panicked; the message.
    Panic(String),
}

impl Raised {
    /// As an error for whoever called from Ruby.
    pub fn into_error(self, ruby: &Ruby) -> Error {
        match self {
            Raised::Ruby(error) => error,
            Raised::Panic(message) => Error::new(ruby.exception_runtime_error(), message),
        }
    }
}

/// Runs work that calls Ruby, and returns whatever it raises.
///
/// A raise jumps over the frames of `work` without running any destructor:
/// no frame between here and Ruby may own memory, a lock or a descriptor.
/// What the work needs of that kind it borrows from outside.
pub(crate) fn protect(work: impl FnOnce() -> VALUE) -> Result<VALUE, Raised> {
    let mut panic = None;
    let result = magnus::rb_sys::protect(|| match catch_unwind(AssertUnwindSafe(work)) {
        Ok(value) => value,
        Err(payload) => {
            panic = Some(payload);
            Qnil as VALUE
        }
    });
    match (panic, result) {
        (Some(payload), _) => Err(Raised::Panic(panic_message(payload.as_ref()))),
        (None, Ok(value)) => Ok(value),
        (None, Err(error)) => Err(Raised::Ruby(error)),
    }
}

/// Runs the Rust part of a callback that Ruby calls; None when it panicked,
/// which the panic hook has reported on stderr by then.
pub(crate) fn callback<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic").to_owned()
}
