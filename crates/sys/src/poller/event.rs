//! The events of a poller.

/// The highest number of events of one wait.
pub const MAX_EVENTS: usize = 64;

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token of the descriptor in the set.
    pub token: u64,
    /// The peer is gone, or has sent the end of its stream. Input may still be unread.
    pub ended: bool,
}
