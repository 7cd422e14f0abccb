//! Fastrack::ChildProcess: the end of a process that the master has forked, and signals to it.

use std::ffi::c_int;
use std::os::fd::IntoRawFd;
use std::time::Duration;

use magnus::{function, prelude::*, Error, RModule, Ruby};
use rb_sys::*;

use fastrack_sys as sys;

use crate::ruby::warn;

/// The exit status of a failed process.
const FAILURE: c_int = 1;

pub(super) fn init(module: RModule) -> Result<(), Error> {
    let module = module.define_module("ChildProcess")?;
    module.define_module_function("run", function!(run, 0))?;
    module.define_module_function("end_within", function!(end_within, 3))?;
    module.define_module_function("own?", function!(sys::is_child, 1))?;
    module.define_module_function("hold", function!(hold, 1))?;
    module.define_module_function("signal", function!(signal, 2))
}

/// `hold(pid)`: a descriptor of a child of this process (pidfd_open(2)). nil for another process, and where the kernel has no such
/// descriptors.
fn hold(pid: i32) -> Option<c_int> {
    sys::hold_child(pid).map(IntoRawFd::into_raw_fd)
}

/// `signal(descriptor, number)`: sends a signal to a child by a descriptor of `hold`. Returns 0, or the number of the error (errno(3)).
fn signal(descriptor: c_int, number: c_int) -> c_int {
    // SAFETY: Ruby's IO object keeps the descriptor open during the call, which holds the GVL.
    let sent = unsafe { sys::borrow_fd(descriptor) }.and_then(|child| sys::signal_child(child, number));
    sent.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| 0)
}

/// `run { status }`: runs the block, then ends this process with the returned status. As in Ruby's fork, at_exit hooks run. If
/// the block ends in another way (raise, throw, end of the thread), no hooks run.
///
/// Never returns and never raises: the frames below are the master's, and would clean up the master's resources.
fn run(ruby: &Ruby) -> Result<(), Error> {
    match ruby.yield_values::<_, c_int>(()) {
        Ok(status) => end_in_order(status),
        Err(error) => warn(&format!("a child of the master failed: {error}")),
    }
    sys::exit_at_once(FAILURE)
}

fn end_in_order(status: c_int) -> ! {
    extern "C" fn exit(status: VALUE) -> VALUE {
        // SAFETY: under rb_protect, and owning nothing.
        unsafe { rb_exit(status as c_int) }
    }
    let mut state = 0;
    // SAFETY: rb_exit raises SystemExit, which rb_protect leaves pending for ruby_stop. ruby_stop does not return: no frame
    // below is used again.
    unsafe {
        rb_protect(Some(exit), status as VALUE, &raw mut state);
        ruby_stop(state)
    }
}

/// `end_within(seconds, status, line)`: if this process still runs after the time, writes `line` to its log and ends it with
/// `status`, even if Ruby hangs. A later call replaces an earlier call.
fn end_within(seconds: f64, status: c_int, line: String) {
    let limit = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    // If no thread can be started, only the master limits the time.
    let _ = sys::end_within(limit, status, line);
}
