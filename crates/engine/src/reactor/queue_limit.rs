//! Turns requests away that have waited for too long. A server that cannot keep up serves them in the order in which they came, so
//! each waits until its client is about to leave, and the time that the application spends on it is lost.

use fastrack_http::Error;
use fastrack_sys::{epoch_seconds, monotonic_millis};

use super::Reactor;
use crate::conn::{queue_time, Connection};
use crate::scoreboard::Count;

impl Reactor {
    /// Answers a request with 503 that has waited for longer than the limit, and returns any other.
    #[inline]
    pub fn refuse_if_late(&mut self, connection: Box<Connection>) -> Option<Box<Connection>> {
        if self.settings.max_queue_time == 0 {
            return Some(connection);
        }
        if !self.is_late(&connection) {
            self.tell_of_shed();
            return Some(connection);
        }
        self.control.counters().add(Count::Overloaded, 1);
        self.shed += 1;
        self.tell_of_shed();
        self.refuse(connection, Error::Overload);
        None
    }

    /// Logs how many were turned away since the last such line, once per second.
    fn tell_of_shed(&mut self) {
        if self.shed == 0 || self.last_refusal == epoch_seconds() {
            return;
        }
        let (requests, has) = if self.shed == 1 { ("request", "has") } else { ("requests", "have") };
        let limit = self.settings.max_queue_time as f64 / 1000.0;
        self.warn_of_refusal(format!(
            "{} {requests} {has} waited for more than {limit} s, and got 503: more workers, or fewer requests",
            self.shed
        ));
        self.shed = 0;
    }

    fn is_late(&self, connection: &Connection) -> bool {
        let Some((head, bytes)) = connection.head() else { return false };
        let waited = queue_time(head, bytes, connection.arrived, monotonic_millis());
        waited / 1000 > self.settings.max_queue_time
    }
}
