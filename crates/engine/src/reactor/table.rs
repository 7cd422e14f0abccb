//! The connections that are kept, their events and their deadlines.
//!
//! Each has a place, whose key is its token in the poller. It keeps the place from its first wait to its end, also
//! while it has been taken out to be worked on.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, RawFd};
use std::sync::Arc;

use slab::Slab;

use fastrack_sys::{monotonic_millis, Events, Poller};

use super::watch_retry::WatchRetry;
use crate::conn::{Connection, Disk, Phase, Spooling};
use crate::control::Control;
use crate::scoreboard::{Count, Counters};

/// Events handled without a request becoming ready, before others get a turn, and before the poller is asked for newer ones:
/// each may bring a megabyte.
pub(super) const EVENTS_PER_TURN: usize = 16;

/// The most memory that all incomplete bodies of a worker take, in bytes. Beyond that they go to files.
const BODY_MEMORY: usize = 64 * 1024 * 1024;

/// The disk thread's token in the poller: greater than any key.
const DISK: u64 = u32::MAX as u64;

#[derive(Debug, Default)]
struct Place {
    /// None while it is taken out.
    connection: Option<Box<Connection>>,
    /// In milliseconds of the monotonic clock.
    deadline: u64,
    /// Its entry in `deadlines`, which may be earlier.
    entry: Option<u64>,
    /// An event is queued, or came while the connection was taken out.
    queued: bool,
    /// When that was polled, in milliseconds of the monotonic clock.
    since: u64,
    missed: bool,
    /// The event says that the client has shut down its sending side, or is gone.
    ended: bool,
    /// The [memory](Connection::body_memory) of its body.
    memory: usize,
    /// The poller reports when the socket can be written to.
    watches_output: bool,
    /// The kernel could not watch the socket yet.
    unwatched: bool,
    /// The phase in which the connection is parked.
    phase: Option<Phase>,
}

#[derive(Debug)]
pub(crate) struct Table {
    places: Slab<Place>,
    /// Deadlines with their keys. One that is put off stays here until then: a connection in use costs nothing.
    deadlines: BTreeSet<(u64, usize)>,
    poller: Poller,
    polled: Events,
    /// When the poller last had events, in milliseconds of the monotonic clock.
    polled_at: u64,
    /// Keys of the connections that have events, and how many were handled since the last poll.
    events: VecDeque<usize>,
    handled: usize,
    /// That of all incomplete bodies that are parked.
    memory: usize,
    /// How many connections are parked in each phase.
    parked: [u64; Phase::ALL],
    pub(super) unwatched: WatchRetry,
    disk: Disk,
    /// Keys of the connections that are to receive more of their bodies once the disk has written something.
    put_off: Vec<usize>,
}

impl Table {
    pub fn new(spooling: Spooling) -> io::Result<Self> {
        let (poller, disk) = (Poller::new()?, Disk::new(spooling)?);
        poller.watch(disk.waker(), DISK)?;
        Ok(Table {
            places: Slab::new(),
            deadlines: BTreeSet::new(),
            poller,
            disk,
            put_off: Vec::new(),
            polled: Events::default(),
            polled_at: 0,
            events: VecDeque::new(),
            handled: 0,
            memory: 0,
            parked: [0; Phase::ALL],
            unwatched: WatchRetry::default(),
        })
    }

