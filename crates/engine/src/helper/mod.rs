//! The thread that drives a worker's connections while the application has the other one.
//!
//! It never calls the application. It sleeps while the application's thread waits for clients itself, and while
//! each request is done before the [timer] fires. If requests follow one another it looks now and then whether one
//! has lasted since the last look. Only then it takes over, until that request is done.

mod app_threads;
mod ending;
mod listening;
mod shared;
mod thread;
mod tick;
mod timer;

#[cfg(test)]
pub(crate) use shared::tests;

pub(crate) use app_threads::{AppThreads, Turn};
pub(crate) use ending::Ending;
pub use ending::TIMEOUT_STATUS;
pub(crate) use shared::Shared;
pub(crate) use thread::Helper;
pub(crate) use timer::HelperTimer;
