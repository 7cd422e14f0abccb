//! What a poller reports.

/// The most events of one wait.
pub const MOST: usize = 64;

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token that it was added with.
    pub token: u64,
    /// The peer has sent the end of its stream, or is gone. There may still be input.
    pub ended: bool,
}
