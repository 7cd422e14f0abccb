//! The request in progress.

pub(crate) mod app_threads;
pub(crate) mod callbacks;
pub(crate) mod in_flight;
pub(crate) mod socket;
