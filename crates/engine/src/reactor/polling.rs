//! Polls, and handles the result.

use std::io;

use fastrack_sys::Events;

use super::Reactor;

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

    /// The master is gone. The helper limits the time.
    #[cold]
    fn note_orphaned(&mut self) {
        self.control.orphan();
        // The poller would report the end of the pipe for ever. The pipe stays open, because the helper's poller also has it.
        self.lead.master.iter().for_each(|master| drop(self.lead.poller.remove(master)));
    }
}
