//! The request in progress.

mod app_threads;
mod callbacks;
mod in_flight;
mod socket;

pub(crate) use app_threads::no_request;
pub(crate) use callbacks::Callbacks;
pub(crate) use in_flight::{AppThread, BodyEnd, CallStage, InFlight};
pub(crate) use socket::{read_ahead, socket_object};
