//! The scoreboard: memory that the master shares with its workers. Each worker writes there what it does and counts; the master and its
//! monitor read it.

mod counters;
mod layout;
mod master_side;
mod words;
mod worker_side;

#[cfg(test)]
mod tests;

pub use counters::{Connections, Counts, GcTime, Histogram, BUCKETS, FINE_BUCKETS};
pub(crate) use counters::{Count, Counters};
pub use layout::{Cause, State, MAX_STREAMS, MAX_THREADS, MAX_WORKERS};
pub(crate) use layout::{ThreadSlot, MAX_PROCESSES, NEVER};
pub use master_side::{Entry, Memory, QueueLength, Scoreboard, WorkerId};
pub use worker_side::Slot;
