//! Room for connections: closes some when descriptors run out, and accepts nobody when that does not help.

use std::io;

use fastrack_sys::monotonic_millis;

use super::Reactor;
use crate::conn::Phase;
use crate::settings::SHORTAGE_PAUSE;

/// Length of the pause in which nobody is accepted because the whole system lacks something (ENFILE, ENOMEM, ENOBUFS), in milliseconds: as
/// long as in nginx. Closing a connection would make no room, because other processes would take it.
const SYSTEM_PAUSE: u64 = 500;

/// Phases whose connections can be closed, in this order: after the last response, without a request, within a head. Clients within a head
/// get a 408: by sending heads byte by byte they would keep everybody out. A body that is being received is never cut. A response is cut if
/// none of these is there, and its client has taken nothing for [`STALLED_TIME`].
const ROOM_PHASES: [&[Phase]; 3] = [&[Phase::Draining], &[Phase::Idle, Phase::Fresh], &[Phase::Head]];

/// Time without progress after which a response is cut to make room, in milliseconds. Each takes up to two descriptors, for up to
/// `WriteTimeout`.
const STALLED_TIME: u64 = 2_000;

/// The most responses that may turn out to have made progress in one search for a stalled one.
const MAX_TRIES: usize = 16;

impl Reactor {
    /// Closes the connection with the earliest deadline in these phases, or else the response that has stalled longest. Returns false if
    /// there is none.
    pub fn make_room(&mut self) -> bool {
        let key = ROOM_PHASES.iter().find_map(|phases| self.table.first_in(phases));
        let key = key.or_else(|| self.find_stalled());
        key.into_iter().for_each(|key| self.time_out(key));
        key.is_some()
    }

    /// The response that has stalled longest, and makes no progress now either.
    fn find_stalled(&mut self) -> Option<usize> {
        for _ in 0..MAX_TRIES {
            let key = self.first_stalled()?;
            if !self.extend(key) {
                return Some(key);
            }
        }
        None
    }

    /// The response whose client was last seen to take something the longest ago, if that is [`STALLED_TIME`].
    fn first_stalled(&mut self) -> Option<usize> {
        let latest = (monotonic_millis() + self.settings.write_timeout).saturating_sub(STALLED_TIME);
        self.table.first_in(&[Phase::Sending]).filter(|key| self.table.is_due_by(*key, latest))
    }

    /// A client could not be accepted. Makes room for the client if that helps. Otherwise begins a pause.
    pub fn note_failed_accept(&mut self, error: &io::Error) {
        self.logging.warn_of_failure("accept", error);
        let is_own = fastrack_sys::is_out_of_fds(error);
        if !(is_own && self.make_room()) {
            self.shortage.pause(if is_own { SHORTAGE_PAUSE } else { SYSTEM_PAUSE });
        }
    }

    /// The same for the helper, while the application has the other thread. That thread makes room when it returns.
    pub(super) fn note_failed_accept_for_others(&mut self, error: &io::Error) {
        if fastrack_sys::is_lost_fd(error) {
            self.shortage.lost_descriptors = true;
        } else if !fastrack_sys::is_out_of_fds(error) {
            self.logging.warn_of_failure("accept", error);
            self.shortage.pause(SYSTEM_PAUSE);
        }
    }

    /// Begins a pause in which nobody is accepted, because the listeners could not be watched.
    pub fn note_unwatched_listeners(&mut self, error: &io::Error) {
        self.logging.warn_of_failure("wait for new clients", error);
        self.shortage.pause(SYSTEM_PAUSE);
    }

    /// Whether clients are to be accepted: there is no pause, and another connection can be kept.
    pub fn accepts_clients(&mut self) -> bool {
        self.shortage.end_pause_if_over();
        let is_full = !self.shortage.has_room(self.table.len());
        if is_full
            && !self.shortage.is_paused()
            && !ROOM_PHASES.iter().any(|phases| self.table.has_any_in(phases))
            && self.first_stalled().is_none()
        {
            self.shortage.pause(SHORTAGE_PAUSE);
        }
        !self.shortage.is_paused()
    }

    /// Whether a connection had to stay in the shared queue since the last call. Logs the reason.
    pub fn take_untaken(&mut self) -> bool {
        let (has_untaken, error) = self.shortage.take_untaken();
        error.into_iter().for_each(|error| self.logging.warn_of_failure("take a connection over", error));
        has_untaken
    }

    /// Notes whether a call failed because the application has closed a descriptor of the server's. Logs any other failure.
    pub(super) fn note_failure(&mut self, what: &str, error: &io::Error) {
        if fastrack_sys::is_lost_fd(error) {
            self.shortage.lost_descriptors = true;
        } else {
            self.logging.warn_of_failure(what, error);
        }
    }

    pub fn set_lost_descriptors(&mut self) {
        self.shortage.lost_descriptors = true;
    }

    /// Whether memory has run out since the last call. Frees unused buffers then.
    pub fn take_memory_shortage(&mut self) -> bool {
        let lacks_memory = std::mem::take(&mut self.shortage.lacks_memory);
        if lacks_memory {
            self.read_bufs.release();
        }
        lacks_memory
    }
}
