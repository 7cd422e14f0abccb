//! Handing connections to other workers.

pub(crate) mod message;
pub(crate) mod queue;