    pub fn poller(&self) -> &Poller {
        &self.poller
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The descriptors that a forked child inherits, without those of connections.
    pub fn inherited_fds(&self) -> impl Iterator<Item = RawFd> + use<> {
        self.poller.inherited_fds().chain(self.disk.inherited_fds())
    }

    #[cfg(test)]
    pub(super) fn body_memory(&self) -> usize {
        self.memory
    }

    /// Whether so much `more` memory would be too much, for all bodies together.
    pub(super) fn is_too_much(&self, more: usize) -> bool {
        more > 0 && self.memory + more > BODY_MEMORY
    }

    /// Whether no more of this connection's body is to be received until the disk has written something.
    pub(super) fn put_off(&mut self, connection: &mut Connection) -> bool {
        if !self.disk.is_full() || !connection.has_long_body() && !self.is_too_much(1) {
            return false;
        }
        connection.put_off_reading();
        self.put_off.extend(connection.key);
        true
    }

    pub(super) fn events(&self) -> usize {
        self.events.len()
    }

    /// Polls without waiting, unless enough events are queued.
    pub(super) fn poll(&mut self) -> io::Result<()> {
        if !self.events.is_empty() && self.handled < EVENTS_PER_TURN {
            return Ok(());
        }
        self.handled = 0;
        self.watch_again();
        self.disk.clear_news();
        self.poller.wait(&mut self.polled, Some(0))?;
        if self.polled.is_empty() {
            return Ok(());
        }
        self.polled_at = monotonic_millis();
        let mut has_written = false;
        for event in self.polled.iter() {
            let (key, since) = (event.token as usize, self.polled_at);
            if event.token == DISK {
                has_written = true;
            } else {
                queue_event(&mut self.places, &mut self.events, key, event.ended, since);
            }
        }
        if has_written {
            let written = self.disk.take_done();
            written
                .into_iter()
                .chain(std::mem::take(&mut self.put_off))
                .for_each(|key| self.queue_event(key));
        }
        Ok(())
    }

    pub(super) fn queue_event(&mut self, key: usize) {
        queue_event(&mut self.places, &mut self.events, key, false, self.polled_at);
    }

    /// Takes out the connection with the first event; with the time when that came, and whether its client has ended.
    pub(super) fn next_event(&mut self) -> Option<(Box<Connection>, u64, bool)> {
        let key = self.events.pop_front()?;
        self.handled += 1;
        self.take_event(key)
    }

    pub(super) fn last_event(&mut self) -> Option<(Box<Connection>, u64, bool)> {
        let key = self.events.pop_back()?;
        self.take_event(key)
    }

    fn take_event(&mut self, key: usize) -> Option<(Box<Connection>, u64, bool)> {
        let place = self.places.get_mut(key)?;
        place.queued = false;
        let Some(connection) = place.connection.take() else {
            place.missed = true;
            return None;
        };
        self.memory -= std::mem::take(&mut place.memory);
        take_from(&mut self.parked, place);
        Some((connection, place.since, std::mem::take(&mut place.ended)))
    }

    /// Keeps a connection until an event or its deadline. One that the kernel cannot watch (ENOSPC, ENOMEM) is kept all the
    /// same, and tried again. Fails if the socket is none that can be watched.
    pub(super) fn park(
        &mut self,
        mut connection: Box<Connection>,
        deadline: u64,
        control: &Arc<Control>,
    ) -> Result<(), (Box<Connection>, io::Error)> {
        let phase = connection.phase();
        let key = match self.watch(&mut connection, phase, control) {
            Ok(key) => key,
            Err(error) => return Err((connection, error)),
        };
        if let Some(write) = (phase == Phase::Body).then(|| connection.begin_write(key)).flatten() {
            self.disk.begin(write, control);
        }
        let Some(place) = self.places.get_mut(key) else { return Ok(()) };
        let has_event = std::mem::take(&mut place.missed) || connection.needs_another_turn();
        place.memory = connection.body_memory();
        self.memory += place.memory;
        place.connection = Some(connection);
        place.phase = Some(phase);
        self.parked[phase as usize] += 1;
        place.deadline = deadline;
        if place.entry.is_none_or(|entry| deadline < entry) {
            if let Some(entry) = place.entry.replace(deadline) {
                self.deadlines.remove(&(entry, key));
            }
            self.deadlines.insert((deadline, key));
        }
        if has_event {
            self.queue_event(key);
        }
        Ok(())
    }

    fn watch(&mut self, connection: &mut Connection, phase: Phase, control: &Control) -> io::Result<usize> {
        let key = match connection.key {
            Some(key) => key,
            None => self.insert(connection, control)?,
        };
        let sending = phase == Phase::Sending;
        if let Some(place) = self.places.get_mut(key).filter(|place| place.watches_output != sending) {
            if !place.unwatched {
                self.poller.watch_output(connection.as_fd(), key as u64, sending)?;
            }
            place.watches_output = sending;
        }
        Ok(key)
    }

    /// Asks again for those connections that the kernel could not watch. It reports what has come meanwhile.
    fn watch_again(&mut self) {
        for key in self.unwatched.take_due() {
            let Some(place) = self.places.get_mut(key).filter(|place| place.unwatched) else { continue };
            let Some(connection) = &place.connection else {
                self.unwatched.add_again(key);
                continue;
            };
            place.unwatched = self.poller.watch(connection.as_fd(), key as u64).is_err();
            if place.unwatched {
                self.unwatched.add_again(key);
            } else if place.watches_output {
                // The kernel has it by now, and needs no memory for a change.
                let _ = self.poller.watch_output(connection.as_fd(), key as u64, true);
            }
        }
    }

    fn insert(&mut self, connection: &mut Connection, control: &Control) -> io::Result<usize> {
        let place = self.places.vacant_entry();
        let key = place.key();
        let unwatched = match self.poller.watch(connection.as_fd(), key as u64) {
            Err(error) if fastrack_sys::is_shortage(&error) => {
                self.unwatched.add(key, error);
                true
            }
            watched => watched.map(|()| false)?,
        };
        place.insert(Place { unwatched, ..Place::default() });
        connection.key = Some(key);
        control.track_fd(connection.raw_fd());
        Ok(key)
    }

    pub(super) fn take(&mut self, key: usize) -> Option<(Box<Connection>, u64)> {
        let place = self.places.get_mut(key)?;
        let connection = place.connection.take()?;
        self.memory -= std::mem::take(&mut place.memory);
        take_from(&mut self.parked, place);
        Some((connection, place.deadline))
    }

    /// Removes a connection that is taken out and about to be closed.
    pub(super) fn remove(&mut self, connection: &Connection) {
        let Some(key) = connection.key else { return };
        if let Some(entry) = self.places.try_remove(key).and_then(|place| place.entry) {
            self.deadlines.remove(&(entry, key));
        }
        // A close leaves it in the set if another process has a copy (epoll(7)). It fails only if it is not there.
        let _ = self.poller.remove(connection.as_fd());
    }

    /// Tells the master how many connections are parked.
    pub(super) fn publish(&self, counters: &Counters) {
        let parked = |phases: &[Phase]| phases.iter().map(|phase| self.parked[*phase as usize]).sum();
        counters.set(Count::Idle, parked(&[Phase::Idle]));
        counters.set(Count::Reading, parked(&[Phase::Fresh, Phase::Head, Phase::Body]));
        counters.set(Count::Writing, parked(&[Phase::Sending, Phase::Draining]));
    }

    /// When to look for overdue connections, at the latest, in milliseconds.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        let first = self.deadlines.first().map(|(deadline, _)| *deadline);
        first.into_iter().chain(self.unwatched.next_try()).min()
    }

