//! The page of memory that all workers share: idle and serving workers, the garbage collector's claim, and the length
//! of the queue.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use super::count::QueueCount;
use crate::scoreboard::MAX_PROCESSES;
use fastrack_sys::{is_alive, is_running, memory_file, Shareable, SharedMemory};

/// The highest number of workers that share a queue.
pub(super) const MEMBERS: usize = MAX_PROCESSES;

/// The content of the page. Zeroes are an unused page. Masters of different builds may share a page: see
/// [`LAYOUT`](super::header::LAYOUT).
#[repr(C, align(4096))]
pub(super) struct SharedFlags {
    pub queued: QueueCount,
    /// Masters whose workers are about to end without successors. After USR2 there are two masters, and both may stop.
    ending: [PidEntry; 15],
    /// Members that wait for clients.
    pub idle: MemberSet,
    /// Members that receive connections from the queue.
    pub serving: MemberSet,
    /// The pids of the members.
    pub pids: [PidEntry; MEMBERS],
    /// The process that collects garbage (OobGC=auto).
    collector: PidEntry,
}

// SAFETY: all fields are atomic numbers of 32 bits.
unsafe impl Shareable for SharedFlags {}

impl SharedFlags {
    pub fn create() -> io::Result<File> {
        memory_file(size_of::<Self>() as u64)
    }

    pub fn map(file: &File) -> io::Result<SharedMemory<Self>> {
        // SAFETY: `create` has made the file. No process truncates it, and all processes map it by this code.
        unsafe { SharedMemory::of_file(file) }
    }

    pub fn is_ending(&self, master: u32) -> bool {
        self.ending.iter().any(|entry| entry.get() == master)
    }

    pub fn set_ending(&self, master: u32) {
        let is_over = |pid: u32| pid == 0 || pid == master || !is_running(pid);
        // An entry is always free, because no more than two masters run at a time.
        self.ending.iter().any(|entry| entry.take(master, is_over));
    }

    /// Clears the entry of an older process with this pid.
    pub fn clear_ending(&self, master: u32) {
        self.ending.iter().for_each(|entry| entry.clear(master));
    }

    /// Makes the process a member and returns its index; None if there are [`MEMBERS`] already.
    pub fn join(&self, pid: u32) -> Option<usize> {
        self.remove_dead(pid);
        self.pids.iter().position(|member| member.replace(0, pid))
    }

    /// Removes a member, unless its index already belongs to another process. The pid of the caller, `by`, reserves the
    /// index while the flags are cleared.
    pub fn vacate(&self, member: usize, pid: u32, by: u32) {
        if self.pids[member].replace(pid, by) {
            self.idle.set(member, false);
            self.serving.set(member, false);
            self.release_collection(pid);
            self.pids[member].set(0);
        }
    }

    /// Removes processes that were killed together with their master: no master has removed them.
    fn remove_dead(&self, own_pid: u32) {
        for (member, entry) in self.pids.iter().enumerate() {
            let pid = entry.get();
            if pid != 0 && !is_running(pid) {
                self.vacate(member, pid, own_pid);
            }
        }
    }

    /// Makes a process the one that collects garbage. Returns false if a living process already collects, even this one. A killed process
    /// counts as dead before its master has reaped it.
    pub fn claim_collection(&self, pid: u32) -> bool {
        self.collector.take(pid, |holder| holder == 0 || holder != pid && !is_alive(holder))
    }

    pub fn release_collection(&self, pid: u32) {
        self.collector.clear(pid);
    }
}

/// An entry for one process at a time: its pid, or 0.
#[repr(transparent)]
pub(super) struct PidEntry(AtomicU32);

impl PidEntry {
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Only for the process that has the entry.
    pub fn set(&self, pid: u32) {
        self.0.store(pid, Ordering::SeqCst);
    }

    /// Passes the entry from one process to another. Returns false if the first process does not have it.
    fn replace(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Gives the entry to the process if `is_over` is true for the present holder. Returns whether it did.
    fn take(&self, pid: u32, is_over: impl Fn(u32) -> bool) -> bool {
        let replace = |holder: u32| is_over(holder).then_some(pid);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, replace).is_ok()
    }

    /// Clears the entry if the process has it.
    fn clear(&self, pid: u32) {
        self.replace(pid, 0);
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

    /// All members of the set except one.
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
        assert_eq!((LAYOUT, queued, sets, pids), ("fastrak7", 0, [64, 192], [4, 320, 4416]));
    }
}
