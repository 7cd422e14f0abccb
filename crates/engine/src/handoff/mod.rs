//! Hands connections from one worker to another, so that no client waits for a busy worker while another is idle.
//!
//! All workers share a queue of connections, first come first served, and a page of memory with their idle flags. The
//! queue is a socket: connections in the queue survive the death of a worker.

mod count;
mod header;
mod message;
mod queue;
mod queue_handle;
mod shared_flags;

pub use queue::SharedQueue;
pub(crate) use queue_handle::QueueHandle;
