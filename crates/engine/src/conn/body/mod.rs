//! Request bodies.

pub(crate) mod buffered;
pub(crate) mod reader;
pub(crate) mod stream;
