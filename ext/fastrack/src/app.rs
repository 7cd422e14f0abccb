//! The Rack application, as the engine calls it.

pub(crate) mod rack_app;
