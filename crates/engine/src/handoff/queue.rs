//! The shared queue from the master's side.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use fastrack_sys::{borrow_fd, message_queue, SharedMemory};

use super::header;
use super::queue_handle::QueueHandle;
use super::shared_flags::SharedFlags;
use crate::scoreboard::QueueLength;

/// The shared queue of the workers, and their shared flags. Made by the master, inherited by its workers.
#[derive(Debug)]
pub struct SharedQueue {
    sender: OwnedFd,
    receiver: OwnedFd,
    file: File,
    flags: SharedMemory<SharedFlags>,
    master: u32,
}

impl SharedQueue {
    /// Two masters share a queue only if they have the same layout.
    pub const LAYOUT: &'static str = header::LAYOUT;

    /// Makes a queue, for workers that are forked later.
    pub fn new() -> io::Result<Self> {
        let (sender, receiver) = message_queue()?;
        Self::with(sender, receiver, SharedFlags::create()?)
    }

    /// Takes over the queue of another master: duplicates its [`raw_fds`](Self::raw_fds).
    ///
    /// # Safety
    /// The descriptors must be open until this returns, and the file must never be truncated.
    pub unsafe fn from_raw_fds(fds: [RawFd; 3]) -> io::Result<Self> {
        // SAFETY: as the caller promises.
        let [sender, receiver, file] = unsafe { Self::copies(fds) }?;
        Self::with(sender, receiver, File::from(file))
    }

    /// Makes the queue of a worker whose master has the pid `master`, from descriptors that the master sent.
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

    /// The descriptors: both ends of the queue, and the file of the flags.
    pub fn raw_fds(&self) -> [RawFd; 3] {
        [self.sender.as_raw_fd(), self.receiver.as_raw_fd(), self.file.as_raw_fd()]
    }

    /// The number of queued connections, for a scoreboard.
    pub fn length(&self) -> QueueLength {
        QueueLength::new(self.flags.part(|flags| flags.queued.number()))
    }

    /// Notes that the workers of this master are about to end. Only workers of another master can take connections over
    /// then.
    pub fn end(&self) {
        self.flags.set_ending(self.master);
    }

    /// Removes a dead worker.
    pub fn forget(&self, pid: u32) {
        let members = self.flags.pids.iter().enumerate().filter(|(_, member)| member.get() == pid);
        members.for_each(|(member, _)| self.flags.vacate(member, pid, self.master));
    }

    pub(crate) fn handle(&self) -> io::Result<Option<QueueHandle>> {
        let (sender, receiver) = (self.sender.try_clone()?, self.receiver.try_clone()?);
        let member = self.flags.join(std::process::id());
        Ok(member.map(|member| QueueHandle::new(sender, receiver, self.flags.clone(), member, self.master)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared_flags::MEMBERS;
    use super::*;
    use crate::scoreboard::Scoreboard;

    #[test]
    fn each_worker_sees_the_flags_of_the_others() {
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
        // Both members have the pid of this process. The flags of a dead process no longer count.
        queue.forget(std::process::id());
        assert!(!two.is_another_idle() && !two.is_another_serving());
    }

    #[test]
    fn a_worker_that_gets_the_descriptors_later_knows_that_its_master_ends() {
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
    fn a_connection_in_the_queue_counts_as_waiting() {
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
    fn a_member_that_was_killed_with_its_master_is_removed_by_the_next_to_join() {
        let queue = SharedQueue::new().expect("a queue");
        let one = queue.handle().expect("a member").expect("free");
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        child.wait().expect("its end");
        queue.flags.pids[7].set(child.id());
        queue.flags.idle.set(7, true);
        queue.flags.serving.set(7, true);
        // The dead process does not count as serving: `is_another_serving` asks whether it is alive.
        assert!(one.is_another_idle() && !one.is_another_serving());
        let _other = queue.handle().expect("a member").expect("free");
        assert!(!one.is_another_idle() && !one.is_another_serving());
    }

    #[test]
    fn only_the_process_that_is_the_member_is_removed() {
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
        // Only a release by the holder counts.
        queue_handle.release_collection();
        assert!(!queue_handle.claim_collection());
        flags.release_collection(other);
        assert!(queue_handle.claim_collection());
    }

    #[test]
    fn a_worker_that_was_killed_while_it_collected_garbage_has_no_claim() {
        let queue = SharedQueue::new().expect("a queue");
        let (queue_handle, flags) = (queue.handle().expect("a member").expect("free"), &queue.flags);
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        assert!(flags.claim_collection(child.id()));
        // Another process may have the pid when the claim is checked, so the master removes the dead process.
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
        // The new master has the pid of this process here, and clears the entry of an older one.
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
        // The kernel closes the child's end of the pipe just before the child is a zombie.
        std::io::Read::read(&mut output, &mut [0]).expect("the end");
        crate::patience::until(|| !one.is_another_serving());
        child.wait().expect("its status");
    }

    #[test]
    #[cfg_attr(any(feature = "portable", not(target_os = "linux")), ignore = "only proc(5) tells")]
    fn a_worker_of_another_master_is_told_from_a_sibling() {
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
    fn the_number_of_members_is_limited() {
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
