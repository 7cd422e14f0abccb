//! Watching requests.

pub(crate) mod active_request;
pub(crate) mod scoreboard;
pub(crate) mod watchdog;
