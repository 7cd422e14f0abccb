//! The connections that stay: each has a place, which is the poller's token
//! for it from its first wait to its end, whoever has it in hand meanwhile.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;

use slab::Slab;

use fastrack_sys::{Events, Poller};

use crate::conn::{Connection, Phase};
use crate::control::Control;

/// Something has arrived on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub key: usize,
    /// It is the last.
    pub ended: bool,
}

#[derive(Debug, Default)]
struct Place {
    /// None while somebody has it in hand.
    connection: Option<Box<Connection>>,
    /// When it has waited too long, in milliseconds of the steady clock.
    deadline: u64,
    /// Under which time it is among the deadlines, which may be an earlier one.
    queued: Option<u64>,
    /// What has arrived while somebody had it in hand.
    arrival: Option<Arrival>,
    /// An arrival is in line to be looked at, and whether it is the last.
    in_line: bool,
    ended: bool,
    /// The poller reports when it takes output.
    sending: bool,
}

#[derive(Debug)]
pub(crate) struct Connections {
    places: Slab<Place>,
    /// Deadlines with their keys; the first one is due first. A deadline that is put off stays where it is until then:
    /// a connection in use costs nothing here.
    deadlines: BTreeSet<(u64, usize)>,
    poller: Poller,
}

impl Connections {
    pub fn new() -> io::Result<Self> {
        Ok(Connections { places: Slab::new(), deadlines: BTreeSet::new(), poller: Poller::new()? })
    }

