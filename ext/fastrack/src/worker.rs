//! The Ruby classes that a master and its workers use.

mod app_user;
mod child_process;
mod engine;
mod engine_arguments;
mod monitor;
mod request_bound;
mod scoreboard;
mod shared_queue;
mod stack_capture;
mod thread_dump;

use std::ffi::c_int;

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
