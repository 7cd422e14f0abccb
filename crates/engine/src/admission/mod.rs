//! Which thread drives a worker, and when it begins another request.
//!
//! - `baton`: the thread that leads, and the helper
//! - `app_threads`: threads sleep, lead and serve; `room`: how many; `streams`: responses that hold no seat
//! - `activity`, `gvl_usage`: how the requests in progress use the application's lock (Ruby's GVL)

mod activity;
mod app_threads;
mod baton;
mod gvl_usage;
mod room;
mod streams;

pub use activity::Activity;
pub(crate) use app_threads::{AppThreads, Turn};
pub(crate) use baton::{is_busy, Baton, Driving, Threads, MAIN};
pub(crate) use gvl_usage::GvlUsage;
pub(crate) use room::Room;
pub(crate) use streams::Orders;
use streams::Streams;