    pub fn poller(&self) -> &Poller {
        &self.poller
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// What has arrived, without waiting.
    pub fn poll(&self, events: &mut Events) -> io::Result<()> {
        self.poller.wait(events, Some(0))
    }

    /// Keeps a connection until something arrives or `deadline` has passed; gives back what has arrived already. Gives
    /// back the connection when the system cannot tell of arrivals: it allows one user so many descriptors in such
    /// sets, or has no memory (epoll_ctl(2), ENOSPC and ENOMEM).
    pub fn park(
        &mut self,
        mut connection: Box<Connection>,
        deadline: u64,
        control: &Control,
    ) -> Result<Option<Arrival>, (Box<Connection>, io::Error)> {
        let key = match self.watch(&mut connection, control) {
            Ok(key) => key,
            Err(error) => return Err((connection, error)),
        };
        let Some(place) = self.places.get_mut(key) else { return Ok(None) };
        let arrival = place.arrival.take();
        let arrival =
            arrival.or_else(|| connection.is_due().then_some(Arrival { key, ended: connection.ended }));
        place.connection = Some(connection);
        place.deadline = deadline;
        if place.queued.is_none_or(|queued| deadline < queued) {
            if let Some(queued) = place.queued.replace(deadline) {
                self.deadlines.remove(&(queued, key));
            }
            self.deadlines.insert((deadline, key));
        }
        Ok(arrival)
    }

    /// Has the poller tell of what the connection waits for.
    fn watch(&mut self, connection: &mut Connection, control: &Control) -> io::Result<usize> {
        let key = match connection.key {
            Some(key) => key,
            None => self.admit(connection, control)?,
        };
        let sending = connection.phase() == Phase::Sending;
        if let Some(place) = self.places.get_mut(key).filter(|place| place.sending != sending) {
            self.poller.watch_output(connection.as_fd(), key as u64, sending)?;
            place.sending = sending;
        }
        Ok(key)
    }

    fn admit(&mut self, connection: &mut Connection, control: &Control) -> io::Result<usize> {
        let place = self.places.vacant_entry();
        let key = place.key();
        self.poller.watch(connection.as_fd(), key as u64)?;
        place.insert(Place::default());
        connection.key = Some(key);
        control.hold(connection.raw_fd());
        Ok(key)
    }

    /// Takes a connection in hand, with its deadline; None when somebody has it.
    pub fn take(&mut self, key: usize) -> Option<(Box<Connection>, u64)> {
        let place = self.places.get_mut(key)?;
        Some((place.connection.take()?, place.deadline))
    }

    /// Whether an arrival has to get in line: not if one of that connection is there already, which then stands for
    /// both. A client that sends without a pause would have more and more of them.
    pub fn gets_in_line(&mut self, arrival: Arrival) -> bool {
        let Some(place) = self.places.get_mut(arrival.key) else { return false };
        place.ended |= arrival.ended;
        !std::mem::replace(&mut place.in_line, true)
    }

    /// An arrival whose turn has come.
    pub fn out_of_line(&mut self, arrival: Arrival) -> Arrival {
        let Some(place) = self.places.get_mut(arrival.key) else { return arrival };
        place.in_line = false;
        // What the arrival itself says may be about a connection that had the place before.
        Arrival { ended: std::mem::take(&mut place.ended), ..arrival }
    }

    /// Remembers an arrival for whoever has the connection in hand.
    pub fn note(&mut self, arrival: Arrival) {
        if let Some(place) = self.places.get_mut(arrival.key) {
            let ended = arrival.ended || place.arrival.is_some_and(|before| before.ended);
            place.arrival = Some(Arrival { ended, ..arrival });
        }
    }

    /// Parts with a connection in hand, whose descriptor is about to be closed.
    pub fn part(&mut self, connection: &Connection) {
        let Some(key) = connection.key else { return };
        if let Some(queued) = self.places.try_remove(key).and_then(|place| place.queued) {
            self.deadlines.remove(&(queued, key));
        }
        // It fails only if the descriptor is not there, which is what is wanted. The close alone would not take it
        // out where somebody else has a copy (epoll(7)).
        let _ = self.poller.remove(connection.as_fd());
    }

    /// When to look for the next one that is due, at the latest, in milliseconds.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The key of the connection that is due first, if that is not after `latest`.
    pub fn due(&mut self, latest: u64) -> Option<usize> {
        while let Some((time, key)) = self.deadlines.first().copied().filter(|(time, _)| *time <= latest) {
            let place = self.places.get_mut(key)?;
            if place.connection.is_some() && place.deadline <= time {
                return Some(key);
            }
            self.deadlines.remove(&(time, key));
            // One that somebody has in hand gets a new deadline when it comes back.
            place.queued = place.connection.is_some().then_some(place.deadline);
            place.queued.into_iter().for_each(|deadline| {
                self.deadlines.insert((deadline, key));
            });
        }
        None
    }

    /// The keys of all connections that nobody has in hand.
    pub fn parked(&self) -> Vec<usize> {
        self.places.iter().filter(|(_, place)| place.connection.is_some()).map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::active_request::WatchSettings;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn connected(connections: &mut Connections, control: &Control, deadline: u64) -> (UnixStream, usize) {
        let (client, server) = UnixStream::pair().expect("a pair");
        let before = connections.parked();
        let connection = Connection::new(server.into(), None, 0);
        connections.park(connection, deadline, control).expect("park");
        let key = connections.parked().into_iter().find(|key| !before.contains(key)).expect("a key");
        (client, key)
    }

    #[test]
    fn a_deadline_that_was_put_off_is_not_due_before_its_time() {
        let control = Control::new(-1, [], &WatchSettings::default()).expect("a control");
        let mut connections = Connections::new().expect("a poller");
        let (_one, first) = connected(&mut connections, &control, 100);
        let (_two, second) = connected(&mut connections, &control, 200);
        let (connection, deadline) = connections.take(first).expect("parked");
        assert_eq!((deadline, connections.due(150)), (100, None));
        connections.park(connection, 300, &control).expect("park");
        assert_eq!(connections.due(250), Some(second));
        let (connection, _) = connections.take(second).expect("parked");
        connections.part(&connection);
        assert_eq!(connections.due(299), None);
        assert_eq!(connections.due(300), Some(first));
        let (connection, _) = connections.take(first).expect("parked");
        connections.park(connection, 120, &control).expect("park");
        assert_eq!(connections.next_deadline(), Some(120));
        assert_eq!(connections.due(120), Some(first));
    }

    #[test]
    fn an_arrival_that_comes_too_late_says_nothing_of_the_next_one_in_its_place() {
        let control = Control::new(-1, [], &WatchSettings::default()).expect("a control");
        let mut connections = Connections::new().expect("a poller");
        let (_one, key) = connected(&mut connections, &control, 1);
        let arrival = Arrival { key, ended: true };
        assert!(connections.gets_in_line(arrival) && !connections.gets_in_line(arrival));
        let (connection, _) = connections.take(key).expect("parked");
        connections.part(&connection);
        let (_other, same) = connected(&mut connections, &control, 1);
        assert_eq!((same, connections.out_of_line(arrival).ended), (key, false));
        assert!(connections.gets_in_line(arrival));
        assert!(connections.out_of_line(arrival).ended);
    }

    #[test]
    fn an_arrival_while_in_hand_is_given_back_with_the_next_wait() {
        let control = Control::new(-1, [], &WatchSettings::default()).expect("a control");
        let mut connections = Connections::new().expect("a poller");
        let (mut client, key) = connected(&mut connections, &control, 1);
        let (connection, _) = connections.take(key).expect("parked");
        client.write_all(b"x").expect("write");
        let mut events = Events::default();
        connections.poll(&mut events).expect("poll");
        let arrivals: Vec<_> = events.iter().map(|event| event.token).collect();
        assert_eq!(arrivals, [key as u64]);
        assert!(connections.take(key).is_none());
        connections.note(Arrival { key, ended: false });
        let arrival = connections.park(connection, 1, &control).expect("park");
        assert_eq!(arrival, Some(Arrival { key, ended: false }));
    }
}
