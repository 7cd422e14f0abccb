//! Polling by mio: kqueue(2), or epoll(7) on Linux. mio reports edges only.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Poll, Registry, Token};

use super::event::{Event, MAX_EVENTS};
use crate::wakeup::{Alarm, Timer};

#[derive(Debug)]
pub struct Events {
    polled: mio::Events,
    list: Vec<Event>,
}

impl Events {
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.list.iter().copied()
    }

    pub fn clear(&mut self) {
        self.list.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Merges events of one descriptor: kqueue reports input and output separately.
    fn push(&mut self, event: Event) {
        match self.list.iter_mut().find(|known| known.token == event.token) {
            Some(known) => known.ended |= event.ended,
            None => self.list.push(event),
        }
    }
}

impl Default for Events {
    fn default() -> Self {
        Events { polled: mio::Events::with_capacity(MAX_EVENTS), list: Vec::with_capacity(MAX_EVENTS) }
    }
}

#[derive(Debug)]
pub struct Poller {
    set: Mutex<Poll>,
    set_fd: RawFd,
    /// Another descriptor of the set, to change it while a thread waits.
    registry: Registry,
    /// Level-triggered descriptors, by their tokens.
    level: Mutex<Vec<(u64, RawFd)>>,
    timer: OnceLock<(u64, Arc<Alarm>)>,
}

impl Poller {
    pub fn new() -> io::Result<Self> {
        let set = Poll::new()?;
        let registry = set.registry().try_clone()?;
        let (level, timer) = (Mutex::default(), OnceLock::new());
        Ok(Poller { set_fd: set.as_raw_fd(), set: Mutex::new(set), registry, level, timer })
    }

    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.set_wanted(fd, token, true)
    }

    pub fn set_wanted(&self, fd: BorrowedFd<'_>, token: u64, wanted: bool) -> io::Result<()> {
        let mut level = lock(&self.level);
        let place = level.iter().position(|(known, _)| *known == token);
        match (place, wanted) {
            (None, true) => {
                self.watch(fd, token)?;
                level.push((token, fd.as_raw_fd()));
            }
            (Some(place), false) => {
                level.swap_remove(place);
                self.registry.deregister(&mut SourceFd(&fd.as_raw_fd()))?;
            }
            _ => {}
        }
        Ok(())
    }

    pub fn watch(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&fd.as_raw_fd()), to_mio(token), Interest::READABLE)
    }

    pub fn watch_timer(&self, timer: &Timer, token: u64) -> io::Result<()> {
        let alarm = timer.alarm();
        self.watch(alarm.as_fd(), token)?;
        self.timer.set((token, Arc::clone(alarm))).map_err(|_| io::ErrorKind::AlreadyExists.into())
    }

    pub fn watch_output(&self, fd: BorrowedFd<'_>, token: u64, wanted: bool) -> io::Result<()> {
        let interest = if wanted { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        self.registry.reregister(&mut SourceFd(&fd.as_raw_fd()), to_mio(token), interest)
    }

    pub fn add_shared(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.add(fd, token)
    }

    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let fd = fd.as_raw_fd();
        lock(&self.level).retain(|(_, known)| *known != fd);
        self.registry.deregister(&mut SourceFd(&fd))
    }

    pub fn wait(&self, events: &mut Events, millis: Option<u64>) -> io::Result<()> {
        events.clear();
        let end = millis.and_then(|millis| Instant::now().checked_add(Duration::from_millis(millis)));
        let mut set = lock(&self.set);
        loop {
            let timeout = match self.timer.get() {
                Some((_, alarm)) => alarm.sleep_until(end),
                None => end.map(|end| end.saturating_duration_since(Instant::now())),
            };
            let result = set.poll(&mut events.polled, timeout);
            self.take_events(events);
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
                result => result?,
            }
            let is_over = end.is_some_and(|end| end <= Instant::now());
            if is_over || !events.is_empty() {
                return Ok(());
            }
        }
    }

    fn take_events(&self, events: &mut Events) {
        let polled = std::mem::replace(&mut events.polled, mio::Events::with_capacity(0));
        let timer = self.timer.get();
        for event in &polled {
            let token = from_mio(event.token());
            // This event only ends the wait after the timer was set.
            if timer.is_some_and(|(timer, _)| *timer == token) {
                continue;
            }
            self.renew(token);
            let ended = event.is_read_closed() || event.is_write_closed() || event.is_error();
            events.push(Event { token, ended });
        }
        events.polled = polled;
        if let Some((token, _)) = timer.filter(|(_, alarm)| alarm.wake_up()) {
            events.push(Event { token: *token, ended: false });
        }
    }

    /// Makes the next wait report a level-triggered descriptor again if it is still readable.
    fn renew(&self, token: u64) {
        let level = lock(&self.level);
        if let Some((_, fd)) = level.iter().find(|(known, _)| *known == token) {
            // This fails only if the descriptor has been closed.
            let _ = self.registry.reregister(&mut SourceFd(fd), to_mio(token), Interest::READABLE);
        }
    }

    pub fn raw_fd(&self) -> RawFd {
        self.registry.as_raw_fd()
    }

    pub fn raw_fds(&self) -> impl Iterator<Item = RawFd> + use<> {
        [self.set_fd, self.raw_fd()].into_iter()
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.registry.as_fd()
    }
}

fn to_mio(token: u64) -> Token {
    Token(token as usize)
}

fn from_mio(token: Token) -> u64 {
    token.0 as u64
}

/// No thread panics while it holds one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
