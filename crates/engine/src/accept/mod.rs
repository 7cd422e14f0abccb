//! Listening sockets, and which of them to try next.

mod backlog;
mod hint;
mod listener;
mod listeners;
mod token;

pub(crate) use backlog::Backlog;
pub use listener::Listener;
pub(crate) use listeners::{Client, Listeners};
pub(crate) use token::Token;
