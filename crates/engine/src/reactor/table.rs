//! The connections that are kept, and their deadlines.
//!
//! Each has a place, whose key is its token in the poller. It keeps the place from its first wait to its end, also while it
//! has been taken out to be worked on.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;

use slab::Slab;

use fastrack_sys::{Events, Poller};

use crate::conn::{Connection, Phase};
use crate::control::Control;

/// Something has happened on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IoEvent {
    pub key: usize,
    /// The client has shut down its sending side, or is gone.
    pub ended: bool,
}

#[derive(Debug, Default)]
struct Place {
    /// None while it is taken out.
    connection: Option<Box<Connection>>,
    /// In milliseconds of the monotonic clock.
    deadline: u64,
    /// Its entry in `deadlines`, which may be earlier.
    entry: Option<u64>,
    /// What happened while the connection was taken out.
    missed: Option<IoEvent>,
    /// An event is waiting to be handled, and whether it says that the client has ended.
    queued: bool,
    ended: bool,
    /// The poller reports when the socket can be written to.
    watches_output: bool,
}

#[derive(Debug)]
pub(crate) struct Table {
    places: Slab<Place>,
    /// Deadlines with their keys, earliest first. A deadline that is put off stays here as it was until then, so that a
    /// connection in use costs nothing.
    deadlines: BTreeSet<(u64, usize)>,
    poller: Poller,
}

impl Table {
    pub fn new() -> io::Result<Self> {
        Ok(Table { places: Slab::new(), deadlines: BTreeSet::new(), poller: Poller::new()? })
    }

