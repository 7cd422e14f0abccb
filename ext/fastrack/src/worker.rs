//! The Ruby classes that a master and its workers use.

mod child_process;
mod engine;
mod monitor;
mod scoreboard;
mod settings;
mod shared_queue;
mod thread_dump;

use magnus::{function, prelude::*, Error, RModule, Ruby};

pub(crate) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    child_process::init(module)?;
    module.define_singleton_method("adopts_orphans?", function!(fastrack_sys::adopts_orphans, 0))?;
    shared_queue::init(ruby, module)?;
    scoreboard::init(ruby, module)?;
    monitor::init(ruby, module)?;
    engine::init(ruby, module)
}
