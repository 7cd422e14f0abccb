//! What the helper sends of a response while the application goes on with it.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;

/// What has been passed of a response, and the client has not taken.
pub(crate) trait SendUnsent: Debug + Send + Sync {
    /// Sends what the socket takes at once. Whether there was anything to send.
    fn send_unsent(&self, client: BorrowedFd<'_>) -> bool;
}
