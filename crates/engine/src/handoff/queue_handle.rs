//! The shared queue from a worker's side.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use fastrack_sys::{is_alive, is_sibling, SharedMemory};

use super::message;
use super::shared_flags::SharedFlags;
use crate::conn::{Connection, Kind, ReadBufPool, Step};
use crate::settings::Settings;

#[derive(Debug)]
pub(crate) struct QueueHandle {
    sender: OwnedFd,
    receiver: OwnedFd,
    pub(super) flags: SharedMemory<SharedFlags>,
    place: usize,
    master: u32,
}

impl QueueHandle {
    pub(super) fn new(
        sender: OwnedFd,
        receiver: OwnedFd,
        flags: SharedMemory<SharedFlags>,
        place: usize,
        master: u32,
    ) -> Self {
        QueueHandle { sender, receiver, flags, place, master }
    }

    pub fn receiver(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    pub fn raw_fds(&self) -> [RawFd; 2] {
        [self.sender.as_raw_fd(), self.receiver.as_raw_fd()]
    }

    /// Sends a connection, which stays the sender's as well: to be released when this succeeds.
    pub fn send(&self, connection: &Connection, settings: &Settings) -> io::Result<()> {
        message::send(self.sender.as_fd(), connection, settings)?;
        self.flags.queued.sent();
        Ok(())
    }

    /// Waits up to `millis` milliseconds for room in the queue, and says whether there is any.
    pub fn wait_for_room(&self, millis: u64) -> bool {
        fastrack_sys::wait_writable(self.sender.as_fd(), millis).unwrap_or(false)
    }

    /// Receives a connection; None when the queue is empty.
    pub fn receive(
        &self,
        settings: &Settings,
        pool: &mut ReadBufPool,
    ) -> io::Result<Option<(Box<Connection>, Step)>> {
        let was_counted = self.flags.queued.will_receive();
        match message::receive(self.receiver.as_fd(), settings, pool) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => {
                if was_counted {
                    self.flags.queued.not_received();
                }
                Err(error)
            }
            received => received.map(Some),
        }
    }

    pub fn queued(&self) -> u32 {
        self.flags.queued.get()
    }

    pub fn is_anything_queued(&self) -> bool {
        self.queued() > 0
    }

    /// Whether the next connection in the queue needs its client, not the application.
    pub fn is_client_next(&self) -> bool {
        self.is_anything_queued() && message::next_kind(self.receiver.as_fd()).is_some_and(Kind::needs_client)
    }

    pub fn set_idle(&self, idle: bool) {
        self.flags.idle.set(self.place, idle);
    }

    pub fn set_serving(&self, serving: bool) {
        self.flags.serving.set(self.place, serving);
    }

    pub fn is_another_idle(&self) -> bool {
        self.flags.idle.has_other(self.place)
    }

    pub fn idle_others(&self) -> usize {
        self.flags.idle.others(self.place).count()
    }

    /// Whether there is any other worker, dead or alive.
    pub fn has_others(&self) -> bool {
        self.flags.serving.has_other(self.place)
    }

    /// Makes this worker the one that collects garbage. False if any worker is already, be it this one.
    pub fn claim_collection(&self) -> bool {
        self.flags.claim_collection(std::process::id())
    }

    pub fn release_collection(&self) {
        self.flags.release_collection(std::process::id());
    }

    /// A worker that was killed, and that its master has not reaped yet, does not count: it would keep the last worker
    /// from draining the queue. One that is killed after the last worker has looked takes what is queued with it.
    pub fn is_another_serving(&self) -> bool {
        self.flags.serving.others(self.place).any(|place| is_alive(self.flags.pids[place].get()))
    }

    /// Whether a worker of another master is serving: where the whole server stops, the others of this one also stop, and
    /// may be busy until then.
    pub fn is_stranger_serving(&self) -> bool {
        let mut pids = self.flags.serving.others(self.place).map(|place| self.flags.pids[place].get());
        pids.any(|pid| is_alive(pid) && !is_sibling(pid))
    }

    /// The master is gone without having said that its workers are about to end.
    pub fn end_master(&self) {
        self.flags.set_ending(self.master);
    }

    /// Whether somebody will take connections from the queue when this worker ends: another worker, or its successor.
    pub fn has_successor(&self) -> bool {
        !self.flags.is_ending(self.master) || self.is_another_serving()
    }
}

impl Drop for QueueHandle {
    fn drop(&mut self) {
        let own = std::process::id();
        self.flags.vacate(self.place, own, own);
    }
}
