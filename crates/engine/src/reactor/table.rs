//! The connections that are parked, their events and their deadlines.
//!
//! Each connection has an entry, whose key is the connection's token in the poller. The entry stays from the first wait to the end of the
//! connection, also while the connection is taken out to be worked on.

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

/// Events handled without a ready request before other sources get a turn, and before the poller is asked for newer events. Each event may
/// bring a megabyte.
pub(super) const EVENTS_PER_TURN: usize = 16;

/// The most memory that all incomplete bodies of a worker take, in bytes. Larger ones go to files.
const BODY_MEMORY: usize = 64 * 1024 * 1024;

/// The disk thread's token in the poller: greater than any key.
const DISK: u64 = u32::MAX as u64;

#[derive(Debug, Default)]
struct Entry {
    /// None while the connection is taken out.
    connection: Option<Box<Connection>>,
    /// The connection's deadline, in milliseconds of the monotonic clock.
    deadline: u64,
    /// The entry's deadline in `deadlines`, which may be earlier.
    listed: Option<u64>,
    /// Whether an event is queued.
    queued: bool,
    /// The time at which the event was polled, in milliseconds of the monotonic clock.
    since: u64,
    /// Whether an event came while the connection was taken out.
    missed: bool,
    /// Whether the event says that the client has shut down its sending side, or is gone.
    ended: bool,
    /// The [memory](Connection::body_memory) of the connection's body, in bytes.
    memory: usize,
    /// Whether the poller reports when the socket can be written to.
    watches_output: bool,
    /// Whether the kernel could not watch the socket yet.
    unwatched: bool,
    /// The phase in which the connection is parked.
    phase: Option<Phase>,
}

#[derive(Debug)]
pub(crate) struct Table {
    entries: Slab<Entry>,
    /// Deadlines with their keys. A deadline that is put off stays here until then, so that a connection in use costs nothing.
    deadlines: BTreeSet<(u64, usize)>,
    poller: Poller,
    polled: Events,
    /// The time at which the poller last had events, in milliseconds of the monotonic clock.
    polled_at: u64,
    /// Keys of connections with events, and the number of events handled since the last poll.
    events: VecDeque<usize>,
    handled: usize,
    /// Memory of all incomplete bodies that are parked, in bytes.
    memory: usize,
    /// The number of parked connections in each phase.
    parked: [u64; Phase::ALL],
    pub(super) unwatched: WatchRetry,
    disk: Disk,
    /// Keys of connections that receive more of their bodies once the disk has written something.
    put_off: Vec<usize>,
}

impl Table {
    pub fn new(spooling: Spooling) -> io::Result<Self> {
        let (poller, disk) = (Poller::new()?, Disk::new(spooling)?);
        poller.watch(disk.waker(), DISK)?;
        Ok(Table {
            entries: Slab::new(),
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
        self.entries.len()
    }

    /// Number of connections that are not taken out.
    pub(super) fn parked(&self) -> u64 {
        self.parked.iter().sum()
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

    /// Whether `more` memory would be too much for all bodies together.
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
                queue_event(&mut self.entries, &mut self.events, key, event.ended, since);
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
        queue_event(&mut self.entries, &mut self.events, key, false, self.polled_at);
    }

    /// Takes out the connection with the first event. Also returns the time of the event, and whether the client has ended.
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
        let entry = self.entries.get_mut(key)?;
        entry.queued = false;
        let Some(connection) = entry.connection.take() else {
            entry.missed = true;
            return None;
        };
        self.memory -= std::mem::take(&mut entry.memory);
        take_from(&mut self.parked, entry);
        Some((connection, entry.since, std::mem::take(&mut entry.ended)))
    }

    /// Keeps a connection until an event or its deadline. A connection that the kernel cannot watch (ENOSPC, ENOMEM) is also kept, and
    /// tried again. Fails if the socket cannot be watched at all.
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
        let Some(entry) = self.entries.get_mut(key) else { return Ok(()) };
        let has_event = std::mem::take(&mut entry.missed) || connection.needs_another_turn();
        entry.memory = connection.body_memory();
        self.memory += entry.memory;
        entry.connection = Some(connection);
        entry.phase = Some(phase);
        self.parked[phase as usize] += 1;
        entry.deadline = deadline;
        if entry.listed.is_none_or(|listed| deadline < listed) {
            if let Some(listed) = entry.listed.replace(deadline) {
                self.deadlines.remove(&(listed, key));
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
        if let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.watches_output != sending) {
            if !entry.unwatched {
                self.poller.watch_output(connection.as_fd(), key as u64, sending)?;
            }
            entry.watches_output = sending;
        }
        Ok(key)
    }

    /// Asks again for connections that the kernel could not watch. The kernel reports events that came meanwhile.
    fn watch_again(&mut self) {
        for key in self.unwatched.take_due() {
            let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.unwatched) else { continue };
            let Some(connection) = &entry.connection else {
                self.unwatched.add_again(key);
                continue;
            };
            entry.unwatched = self.poller.watch(connection.as_fd(), key as u64).is_err();
            if entry.unwatched {
                self.unwatched.add_again(key);
            } else if entry.watches_output {
                // The kernel watches the socket by now, and needs no memory for a change.
                let _ = self.poller.watch_output(connection.as_fd(), key as u64, true);
            }
        }
    }

