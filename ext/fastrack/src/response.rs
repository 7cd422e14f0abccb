//! The application's response, on its way to the client.

pub(crate) mod file;
pub(crate) mod headers;
pub(crate) mod sender;
