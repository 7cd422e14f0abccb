//! Listening sockets, and which of them to try next.

mod hint;
mod listener;
mod listeners;

pub use listener::Listener;
pub(crate) use listeners::{Client, Listeners};
