//! Listening sockets, and which of them is tried next.

mod backlog;
mod hint;
mod listener;
mod listeners;
mod token;
mod turns;

pub(crate) use backlog::Backlog;
pub use listener::Listener;
pub(crate) use listeners::Listeners;
pub(crate) use token::Token;
pub(crate) use turns::Client;
