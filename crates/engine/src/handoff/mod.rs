//! Handing connections from one worker to another, so that no client waits for a busy worker while another is idle.
//!
//! All workers share a queue of connections, first come first served, and a page of memory that says who is idle.
//! The queue is a socket: what is in it when a worker dies stays there for the next one.

mod count;
mod member;
mod message;
mod page;
mod queue;

pub(crate) use member::Member;
pub use queue::SharedQueue;
