//! The helper: the thread that drives a worker's connections while the application's threads have requests.
//!
//! The helper never calls the application. It sleeps while an application's thread waits for clients, and while each request is done
//! before the [timer] fires. If requests follow one another, the helper looks now and then whether one has lasted since the last look. If
//! so, the helper drives until that request is done.

mod listening;
mod shared;
mod thread;
mod tick;
mod timer;

#[cfg(test)]
pub(crate) use shared::tests;

pub(crate) use shared::Shared;
pub(crate) use thread::Helper;
pub(crate) use timer::HelperTimer;