    pub fn poller(&self) -> &Poller {
        &self.poller
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Asks for events without waiting.
    pub(super) fn poll(&self, events: &mut Events) -> io::Result<()> {
        self.poller.wait(events, Some(0))
    }

    /// Keeps a connection until an event or its deadline. Returns an event that has come already. Returns the connection if
    /// the kernel cannot watch it (epoll_ctl(2), ENOSPC and ENOMEM).
    pub(super) fn park(
        &mut self,
        mut connection: Box<Connection>,
        deadline: u64,
        control: &Control,
    ) -> Result<Option<IoEvent>, (Box<Connection>, io::Error)> {
        let key = match self.watch(&mut connection, control) {
            Ok(key) => key,
            Err(error) => return Err((connection, error)),
        };
        let Some(place) = self.places.get_mut(key) else { return Ok(None) };
        let left_over =
            || connection.needs_another_turn().then_some(IoEvent { key, ended: connection.ended });
        let event = place.missed.take().or_else(left_over);
        place.connection = Some(connection);
        place.deadline = deadline;
        if place.entry.is_none_or(|entry| deadline < entry) {
            if let Some(entry) = place.entry.replace(deadline) {
                self.deadlines.remove(&(entry, key));
            }
            self.deadlines.insert((deadline, key));
        }
        Ok(event)
    }

    /// Has the poller report what the connection waits for.
    fn watch(&mut self, connection: &mut Connection, control: &Control) -> io::Result<usize> {
        let key = match connection.key {
            Some(key) => key,
            None => self.insert(connection, control)?,
        };
        let sending = connection.phase() == Phase::Sending;
        if let Some(place) = self.places.get_mut(key).filter(|place| place.watches_output != sending) {
            self.poller.watch_output(connection.as_fd(), key as u64, sending)?;
            place.watches_output = sending;
        }
        Ok(key)
    }

    fn insert(&mut self, connection: &mut Connection, control: &Control) -> io::Result<usize> {
        let place = self.places.vacant_entry();
        let key = place.key();
        self.poller.watch(connection.as_fd(), key as u64)?;
        place.insert(Place::default());
        connection.key = Some(key);
        control.track_fd(connection.raw_fd());
        Ok(key)
    }

    /// Takes a connection out, with its deadline; None if it is out already.
    pub(super) fn take(&mut self, key: usize) -> Option<(Box<Connection>, u64)> {
        let place = self.places.get_mut(key)?;
        Some((place.connection.take()?, place.deadline))
    }

    /// Whether to queue this event. False if one of the same connection is queued, which then stands for both: otherwise a
    /// client that sends without a pause would have more and more of them.
    pub(super) fn queue_event(&mut self, event: IoEvent) -> bool {
        let Some(place) = self.places.get_mut(event.key) else { return false };
        place.ended |= event.ended;
        !std::mem::replace(&mut place.queued, true)
    }

    /// The event leaves the queue.
    pub(super) fn unqueue_event(&mut self, event: IoEvent) -> IoEvent {
        let Some(place) = self.places.get_mut(event.key) else { return event };
        place.queued = false;
        // What the event itself says may be about a connection that had the place before.
        IoEvent { ended: std::mem::take(&mut place.ended), ..event }
    }

    /// Remembers an event of a connection that is taken out.
    pub(super) fn remember(&mut self, event: IoEvent) {
        if let Some(place) = self.places.get_mut(event.key) {
            let ended = event.ended || place.missed.is_some_and(|before| before.ended);
            place.missed = Some(IoEvent { ended, ..event });
        }
    }

    /// Removes a connection that is taken out and about to be closed.
    pub(super) fn remove(&mut self, connection: &Connection) {
        let Some(key) = connection.key else { return };
        if let Some(entry) = self.places.try_remove(key).and_then(|place| place.entry) {
            self.deadlines.remove(&(entry, key));
        }
        // The close alone would not take it out of the set if another process has a copy (epoll(7)). It fails only if the
        // descriptor is not there.
        let _ = self.poller.remove(connection.as_fd());
    }

    /// When to look for overdue connections, at the latest, in milliseconds.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The key of the connection with the earliest deadline, if that is not after `latest`.
    pub(super) fn due(&mut self, latest: u64) -> Option<usize> {
        while let Some((time, key)) = self.deadlines.first().copied().filter(|(time, _)| *time <= latest) {
            let place = self.places.get_mut(key)?;
            if place.connection.is_some() && place.deadline <= time {
                return Some(key);
            }
            self.deadlines.remove(&(time, key));
            // One that is taken out gets a new entry when it comes back.
            place.entry = place.connection.is_some().then_some(place.deadline);
            if let Some(deadline) = place.entry {
                self.deadlines.insert((deadline, key));
            }
        }
        None
    }

    /// The keys of all connections that are not taken out.
    pub(super) fn keys(&self) -> Vec<usize> {
        self.places.iter().filter(|(_, place)| place.connection.is_some()).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accept::Client;
    use crate::watch::WatchSettings;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn connected(table: &mut Table, control: &Control, deadline: u64) -> (UnixStream, usize) {
        let (client, server) = UnixStream::pair().expect("a pair");
        let before = table.keys();
        let connection = Connection::new(Client { fd: server.into(), peer: None, listener: 0 });
        table.park(connection, deadline, control).expect("park");
        let key = table.keys().into_iter().find(|key| !before.contains(key)).expect("a key");
        (client, key)
    }

    #[test]
    fn a_deadline_that_was_put_off_is_not_due_before_its_time() {
        let control = Control::new(-1, [], &WatchSettings::default()).expect("a control");
        let mut table = Table::new().expect("a poller");
        let (_one, first) = connected(&mut table, &control, 100);
        let (_two, second) = connected(&mut table, &control, 200);
        let (connection, deadline) = table.take(first).expect("parked");
        assert_eq!((deadline, table.due(150)), (100, None));
        table.park(connection, 300, &control).expect("park");
        assert_eq!(table.due(250), Some(second));
        let (connection, _) = table.take(second).expect("parked");
        table.remove(&connection);
        assert_eq!(table.due(299), None);
        assert_eq!(table.due(300), Some(first));
        let (connection, _) = table.take(first).expect("parked");
        table.park(connection, 120, &control).expect("park");
        assert_eq!(table.next_deadline(), Some(120));
        assert_eq!(table.due(120), Some(first));
    }

    #[test]
    fn an_event_that_comes_too_late_says_nothing_of_the_next_one_in_its_place() {
        let control = Control::new(-1, [], &WatchSettings::default()).expect("a control");
        let mut table = Table::new().expect("a poller");
        let (_one, key) = connected(&mut table, &control, 1);
        let event = IoEvent { key, ended: true };
        assert!(table.queue_event(event) && !table.queue_event(event));
        let (connection, _) = table.take(key).expect("parked");
        table.remove(&connection);
        let (_other, same) = connected(&mut table, &control, 1);
        assert_eq!((same, table.unqueue_event(event).ended), (key, false));
        assert!(table.queue_event(event));
        assert!(table.unqueue_event(event).ended);
    }

    #[test]
    fn an_event_while_taken_out_is_returned_when_it_is_parked_again() {
        let control = Control::new(-1, [], &WatchSettings::default()).expect("a control");
        let mut table = Table::new().expect("a poller");
        let (mut client, key) = connected(&mut table, &control, 1);
        let (connection, _) = table.take(key).expect("parked");
        client.write_all(b"x").expect("write");
        let mut events = Events::default();
        table.poll(&mut events).expect("poll");
        let tokens: Vec<_> = events.iter().map(|event| event.token).collect();
        assert_eq!(tokens, [key as u64]);
        assert!(table.take(key).is_none());
        table.remember(IoEvent { key, ended: false });
        let event = table.park(connection, 1, &control).expect("park");
        assert_eq!(event, Some(IoEvent { key, ended: false }));
    }
}
