//! The Ruby classes that a master and its workers use.

mod app_user;
mod child_process;
mod engine;
mod engine_arguments;
mod monitor;
mod profiler;
mod request_bound;
mod scoreboard;
mod shared_queue;
mod stack_capture;
mod thread_dump;

use std::ffi::c_int;
use std::os::fd::IntoRawFd;

use magnus::{function, prelude::*, Error, RModule, Ruby};

use crate::ruby::system_error;

pub(crate) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    child_process::init(module)?;
    module.define_singleton_method("adopts_orphans?", function!(fastrack_sys::adopts_orphans, 0))?;
    module.define_singleton_method("adopt_orphans", function!(fastrack_sys::adopt_orphans, 0))?;
    module.define_singleton_method("trim_heap", function!(fastrack_sys::trim_heap, 0))?;
    module.define_singleton_method("fill_heap_holes", function!(fastrack_sys::fill_heap_holes, 0))?;
    module.define_singleton_method("release_stack", function!(fastrack_sys::release_stack, 0))?;
    module.define_singleton_method("share_malloc_arena", function!(fastrack_sys::share_malloc_arena, 0))?;
    module.define_singleton_method("replace_file", function!(replace_file, 2))?;
    module.define_singleton_method("sealed_copy", function!(sealed_copy, 2))?;
    app_user::init(ruby, module)?;
    shared_queue::init(ruby, module)?;
    scoreboard::init(ruby, module)?;
    monitor::init(ruby, module)?;
    request_bound::init(ruby, module)?;
    engine::init(ruby, module)
}

/// `replace_file(fd, with)`: makes `fd` a copy of the descriptor `with`. IO#reopen would raise in threads that write to the
/// file.
fn replace_file(ruby: &Ruby, fd: c_int, with: c_int) -> Result<(), Error> {
    // SAFETY: Ruby's IO objects keep both descriptors open during the call, which holds the GVL. Both are log files.
    let replaced =
        unsafe { fastrack_sys::borrow_fd(with).and_then(|with| fastrack_sys::replace_fd(fd, with)) };
    replaced.map_err(|error| system_error(ruby, "a log file", &error))
}

/// `sealed_copy(fds, most)`: the descriptor of a copy of these files, one after the other, which nobody can change, and the number of bytes of
/// each. A file that is longer than `most` bytes has a byte more. Raises SystemCallError.
fn sealed_copy(ruby: &Ruby, fds: Vec<c_int>, most: u64) -> Result<(c_int, Vec<u64>), Error> {
    // SAFETY: Ruby's IO objects keep the descriptors open during the call, which holds the GVL.
    let files =
        fds.iter().map(|&fd| unsafe { fastrack_sys::borrow_fd(fd) }).collect::<std::io::Result<Vec<_>>>();
    let copied = files.and_then(|files| fastrack_sys::sealed_copy(&files, most));
    copied
        .map(|(copy, sizes)| (copy.into_raw_fd(), sizes))
        .map_err(|error| system_error(ruby, "a copy in memory", &error))
}
