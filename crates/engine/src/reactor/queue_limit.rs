//! Refuses requests that have waited too long. An overloaded server that answers all requests in their order works for clients that are
//! about to leave.

use fastrack_http::Error;
use fastrack_sys::monotonic_millis;

use super::Reactor;
use crate::conn::{queue_time, Connection};
use crate::scoreboard::Count;

impl Reactor {
    /// Answers a request that has waited longer than the limit with 503. Returns any other request.
    #[inline]
    pub fn refuse_if_late(&mut self, connection: Box<Connection>) -> Option<Box<Connection>> {
        if self.settings.max_queue_time == 0 {
            return Some(connection);
        }
        if !self.is_late(&connection) {
            self.logging.warn_of_shed(self.settings.max_queue_time);
            return Some(connection);
        }
        self.control.counters().add(Count::Overloaded, 1);
        self.logging.count_shed(self.settings.max_queue_time);
        self.refuse(connection, Error::Overload);
        None
    }

    fn is_late(&self, connection: &Connection) -> bool {
        let Some((head, bytes)) = connection.head() else { return false };
        let waited = queue_time(head, bytes, &connection.arrival, monotonic_millis());
        waited / 1000 > self.settings.max_queue_time
    }
}
