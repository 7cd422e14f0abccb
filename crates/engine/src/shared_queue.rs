//! What the workers of one master share, so that no client waits for a busy
//! worker while another one is idle: a queue of connections, first come first
//! served, and a page that says who is idle.
//!
//! The queue is a socket: what is in it when a worker dies stays there for the
//! next one to read.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use fastrack_sys::{borrow_fd, memory_file, message_queue, SharedNumbers};

/// Workers that may share, at most.
const MOST: usize = 512;

const BITS: usize = u32::BITS as usize;
const WORDS: usize = MOST / BITS;

// The places in the page.
const QUEUED: usize = 0;
const ENDING: usize = 1;
const IDLE: usize = 16;
const SERVING: usize = IDLE + WORDS;
const PIDS: usize = SERVING + WORDS;
const COUNT: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
const _: () = assert!(PIDS + MOST <= COUNT.get());

/// The shared queue and page, from the master's side. Its workers inherit it.
#[derive(Debug)]
pub struct SharedQueue {
    sender: OwnedFd,
    receiver: OwnedFd,
    file: File,
    page: Arc<SharedNumbers>,
    /// The master's pid.
    master: u32,
}

impl SharedQueue {
    /// A queue and a page for the workers that will be forked.
    pub fn new() -> io::Result<Self> {
        let (sender, receiver) = message_queue()?;
        let file = memory_file((COUNT.get() * size_of::<u32>()) as u64)?;
        // SAFETY: the file is as long as that, and whoever gets it maps it by this code.
        let page = Arc::new(unsafe { SharedNumbers::map(&file, COUNT) }?);
        Ok(SharedQueue { sender, receiver, file, page, master: std::process::id() })
    }

    /// Takes over what another process has made, by the numbers that [`raw_fds`](Self::raw_fds) gave there.
    /// The descriptors stay the caller's; these are copies.
    ///
    /// # Safety
    /// Nobody closes the descriptors meanwhile, and nobody truncates the file.
    pub unsafe fn from_raw_fds(fds: [RawFd; 3]) -> io::Result<Self> {
        // SAFETY: as the caller promises.
        let copy = |fd| unsafe { borrow_fd(fd) }?.try_clone_to_owned();
        let [sender, receiver, file] = fds.map(copy);
        let file = File::from(file?);
        if file.metadata()?.len() < (COUNT.get() * size_of::<u32>()) as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the file is as long as that, stays so, and whoever gets it maps it by this code.
        let page = Arc::new(unsafe { SharedNumbers::map(&file, COUNT) }?);
        Ok(SharedQueue { sender: sender?, receiver: receiver?, file, page, master: std::process::id() })
    }

    /// Its descriptors: both ends of the queue, and the page's file.
    pub fn raw_fds(&self) -> [RawFd; 3] {
        [self.sender.as_raw_fd(), self.receiver.as_raw_fd(), self.file.as_raw_fd()]
    }

    /// This master's workers are about to end, and have no successors but another master's.
    pub fn end(&self) {
        self.page[ENDING].store(self.master, Ordering::SeqCst);
    }

    /// A worker is dead, and neither idle nor serving whatever it has said.
    pub fn forget(&self, pid: u32) {
        for slot in (0..MOST).filter(|slot| self.page[PIDS + slot].load(Ordering::SeqCst) == pid) {
            vacate(&self.page, slot);
        }
    }

