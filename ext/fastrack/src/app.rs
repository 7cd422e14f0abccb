//! The Rack app that the engine calls.

mod early_hints;
mod hijack;
mod interim;
mod rack_app;

pub(crate) use early_hints::send_early_hints;
pub(crate) use hijack::hijack;
pub(crate) use rack_app::{AppSettings, RackApp};
