//! The time at which requests of new clients arrived. A new client may have waited in the backlog.

use std::os::fd::AsFd;

use crate::conn::Connection;

/// How long new clients have waited in the backlog.
#[derive(Debug, Default)]
pub(super) struct BacklogTime {
    /// Whether this worker has answered no request since it last waited for clients.
    pub is_idle: bool,
    /// When the system was last asked, in milliseconds of the monotonic clock.
    asked: u64,
    /// The answer, in milliseconds.
    waited: u64,
}

impl BacklogTime {
    /// The time at which the request of a client arrived that has just been accepted. If this worker was waiting for clients, the time is
    /// now. Otherwise the client may have waited in the backlog. Neighbours in the backlog have waited as long, so the system is asked once
    /// for each tick of the clock.
    pub fn arrival(&mut self, connection: &Connection, now: u64) -> u64 {
        if self.is_idle {
            return now;
        }
        if now != self.asked {
            let waited = connection.peer.and_then(|_| fastrack_sys::millis_since_data(connection.as_fd()));
            self.asked = now;
            self.waited = waited.unwrap_or(0);
        }
        now.saturating_sub(self.waited).max(1)
    }
}
