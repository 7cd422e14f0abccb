//! The request that a worker is answering: its time limit, who may answer it, and where the master reads about it.

mod active_request;
mod activity;
mod app_lock;
mod board;
mod cause;
mod counters;
mod counts;
mod last_response;
mod scoreboard;
mod settings;
mod slot;
mod totals;
mod unsent;
mod word;

pub(crate) use active_request::{ActiveRequest, Claim};
pub use activity::Activity;
pub(crate) use app_lock::AppLock;
#[cfg(test)]
pub(crate) use app_lock::ENOUGH;
pub(crate) use board::MAX_PROCESSES;
pub use board::{State, MAX_THREADS, MAX_WORKERS};
pub use cause::Cause;
pub(crate) use counters::Counters;
pub(crate) use counts::Count;
pub use counts::{Connections, Counts, GcTime, Histogram, BUCKETS};
pub(crate) use last_response::answer_overdue;
pub use scoreboard::{Entry, Memory, QueueLength, Scoreboard, WorkerId};
pub use settings::{RequestSettings, ThreadDumper};
pub use slot::Slot;
pub(crate) use unsent::SendUnsent;
