//! The shared queue from the worker's side.

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
    /// The index of this worker in the shared flags.
    member: usize,
    /// The pid of the master.
    master: u32,
}

impl QueueHandle {
    pub(super) fn new(
        sender: OwnedFd,
        receiver: OwnedFd,
        flags: SharedMemory<SharedFlags>,
        member: usize,
        master: u32,
    ) -> Self {
        QueueHandle { sender, receiver, flags, member, master }
    }

    pub fn receiver(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    pub fn raw_fds(&self) -> [RawFd; 2] {
        [self.sender.as_raw_fd(), self.receiver.as_raw_fd()]
    }

    /// Sends a connection. If this succeeds the caller closes its copy.
    pub fn send(&self, connection: &Connection, settings: &Settings) -> io::Result<()> {
        message::send(self.sender.as_fd(), connection, settings)?;
        self.flags.queued.sent();
        Ok(())
    }

    /// Waits up to `millis` milliseconds for room in the queue. Returns whether there is room.
    pub fn wait_for_room(&self, millis: u64) -> bool {
        fastrack_sys::wait_writable(self.sender.as_fd(), millis).unwrap_or(false)
    }

    /// Receives a connection; None if the queue is empty.
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

    /// Whether the next connection in the queue waits for its client, not for the application.
    pub fn is_client_next(&self) -> bool {
        self.is_anything_queued() && message::next_kind(self.receiver.as_fd()).is_some_and(Kind::needs_client)
    }

    pub fn set_idle(&self, idle: bool) {
        self.flags.idle.set(self.member, idle);
    }

    pub fn set_serving(&self, serving: bool) {
        self.flags.serving.set(self.member, serving);
    }

    pub fn is_another_idle(&self) -> bool {
        self.flags.idle.has_other(self.member)
    }

    pub fn idle_others(&self) -> usize {
        self.flags.idle.others(self.member).count()
    }

    /// Whether there is any other worker, dead or alive.
    pub fn has_others(&self) -> bool {
        self.flags.serving.has_other(self.member)
    }

    /// Makes this worker the one that collects garbage. Returns false if a worker already collects, even this one.
    pub fn claim_collection(&self) -> bool {
        self.flags.claim_collection(std::process::id())
    }

    pub fn release_collection(&self) {
        self.flags.release_collection(std::process::id());
    }

    /// Whether another worker is serving. A killed worker does not count, even before its master has reaped it:
    /// otherwise the last worker would not drain the queue. If the other worker is killed after this call, queued
    /// connections are lost.
    pub fn is_another_serving(&self) -> bool {
        self.flags.serving.others(self.member).any(|other| is_alive(self.flags.pids[other].get()))
    }

    /// Whether a worker of another master is serving. When the whole server stops, only such a worker can take
    /// connections over: the siblings stop too.
    pub fn other_masters_worker_serves(&self) -> bool {
        let mut pids = self.flags.serving.others(self.member).map(|other| self.flags.pids[other].get());
        pids.any(|pid| is_alive(pid) && !is_sibling(pid))
    }

    /// Called when the master has ended without [`SharedQueue::end`](super::SharedQueue::end).
    pub fn end_master(&self) {
        self.flags.set_ending(self.master);
    }

    /// Whether another worker, or the successor of this one, receives from the queue when this worker ends.
    pub fn has_successor(&self) -> bool {
        !self.flags.is_ending(self.master) || self.is_another_serving()
    }
}

impl Drop for QueueHandle {
    fn drop(&mut self) {
        let own = std::process::id();
        self.flags.vacate(self.member, own, own);
    }
}
