//! The helper: the thread that drives a worker's connections while the application's threads have requests.
//!
//! It never calls the application. It sleeps while the leader waits for clients, and [looks](tick) every few milliseconds while
//! requests follow one another. It takes over only when one has lasted since the last look, until that request is done.

mod shared;
mod thread;
mod tick;
mod timer;

#[cfg(test)]
pub(crate) use shared::tests;

pub(crate) use shared::Shared;
pub(crate) use thread::Helper;
pub(crate) use timer::HelperTimer;
