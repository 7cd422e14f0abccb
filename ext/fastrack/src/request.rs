//! The request that the application is answering.

pub(crate) mod callbacks;
pub(crate) mod in_flight;
pub(crate) mod socket;