    /// The key of the connection with the earliest deadline, if that is not after `latest`.
    pub(super) fn due(&mut self, latest: u64) -> Option<usize> {
        while let Some((time, key)) = self.deadlines.first().copied().filter(|(time, _)| *time <= latest) {
            let place = self.places.get(key)?;
            if place.connection.is_some() && place.deadline <= time {
                return Some(key);
            }
            self.correct_entry(time, key);
        }
        None
    }

    /// The key of the connection with the earliest deadline of those that are parked in one of these phases.
    pub(super) fn first_in(&mut self, phases: &[Phase]) -> Option<usize> {
        let mut next = (0, 0);
        while self.has_any_in(phases) {
            let (time, key) = *self.deadlines.range(next..).next()?;
            let place = self.places.get(key)?;
            if place.phase.is_some_and(|phase| phases.contains(&phase)) {
                if place.deadline <= time {
                    return Some(key);
                }
                self.correct_entry(time, key);
            }
            next = (time, key + 1);
        }
        None
    }

    pub(super) fn has_any_in(&self, phases: &[Phase]) -> bool {
        phases.iter().any(|phase| self.parked[*phase as usize] > 0)
    }

    /// Gives a connection the entry of its own deadline. One that is taken out gets a new one when it comes back.
    fn correct_entry(&mut self, time: u64, key: usize) {
        self.deadlines.remove(&(time, key));
        let Some(place) = self.places.get_mut(key) else { return };
        place.entry = place.connection.is_some().then_some(place.deadline);
        if let Some(deadline) = place.entry {
            self.deadlines.insert((deadline, key));
        }
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = &Box<Connection>> {
        self.places.iter().filter_map(|(_, place)| place.connection.as_ref())
    }

    pub(super) fn keys(&self) -> Vec<usize> {
        self.places.iter().filter(|(_, place)| place.connection.is_some()).map(|(key, _)| key).collect()
    }
}

/// The connection of a place was taken out.
fn take_from(parked: &mut [u64; Phase::ALL], place: &mut Place) {
    if let Some(phase) = place.phase.take() {
        parked[phase as usize] -= 1;
    }
}

/// Queues at most one event of each connection: a client that sends without a pause would have more and more of them.
fn queue_event(places: &mut Slab<Place>, events: &mut VecDeque<usize>, key: usize, ended: bool, since: u64) {
    let Some(place) = places.get_mut(key) else { return };
    place.ended |= ended;
    if !std::mem::replace(&mut place.queued, true) {
        place.since = since;
        events.push_back(key);
    }
}

#[cfg(test)]
mod tests;
