//! Turns requests away that have waited for too long. A server that cannot keep up serves them in the order in which they came, so
//! each waits until its client is about to leave, and the time that the application spends on it is lost.

use fastrack_http::Error;
use fastrack_sys::monotonic_millis;

use super::Reactor;
use crate::conn::{queue_time, Connection};
use crate::request_state::Count;

impl Reactor {
    /// Answers a request with 503 that has waited for longer than the limit, and returns any other.
    #[inline]
    pub fn refuse_if_late(&mut self, connection: Box<Connection>) -> Option<Box<Connection>> {
        if self.settings.max_queue_time == 0 || !self.is_late(&connection) {
            return Some(connection);
        }
        self.control.counters().add(Count::Overloaded, 1);
        self.refuse(connection, Error::Overload);
        None
    }

    fn is_late(&self, connection: &Connection) -> bool {
        let Some((head, bytes)) = connection.head() else { return false };
        let waited = queue_time(head, bytes, connection.arrived, monotonic_millis());
        waited / 1000 > self.settings.max_queue_time
    }
}
