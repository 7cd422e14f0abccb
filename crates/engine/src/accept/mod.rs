//! Listening sockets.

pub(crate) mod hint;
pub(crate) mod listener;
pub(crate) mod listeners;
