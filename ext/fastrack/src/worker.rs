//! The Ruby classes that a master and its workers use.

pub(crate) mod engine;
pub(crate) mod scoreboard;
pub(crate) mod settings;
pub(crate) mod shared_queue;
pub(crate) mod thread_dump;
