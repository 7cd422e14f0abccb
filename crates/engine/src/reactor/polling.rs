//! Polls, and handles the result.

use std::io;

use fastrack_sys::Events;

use super::{Finish, Reactor};

impl Reactor {
    /// Polls the connections, without waiting.
    pub fn poll(&mut self) -> io::Result<()> {
        self.table.poll()?;
        self.table.publish(self.control.counters());
        Ok(())
    }

    /// Polls the listeners and the queue, without waiting.
    pub(super) fn poll_listeners(&mut self) -> io::Result<()> {
        let (result, is_orphaned) = self.lead.poll(&self.control);
        if is_orphaned {
            self.note_orphaned();
        }
        result
    }

    /// Handles the events that have ended a wait.
    pub fn note_events(&mut self, events: &Events) {
        if self.lead.note_events(events, &self.control) {
            self.note_orphaned();
        }
    }

    /// The master is gone, and its other workers also end. So this worker ends like a whole server.
    #[cold]
    fn note_orphaned(&mut self) {
        self.lead.is_orphaned = true;
        self.control.drain();
        // The poller would report the end of the pipe for ever.
        if let Some(master) = self.lead.master.take() {
            let _ = self.lead.poller.remove(&master);
        }
        self.lead.finish = self.lead.finish.or(Some(Finish::Orphaned));
    }
}
