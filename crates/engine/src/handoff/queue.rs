//! The shared queue from the master's side.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use fastrack_sys::{borrow_fd, message_queue, SharedMemory};

use super::header;
use super::queue_handle::QueueHandle;
use super::shared_flags::SharedFlags;
use crate::request_state::QueueLength;

/// The workers' shared queue and flags. The master makes it and its workers inherit it.
#[derive(Debug)]
pub struct SharedQueue {
    sender: OwnedFd,
    receiver: OwnedFd,
    file: File,
    flags: SharedMemory<SharedFlags>,
    master: u32,
}

impl SharedQueue {
    /// What two masters must have in common to share a queue.
    pub const LAYOUT: &'static str = header::LAYOUT;

    /// A queue for workers forked later.
    pub fn new() -> io::Result<Self> {
        let (sender, receiver) = message_queue()?;
        Self::with(sender, receiver, SharedFlags::create()?)
    }

    /// Takes over another master's queue by its [`raw_fds`](Self::raw_fds), which are duplicated.
    ///
    /// # Safety
    /// Nobody closes the descriptors meanwhile, and nobody truncates the file.
    pub unsafe fn from_raw_fds(fds: [RawFd; 3]) -> io::Result<Self> {
        // SAFETY: as the caller promises.
        let [sender, receiver, file] = unsafe { Self::copies(fds) }?;
        Self::with(sender, receiver, File::from(file))
    }

    /// The same for a worker of that master, whose queue it is, which has got the descriptors from it.
    ///
    /// # Safety
    /// As for [`from_raw_fds`](Self::from_raw_fds).
    pub unsafe fn of_master(fds: [RawFd; 3], master: u32) -> io::Result<Self> {
        // SAFETY: as the caller promises.
        let [sender, receiver, file] = unsafe { Self::copies(fds) }?;
        let file = File::from(file);
        Ok(SharedQueue { sender, receiver, flags: SharedFlags::map(&file)?, file, master })
    }

    unsafe fn copies(fds: [RawFd; 3]) -> io::Result<[OwnedFd; 3]> {
        // SAFETY: as the caller promises.
        let copy = |fd| unsafe { borrow_fd(fd) }?.try_clone_to_owned();
        let [sender, receiver, file] = fds.map(copy);
        Ok([sender?, receiver?, file?])
    }

    fn with(sender: OwnedFd, receiver: OwnedFd, file: File) -> io::Result<Self> {
        let (flags, master) = (SharedFlags::map(&file)?, std::process::id());
        flags.clear_ending(master);
        Ok(SharedQueue { sender, receiver, file, flags, master })
    }

    /// Its descriptors: both ends of the queue, and the file of the flags.
    pub fn raw_fds(&self) -> [RawFd; 3] {
        [self.sender.as_raw_fd(), self.receiver.as_raw_fd(), self.file.as_raw_fd()]
    }

    /// How many connections are in it, for a scoreboard.
    pub fn length(&self) -> QueueLength {
        QueueLength::new(self.flags.part(|flags| flags.queued.number()))
    }

    /// This master's workers are about to end. Only another master's can take their connections over.
    pub fn end(&self) {
        self.flags.set_ending(self.master);
    }

    /// Removes a worker that is dead.
    pub fn forget(&self, pid: u32) {
        let places = self.flags.pids.iter().enumerate().filter(|(_, place)| place.get() == pid);
        places.for_each(|(member, _)| self.flags.vacate(member, pid, self.master));
    }

