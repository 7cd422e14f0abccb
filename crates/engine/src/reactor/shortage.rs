//! What runs out: this process's descriptors, or something of the whole system.

use std::io;

use fastrack_sys::{epoch_seconds, monotonic_millis};

use super::Reactor;
use crate::conn::{Connection, Phase, Step};
use crate::settings::SHORTAGE_PAUSE;

/// How long nobody is accepted when the whole system lacks something (ENFILE, ENOMEM, ENOBUFS), in milliseconds: as long as
/// in nginx. A connection that is closed would make no room, because other processes take that.
const SYSTEM_PAUSE: u64 = 500;

/// Connections that can be closed, by their phases, in this order: those that have had their last response, those without a
/// request, and those with a part of a head. The last are told by 408: clients that send it byte by byte would keep everybody out. A
/// response that is being sent, and a body that is being received, is never cut.
const ROOM: [&[Phase]; 3] = [&[Phase::Draining], &[Phase::Idle, Phase::Fresh], &[Phase::Head]];

impl Reactor {
    /// Closes the connection with the earliest deadline of those that can make room; false if there is none.
    pub fn make_room(&mut self) -> bool {
        let key = ROOM.iter().find_map(|phases| self.table.first_in(phases));
        key.into_iter().for_each(|key| self.time_out(key));
        key.is_some()
    }

    /// A client could not be accepted. Makes room for it if that helps, else begins a pause.
    pub fn note_failed_accept(&mut self, error: &io::Error) {
        self.warn_of_shortage("accept", error);
        let is_own = fastrack_sys::is_out_of_fds(error);
        if !(is_own && self.make_room()) {
            self.pause_accepting(if is_own { SHORTAGE_PAUSE } else { SYSTEM_PAUSE });
        }
    }

    /// The same while the application has the other thread. That one makes room when it is back.
    pub(super) fn note_failed_accept_for_others(&mut self, error: &io::Error) {
        if fastrack_sys::is_lost_fd(error) {
            self.lost_descriptors = true;
        } else if !fastrack_sys::is_out_of_fds(error) {
            self.warn_of_shortage("accept", error);
            self.pause_accepting(SYSTEM_PAUSE);
        }
    }

    /// Begins a pause in which nobody is accepted, because the listeners could not be watched.
    pub fn note_unwatched_listeners(&mut self, error: &io::Error) {
        self.warn_of_shortage("wait for new clients", error);
        self.pause_accepting(SYSTEM_PAUSE);
    }

    fn pause_accepting(&mut self, millis: u64) {
        self.accept_pause = monotonic_millis() + millis;
    }

    /// Whether clients are to be accepted: there is no pause, and another connection can be kept.
    pub fn accepts_clients(&mut self) -> bool {
        if self.accept_pause > 0 && self.accept_pause <= monotonic_millis() {
            self.accept_pause = 0;
        }
        let is_full = self.table.len() >= self.capacity;
        if is_full && self.accept_pause == 0 && !ROOM.iter().any(|phases| self.table.has_any_in(phases)) {
            self.pause_accepting(SHORTAGE_PAUSE);
        }
        self.accept_pause == 0
    }

    /// A connection stays in the shared queue, for another worker or a later try.
    pub(super) fn leave_queued(&mut self, error: io::Error) -> Option<(Box<Connection>, Step)> {
        self.queue_failure = Some(error);
        self.has_left_queued = true;
        None
    }

    /// Whether a connection had to stay in the shared queue since the last call of this, which is logged.
    pub fn take_left_queued(&mut self) -> bool {
        let has_left = std::mem::take(&mut self.has_left_queued);
        if let Some(error) = self.queue_failure.take_if(|_| has_left) {
            self.warn_of_shortage("take a connection over", &error);
            self.queue_failure = Some(error);
        }
        has_left
    }

    /// Logs a call that has failed, once per second: it may go on to.
    pub fn warn_of_shortage(&mut self, what: &str, error: &io::Error) {
        let now = epoch_seconds();
        if self.last_failure != now {
            self.last_failure = now;
            self.warn(format!("cannot {what}: {error}"));
        }
    }
}
