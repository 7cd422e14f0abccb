//! Handing connections from one worker to another, so that no client waits for a busy worker while another is idle.
//!
//! All workers share a queue of connections, first come first served, and a page of memory that says who is idle.
//! The queue is a socket: what is in it when a worker dies stays there for the next one.

mod count;
mod header;
mod message;
mod queue;
mod queue_handle;
mod shared_flags;

pub use queue::SharedQueue;
pub(crate) use queue_handle::QueueHandle;
