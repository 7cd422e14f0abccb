//! Places for clients: how many there may be at once.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::stats;
use crate::work::Work;

/// The place of a client who is connected. It counts for `max_connections` and in the status as long as the client has a connection or a
/// tunnel: hyper's part of a connection ends where its tunnel begins.
#[derive(Debug)]
pub struct Place {
    _permit: OwnedSemaphorePermit,
    /// The client's requests, streams and tunnels count there.
    pub work: Arc<Work>,
}

impl Place {
    /// Counts a client who has just connected.
    pub fn new(permit: OwnedSemaphorePermit, work: Arc<Work>) -> Self {
        stats::CONNECTIONS.fetch_add(1, Relaxed);
        stats::OPEN.fetch_add(1, Relaxed);
        Place { _permit: permit, work }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        stats::OPEN.fetch_sub(1, Relaxed);
    }
}