    pub(crate) fn handle(&self) -> io::Result<Option<QueueHandle>> {
        let (sender, receiver) = (self.sender.try_clone()?, self.receiver.try_clone()?);
        let place = self.flags.join(std::process::id());
        Ok(place.map(|place| QueueHandle::new(sender, receiver, self.flags.clone(), place, self.master)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared_flags::MEMBERS;
    use super::*;
    use crate::request_state::Scoreboard;

    #[test]
    fn each_worker_sees_what_the_others_say() {
        let queue = SharedQueue::new().expect("a queue");
        // SAFETY: the queue outlives the call, and its file is never truncated.
        let copy = unsafe { SharedQueue::from_raw_fds(queue.raw_fds()) }.expect("a copy");
        let one = queue.handle().expect("a member").expect("free");
        let two = copy.handle().expect("a member").expect("free");
        one.set_idle(true);
        one.set_serving(true);
        assert!(!one.is_another_idle() && two.is_another_idle() && two.is_another_serving());
        one.flags.queued.sent();
        assert!(two.is_anything_queued());
        assert!(two.flags.queued.will_receive() && !two.flags.queued.will_receive());
        assert!(!one.is_anything_queued());
        // Both are this process's; the flags of a dead one no longer count.
        queue.forget(std::process::id());
        assert!(!two.is_another_idle() && !two.is_another_serving());
    }

    #[test]
    fn what_a_master_has_said_holds_for_a_worker_that_gets_its_descriptors_later() {
        let queue = SharedQueue::new().expect("a queue");
        let copy = || {
            // SAFETY: the queue outlives the call, and its file is never truncated.
            let copy = unsafe { SharedQueue::of_master(queue.raw_fds(), std::process::id()) };
            copy.expect("a copy").handle().expect("a member").expect("free")
        };
        assert!(copy().has_successor());
        queue.end();
        assert!(!copy().has_successor());
    }

    #[test]
    fn what_is_in_the_queue_waits_though_no_worker_has_it() {
        let queue = SharedQueue::new().expect("a queue");
        let board = Scoreboard::new().expect("memory").with_queue(queue.length());
        let queue_handle = queue.handle().expect("a member").expect("free");
        queue_handle.flags.queued.sent();
        queue_handle.flags.queued.sent();
        assert_eq!(board.totals().connections.waiting, 2);
        drop(queue);
        assert!(queue_handle.flags.queued.will_receive());
        assert_eq!(board.totals().connections.waiting, 1);
    }

    #[test]
    fn the_place_of_a_process_that_was_killed_with_its_master_is_freed_by_the_next_to_join() {
        let queue = SharedQueue::new().expect("a queue");
        let one = queue.handle().expect("a member").expect("free");
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        child.wait().expect("its end");
        queue.flags.pids[7].set(child.id());
        queue.flags.idle.set(7, true);
        queue.flags.serving.set(7, true);
        // It does not serve: the last worker asks whether the process is alive.
        assert!(one.is_another_idle() && !one.is_another_serving());
        let _other = queue.handle().expect("a member").expect("free");
        assert!(!one.is_another_idle() && !one.is_another_serving());
    }

    #[test]
    fn a_place_is_vacated_for_the_process_that_has_it_only() {
        let queue = SharedQueue::new().expect("a queue");
        let flags = &queue.flags;
        flags.pids[3].set(7);
        flags.serving.set(3, true);
        flags.vacate(3, 8, queue.master);
        assert_eq!((flags.pids[3].get(), flags.serving.others(0).next()), (7, Some(3)));
        flags.vacate(3, 7, queue.master);
        assert_eq!((flags.pids[3].get(), flags.serving.others(0).next()), (0, None));
    }

    #[test]
    fn one_worker_at_a_time_collects_garbage() {
        let queue = SharedQueue::new().expect("a queue");
        let (queue_handle, flags) = (queue.handle().expect("a member").expect("free"), &queue.flags);
        assert!(queue_handle.claim_collection() && !queue_handle.claim_collection());
        queue_handle.release_collection();
        let other = std::os::unix::process::parent_id();
        assert!(flags.claim_collection(other) && !queue_handle.claim_collection());
        // Only the holder's own release counts.
        queue_handle.release_collection();
        assert!(!queue_handle.claim_collection());
        flags.release_collection(other);
        assert!(queue_handle.claim_collection());
    }

    #[test]
    fn a_worker_that_was_killed_while_it_collected_garbage_keeps_nobody_from_it() {
        let queue = SharedQueue::new().expect("a queue");
        let (queue_handle, flags) = (queue.handle().expect("a member").expect("free"), &queue.flags);
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        assert!(flags.claim_collection(child.id()));
        // Its pid may be another process's by the time that anybody asks: the master says that it is dead.
        flags.pids[7].set(child.id());
        queue.forget(child.id());
        assert!(queue_handle.claim_collection());
        queue_handle.release_collection();
        assert!(flags.claim_collection(child.id()));
        child.wait().expect("its end");
        assert!(queue_handle.claim_collection());
    }

    #[test]
    fn two_masters_may_end_at_a_time() {
        let queue = SharedQueue::new().expect("a queue");
        let queue_handle = queue.handle().expect("a member").expect("free");
        assert!(queue_handle.has_successor());
        queue.end();
        // SAFETY: the queue outlives the call, and its file is never truncated.
        let mut other = unsafe { SharedQueue::from_raw_fds(queue.raw_fds()) }.expect("a copy");
        // The new master has this process's pid here, and clears what is left of an older one.
        assert!(queue_handle.has_successor());
        queue.end();
        other.master = std::os::unix::process::parent_id();
        other.end();
        assert!(!queue_handle.has_successor());
    }

    #[test]
    #[cfg_attr(any(feature = "portable", not(target_os = "linux")), ignore = "only proc(5) tells")]
    fn a_worker_that_was_killed_does_not_serve_even_before_it_is_reaped() {
        let queue = SharedQueue::new().expect("a queue");
        let one = queue.handle().expect("a member").expect("free");
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a process");
        queue.flags.pids[7].set(child.id());
        queue.flags.serving.set(7, true);
        assert!(one.is_another_serving());
        child.kill().expect("kill");
        let mut output = child.stdout.take().expect("a pipe");
        // Its end of the pipe is closed just before it is a zombie.
        std::io::Read::read(&mut output, &mut [0]).expect("the end");
        crate::patience::until(|| !one.is_another_serving());
        child.wait().expect("its status");
    }

    #[test]
    #[cfg_attr(any(feature = "portable", not(target_os = "linux")), ignore = "only proc(5) tells")]
    fn a_worker_of_another_master_is_a_stranger() {
        let queue = SharedQueue::new().expect("a queue");
        let one = queue.handle().expect("a member").expect("free");
        let flags = &queue.flags;
        flags.serving.set(7, true);
        flags.pids[7].set(std::process::id());
        assert!(one.is_another_serving() && !one.other_masters_worker_serves());
        flags.pids[7].set(std::os::unix::process::parent_id());
        assert!(one.other_masters_worker_serves());
    }

    #[test]
    fn there_is_a_place_for_each_of_many_workers_and_then_none() {
        let queue = SharedQueue::new().expect("a queue");
        let mut members: Vec<_> =
            (0..MEMBERS).map(|_| queue.handle().expect("a member").expect("free")).collect();
        assert!(queue.handle().expect("no error").is_none());
        members.iter().for_each(|queue_handle| queue_handle.set_idle(true));
        members.truncate(1);
        assert!(!members[0].is_another_idle());
        assert!(queue.handle().expect("a member").is_some());
    }
}
