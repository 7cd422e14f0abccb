//! The page of memory that all workers share: who is idle, who serves, who collects garbage, and how long the queue is.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::count::QueueCount;
use crate::request_state::MAX_PROCESSES;
use fastrack_sys::{is_alive, is_running, memory_file, Shareable, SharedMemory};

/// Most workers that share a queue.
pub(super) const MEMBERS: usize = MAX_PROCESSES;

/// What the page holds; zeroes are one that nobody uses. Masters of different builds may share it: see
/// [`LAYOUT`](super::header::LAYOUT).
#[repr(C, align(4096))]
pub(super) struct SharedFlags {
    pub queued: QueueCount,
    /// Masters whose workers are about to end without successors: after USR2 there are two masters, and both may be told to stop.
    ending: [PidPlace; 15],
    /// Members that wait for clients.
    pub idle: MemberSet,
    /// Members that take connections from the queue.
    pub serving: MemberSet,
    /// The members.
    pub pids: [PidPlace; MEMBERS],
    /// The process that collects garbage (OobGC=auto).
    collector: PidPlace,
}

// SAFETY: it consists of numbers of 32 bits, which are atomic.
unsafe impl Shareable for SharedFlags {}

impl SharedFlags {
    pub fn create() -> io::Result<File> {
        memory_file(size_of::<Self>() as u64)
    }

    pub fn map(file: &File) -> io::Result<SharedMemory<Self>> {
        // SAFETY: the file is one that `create` has made: nobody truncates it, and all map it by this code.
        unsafe { SharedMemory::of_file(file) }
    }

    pub fn is_ending(&self, master: u32) -> bool {
        self.ending.iter().any(|place| place.get() == master)
    }

    pub fn set_ending(&self, master: u32) {
        let is_over = |pid: u32| pid == 0 || pid == master || !is_running(pid);
        // There is a place: no more than two masters run at a time.
        self.ending.iter().any(|place| place.take(master, is_over));
    }

    /// Forgets what an older process with this pid has said.
    pub fn clear_ending(&self, master: u32) {
        self.ending.iter().for_each(|place| place.leave(master));
    }

    pub fn join(&self, pid: u32) -> Option<usize> {
        self.remove_dead(pid);
        self.pids.iter().position(|place| place.pass(0, pid))
    }

    /// Frees the place of a process, unless that has been done: another may have the place by now. While the place has
    /// the pid of `by`, who does this, nobody else takes it.
    pub fn vacate(&self, member: usize, pid: u32, by: u32) {
        if self.pids[member].pass(pid, by) {
            self.idle.set(member, false);
            self.serving.set(member, false);
            self.release_collection(pid);
            self.pids[member].set(0);
        }
    }

    /// Frees the places of processes that were killed together with their master, so that nobody has reported them
    /// dead.
    fn remove_dead(&self, own_pid: u32) {
        for (member, place) in self.pids.iter().enumerate() {
            let pid = place.get();
            if pid != 0 && !is_running(pid) {
                self.vacate(member, pid, own_pid);
            }
        }
    }

    /// Makes a process the one that collects garbage, if no living process is, not even this one. A killed process that its master has
    /// not reaped yet is dead.
    pub fn claim_collection(&self, pid: u32) -> bool {
        self.collector.take(pid, |holder| holder == 0 || holder != pid && !is_alive(holder))
    }

    pub fn release_collection(&self, pid: u32) {
        self.collector.leave(pid);
    }
}

/// A place that one process has at a time: its pid, or 0.
#[repr(transparent)]
pub(super) struct PidPlace(AtomicU32);

impl PidPlace {
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Only for whoever has the place.
    pub fn set(&self, pid: u32) {
        self.0.store(pid, Ordering::SeqCst);
    }

    /// From one process to another. False if that one does not have it.
    fn pass(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The process takes the place if what `is_over` says of the one that has it is true.
    fn take(&self, pid: u32, is_over: impl Fn(u32) -> bool) -> bool {
        let replace = |holder: u32| is_over(holder).then_some(pid);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, replace).is_ok()
    }

    /// The process leaves the place, if it has that.
    fn leave(&self, pid: u32) {
        self.pass(pid, 0);
    }
}

/// A set of members: one bit each.
#[repr(transparent)]
pub(super) struct MemberSet([AtomicU32; MEMBERS.div_ceil(MemberSet::BITS)]);

impl MemberSet {
    const BITS: usize = u32::BITS as usize;

    pub fn set(&self, member: usize, on: bool) {
        let word = &self.0[member / Self::BITS];
        if on {
            word.fetch_or(Self::bit(member), Ordering::SeqCst);
        } else {
            word.fetch_and(!Self::bit(member), Ordering::SeqCst);
        }
    }

    pub fn has_other(&self, member: usize) -> bool {
        self.words_without(member).any(|word| word != 0)
    }

    /// All of them, but for one.
    pub fn others(&self, member: usize) -> impl Iterator<Item = usize> + '_ {
        self.words_without(member).enumerate().flat_map(|(index, word)| {
            (0..Self::BITS).filter(move |at| word >> at & 1 == 1).map(move |at| index * Self::BITS + at)
        })
    }

    fn words_without(&self, member: usize) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().enumerate().map(move |(index, word)| {
            let own = if index == member / Self::BITS { Self::bit(member) } else { 0 };
            word.load(Ordering::SeqCst) & !own
        })
    }

    fn bit(member: usize) -> u32 {
        1 << (member % Self::BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::LAYOUT;
    use super::SharedFlags;
    use std::mem::offset_of;

    #[test]
    fn another_layout_has_another_name() {
        let queued = offset_of!(SharedFlags, queued);
        let sets = [offset_of!(SharedFlags, idle), offset_of!(SharedFlags, serving)];
        let pids = [
            offset_of!(SharedFlags, ending),
            offset_of!(SharedFlags, pids),
            offset_of!(SharedFlags, collector),
        ];
        assert_eq!((LAYOUT, queued, sets, pids), ("fastrak6", 0, [64, 192], [4, 320, 4416]));
    }
}
