//! The helper: the thread that drives a worker's connections while the application's threads have requests.
//!
//! The helper never calls the application. It sleeps while the leader waits for clients, and [looks](tick) every few milliseconds while
//! requests follow one another. It takes over only when a request has lasted since the last look, until that request is done.

mod slow;
mod streams;
mod thread;
mod tick;

use crate::shared::timer;

pub(crate) use thread::Helper;