    /// A place for this process among those who share; None when all are taken.
    pub(crate) fn member(&self) -> io::Result<Option<Member>> {
        let pid = std::process::id();
        self.clear_out(pid);
        let free = |slot: &usize| {
            let place = &self.page[PIDS + slot];
            place.compare_exchange(0, pid, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        let Some(slot) = (0..MOST).find(free) else { return Ok(None) };
        Ok(Some(Member {
            sender: self.sender.try_clone()?,
            receiver: self.receiver.try_clone()?,
            page: Arc::clone(&self.page),
            slot,
            master: self.master,
        }))
    }

    /// Vacates the places of processes that are gone without a master to say so: it was killed with them.
    fn clear_out(&self, own: u32) {
        for slot in 0..MOST {
            let place = &self.page[PIDS + slot];
            let pid = place.load(Ordering::SeqCst);
            // While it is this process's, nobody else sits down there.
            if pid != 0
                && !fastrack_sys::is_running(pid)
                && place.compare_exchange(pid, own, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                vacate(&self.page, slot);
            }
        }
    }
}

fn vacate(page: &SharedNumbers, slot: usize) {
    for set in [IDLE, SERVING] {
        page[set + slot / BITS].fetch_and(!(1 << (slot % BITS)), Ordering::SeqCst);
    }
    page[PIDS + slot].store(0, Ordering::SeqCst);
}

/// One worker's place at the queue.
#[derive(Debug)]
pub(crate) struct Member {
    sender: OwnedFd,
    receiver: OwnedFd,
    page: Arc<SharedNumbers>,
    slot: usize,
    master: u32,
}

impl Member {
    pub fn sender(&self) -> BorrowedFd<'_> {
        self.sender.as_fd()
    }

    pub fn receiver(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }

    pub fn raw_fds(&self) -> [RawFd; 2] {
        [self.sender.as_raw_fd(), self.receiver.as_raw_fd()]
    }

    /// How many connections there may be in the queue. Only a hint: a worker that dies between counting and sending
    /// leaves the number wrong until somebody finds the queue empty.
    pub fn queued(&self) -> u32 {
        self.page[QUEUED].load(Ordering::Relaxed)
    }

    /// Whether there may be any.
    pub fn is_anybody_queued(&self) -> bool {
        self.queued() > 0
    }

    pub fn count_one_more(&self) {
        self.page[QUEUED].fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_one_less(&self) {
        let less = |count: u32| count.checked_sub(1);
        // There is nothing to take from a count of none.
        let _ = self.page[QUEUED].fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// The queue was found empty.
    pub fn count_none(&self) {
        self.page[QUEUED].store(0, Ordering::Relaxed);
    }

    /// Whether this worker waits for clients.
    pub fn set_idle(&self, idle: bool) {
        self.set(IDLE, idle);
    }

    /// Whether this worker takes connections from the queue.
    pub fn set_serving(&self, serving: bool) {
        self.set(SERVING, serving);
    }

    fn set(&self, set: usize, on: bool) {
        let word = &self.page[set + self.slot / BITS];
        let bit = 1 << (self.slot % BITS);
        if on {
            word.fetch_or(bit, Ordering::SeqCst);
        } else {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Whether another worker waits for clients.
    pub fn is_another_idle(&self) -> bool {
        self.others(IDLE).any(|others| others != 0)
    }

    /// Whether another worker takes connections from the queue.
    pub fn is_another_serving(&self) -> bool {
        self.others(SERVING).any(|others| others != 0)
    }

    /// Whether another worker takes connections from the queue, or a successor of this one will, for whom they wait there.
    pub fn is_followed(&self) -> bool {
        self.page[ENDING].load(Ordering::SeqCst) != self.master || self.is_another_serving()
    }

    fn others(&self, set: usize) -> impl Iterator<Item = u32> + '_ {
        let words: &[AtomicU32] = &self.page[set..set + WORDS];
        words.iter().enumerate().map(|(index, word)| {
            let own = if index == self.slot / BITS { 1 << (self.slot % BITS) } else { 0 };
            word.load(Ordering::SeqCst) & !own
        })
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        vacate(&self.page, self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_sees_what_the_others_say() {
        let queue = SharedQueue::new().expect("a queue");
        // SAFETY: the queue outlives the call, and its file is never truncated.
        let copy = unsafe { SharedQueue::from_raw_fds(queue.raw_fds()) }.expect("a copy");
        let one = queue.member().expect("a member").expect("free");
        let two = copy.member().expect("a member").expect("free");
        one.set_idle(true);
        one.set_serving(true);
        assert!(!one.is_another_idle() && two.is_another_idle() && two.is_another_serving());
        one.count_one_more();
        assert!(two.is_anybody_queued());
        two.count_one_less();
        two.count_one_less();
        assert!(!one.is_anybody_queued());
        // Both are this process's; a dead one's word counts no more.
        queue.forget(std::process::id());
        assert!(!two.is_another_idle() && !two.is_another_serving());
    }

    #[test]
    fn the_seat_of_a_process_that_was_killed_with_its_master_is_vacated_by_the_next_to_come() {
        let queue = SharedQueue::new().expect("a queue");
        let one = queue.member().expect("a member").expect("free");
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        child.wait().expect("its end");
        queue.page[PIDS + 7].store(child.id(), Ordering::SeqCst);
        queue.page[IDLE].fetch_or(1 << 7, Ordering::SeqCst);
        queue.page[SERVING].fetch_or(1 << 7, Ordering::SeqCst);
        assert!(one.is_another_idle() && one.is_another_serving());
        let _other = queue.member().expect("a member").expect("free");
        assert!(!one.is_another_idle() && !one.is_another_serving());
    }

    #[test]
    fn there_is_a_seat_for_each_of_many_workers_and_then_none() {
        let queue = SharedQueue::new().expect("a queue");
        let mut seats: Vec<_> = (0..MOST).map(|_| queue.member().expect("a member").expect("free")).collect();
        assert!(queue.member().expect("no error").is_none());
        seats.iter().for_each(|member| member.set_idle(true));
        seats.truncate(1);
        assert!(!seats[0].is_another_idle());
        assert!(queue.member().expect("a member").is_some());
    }
}