    fn insert(&mut self, connection: &mut Connection, control: &Control) -> io::Result<usize> {
        let entry = self.entries.vacant_entry();
        let key = entry.key();
        let unwatched = match self.poller.watch(connection.as_fd(), key as u64) {
            Err(error) if fastrack_sys::is_shortage(&error) => {
                self.unwatched.add(key, error);
                true
            }
            watched => watched.map(|()| false)?,
        };
        entry.insert(Entry { unwatched, ..Entry::default() });
        connection.key = Some(key);
        control.track_fd(connection.raw_fd());
        Ok(key)
    }

    pub(super) fn take(&mut self, key: usize) -> Option<(Box<Connection>, u64)> {
        let entry = self.entries.get_mut(key)?;
        let connection = entry.connection.take()?;
        self.memory -= std::mem::take(&mut entry.memory);
        take_from(&mut self.parked, entry);
        Some((connection, entry.deadline))
    }

    /// Removes a connection that is taken out and about to be closed.
    pub(super) fn remove(&mut self, connection: &Connection) {
        let Some(key) = connection.key else { return };
        if let Some(listed) = self.entries.try_remove(key).and_then(|entry| entry.listed) {
            self.deadlines.remove(&(listed, key));
        }
        // If another process has a copy, a close would leave the socket in the set (epoll(7)). The removal fails only if the socket is not
        // in the set.
        let _ = self.poller.remove(connection.as_fd());
    }

    /// Tells the master the number of parked connections.
    pub(super) fn publish(&self, counters: &Counters) {
        let parked = |phases: &[Phase]| phases.iter().map(|phase| self.parked[*phase as usize]).sum();
        counters.set(Count::Idle, parked(&[Phase::Idle]));
        counters.set(Count::Reading, parked(&[Phase::Fresh, Phase::Head, Phase::Body]));
        counters.set(Count::Writing, parked(&[Phase::Sending, Phase::Draining]));
    }

    /// The time of the next look for overdue connections at the latest, in milliseconds.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        let first = self.deadlines.first().map(|(deadline, _)| *deadline);
        first.into_iter().chain(self.unwatched.next_try()).min()
    }

    /// The key of the connection with the earliest deadline, if the deadline is not after `latest`.
    pub(super) fn due(&mut self, latest: u64) -> Option<usize> {
        while let Some((time, key)) = self.deadlines.first().copied().filter(|(time, _)| *time <= latest) {
            let entry = self.entries.get(key)?;
            if entry.connection.is_some() && entry.deadline <= time {
                return Some(key);
            }
            self.correct_entry(time, key);
        }
        None
    }

    /// The key of the connection with the earliest deadline among those parked in these phases.
    pub(super) fn first_in(&mut self, phases: &[Phase]) -> Option<usize> {
        let mut next = (0, 0);
        while self.has_any_in(phases) {
            let (time, key) = *self.deadlines.range(next..).next()?;
            let entry = self.entries.get(key)?;
            if entry.phase.is_some_and(|phase| phases.contains(&phase)) {
                if entry.deadline <= time {
                    return Some(key);
                }
                self.correct_entry(time, key);
            }
            next = (time, key + 1);
        }
        None
    }

    pub(super) fn is_due_by(&self, key: usize, latest: u64) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.deadline <= latest)
    }

    pub(super) fn has_any_in(&self, phases: &[Phase]) -> bool {
        phases.iter().any(|phase| self.parked[*phase as usize] > 0)
    }

    /// Adds the deadline of a connection to `deadlines`. A connection that is taken out gets a new deadline when it comes back.
    fn correct_entry(&mut self, time: u64, key: usize) {
        self.deadlines.remove(&(time, key));
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.listed = entry.connection.is_some().then_some(entry.deadline);
        if let Some(deadline) = entry.listed {
            self.deadlines.insert((deadline, key));
        }
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = &Box<Connection>> {
        self.entries.iter().filter_map(|(_, entry)| entry.connection.as_ref())
    }

    pub(super) fn keys(&self) -> Vec<usize> {
        self.entries.iter().filter(|(_, entry)| entry.connection.is_some()).map(|(key, _)| key).collect()
    }
}

/// The connection of an entry was taken out.
fn take_from(parked: &mut [u64; Phase::ALL], entry: &mut Entry) {
    if let Some(phase) = entry.phase.take() {
        parked[phase as usize] -= 1;
    }
}

/// Queues at most one event of each connection. Otherwise a client that sends without a pause would have more and more events.
fn queue_event(entries: &mut Slab<Entry>, events: &mut VecDeque<usize>, key: usize, ended: bool, since: u64) {
    let Some(entry) = entries.get_mut(key) else { return };
    entry.ended |= ended;
    if !std::mem::replace(&mut entry.queued, true) {
        entry.since = since;
        events.push_back(key);
    }
}

#[cfg(test)]
mod tests;
