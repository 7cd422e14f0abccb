//! The app's response, and how it is sent.

pub(crate) mod body;
pub(crate) mod each;
pub(crate) mod file;
pub(crate) mod headers;
pub(crate) mod sender;
pub(crate) mod server_headers;
pub(crate) mod stream;
pub(crate) mod triple;
