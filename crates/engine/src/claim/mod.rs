//! The claim on a request in progress: its time limit, and whether the application or the helper answers it.

mod active_request;
mod settings;

use std::fmt::Debug;
use std::os::fd::BorrowedFd;

pub use active_request::StreamEnd;
pub(crate) use active_request::{ActiveRequest, Claim, Seats};
pub use settings::{RequestSettings, ThreadDumper};

/// A response's buffer that a thread of the application has lent to the helper.
pub(crate) trait FlushLent: Debug + Send + Sync {
    /// Sends the bytes that the socket takes at once. Returns whether there was anything to send.
    fn flush(&self, client: BorrowedFd<'_>) -> bool;
}
