//! The Rack application, as the engine calls it.

pub(crate) mod early_hints;
pub(crate) mod hijack;
pub(crate) mod rack_app;
