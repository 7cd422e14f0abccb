//! Calling Ruby from Rust: protect, the GVL, strings, errors.

mod errors;
mod gc_time;
mod gvl;
mod interned;
mod protect;
mod raised_flag;
mod scoped_ref;
mod strings;
mod thread_events;
mod value;

pub(crate) use errors::{
    exception, io_error, is_app_error, is_fatal, is_stream_end, is_worker_retired, log_line, raise,
    raise_errno, report, system_error, warn,
};
pub(crate) use gc_time::GcClock;
pub(crate) use gvl::without_gvl;
pub(crate) use interned::interned;
pub(crate) use protect::{callback, protect, Raised};
pub(crate) use scoped_ref::ScopedRef;
pub(crate) use strings::{
    all_strings, as_string, as_string_or_strings, bytes, bytes_or, format_into, string, total_length,
};
pub(crate) use thread_events::{forget_activity, report_activity};
pub(crate) use value::{call, call_if_defined, is_array, is_string, NIL, UNDEF};

/// To be called when the extension is loaded, after the definition of the classes.
pub(crate) fn init(ruby: &magnus::Ruby) -> Result<(), magnus::Error> {
    raised_flag::init(ruby)?;
    interned::init(ruby)
}
