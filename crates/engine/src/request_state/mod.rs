//! The request that a worker is answering: its time limit, who may answer it, and where the master reads about it.

mod active_request;
mod activity;
mod app_lock;
mod cause;
mod counters;
mod counts;
mod last_response;
mod scoreboard;
mod settings;
mod totals;
mod unsent;

pub(crate) use active_request::{end_overdue_process, ActiveRequest, Claim, ENDING_TIME};
pub use activity::Activity;
pub(crate) use app_lock::AppLock;
#[cfg(test)]
pub(crate) use app_lock::ENOUGH;
pub use cause::Cause;
pub(crate) use counters::{Count, Counters};
pub use counts::{Connections, Counts, GcTime, Histogram, BUCKETS};
pub(crate) use last_response::{drain, LastResponse};
pub use scoreboard::{Entry, QueueLength, Scoreboard, Slot, State, WorkerId, MAX_THREADS};
pub use settings::{RequestSettings, ThreadDumper};
pub(crate) use unsent::SendUnsent;
