//! What becomes of a worker's other connections when one request has taken too long, and the process ends for it.

use crate::conn::Phase;
use crate::handoff::queue::Member;
use crate::reactor::Reactor;

impl Reactor {
    /// Connections that can go on elsewhere go into the queue that all workers share: those that are idle, those whose
    /// request is complete, and those that have sent part of a head. This worker's successor takes them if nobody else
    /// does. The others end with the process.
    pub fn evacuate(&mut self) {
        self.attend(&|| false);
        self.member.iter().for_each(|member| member.set_serving(false));
        let heirs = !self.is_stopping() || self.member.as_ref().is_some_and(Member::is_another_serving);
        while let Some(connection) = self.ready.pop_front() {
            let left = if heirs { self.give(connection) } else { Some(connection) };
            left.into_iter().for_each(|connection| self.discard(connection));
        }
        for key in self.connections.parked() {
            let Some((connection, _)) = self.connections.take(key) else { continue };
            match connection.phase() {
                Phase::Fresh | Phase::Idle | Phase::Head if heirs => {
                    self.give(connection).into_iter().for_each(|connection| self.discard(connection));
                }
                // What it has got of its response must not look like all of it.
                Phase::Sending => self.reset(connection),
                _ => self.discard(connection),
            }
        }
    }
}
