//! Parked connections: those whose request is incomplete and for which no
//! thread is waiting. The poller reports their bytes, a deadline their silence.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;

use slab::Slab;

use fastrack_sys::Poller;

use crate::connection::Connection;
use crate::control::Control;

#[derive(Debug)]
struct Entry {
    connection: Connection,
    deadline: u64,
}

/// The parked connections, by a key that serves as the poller's token.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    entries: Slab<Entry>,
    /// Deadlines in milliseconds, with the key; the first one is due first.
    deadlines: BTreeSet<(u64, usize)>,
}

impl Parked {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Parks a connection until it is readable or `deadline` has passed.
    pub fn park(
        &mut self,
        connection: Connection,
        deadline: u64,
        poller: &Poller,
        control: &Control,
    ) -> io::Result<()> {
        let entry = self.entries.vacant_entry();
        let key = entry.key();
        poller.add(connection.as_fd(), key as u64)?;
        control.hold(connection.raw_fd());
        self.deadlines.insert((deadline, key));
        entry.insert(Entry { connection, deadline });
        Ok(())
    }

    /// Takes a connection back, with its deadline; None for a key that is not (any more) in use.
    pub fn take(&mut self, key: usize, poller: &Poller, control: &Control) -> Option<(Connection, u64)> {
        let Entry { connection, deadline } = self.entries.try_remove(key)?;
        self.deadlines.remove(&(deadline, key));
        // It fails only if the descriptor is not there, which is what is wanted.
        let _ = poller.remove(connection.as_fd());
        control.release(connection.raw_fd());
        Some((connection, deadline))
    }

    /// When the next connection is due, in milliseconds.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The key of the connection that is due first, if that is not after `latest`.
    pub fn due(&self, latest: u64) -> Option<usize> {
        self.deadlines.first().filter(|(deadline, _)| *deadline <= latest).map(|(_, key)| *key)
    }

    /// Brings deadlines forward to what `latest` says of each connection.
    pub fn hasten(&mut self, latest: impl Fn(&Connection) -> u64) {
        self.deadlines.clear();
        for (key, entry) in &mut self.entries {
            entry.deadline = entry.deadline.min(latest(&entry.connection));
            self.deadlines.insert((entry.deadline, key));
        }
    }
}
