//! The page of memory that all workers share: who is idle, who serves, who collects garbage, and how long the queue is.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::request_state::QueueLength;
use fastrack_sys::{memory_file, SharedNumbers};

pub(super) const MEMBERS: usize = 512;

const BITS: usize = u32::BITS as usize;
const WORDS: usize = MEMBERS / BITS;

// Offsets in the flags.
const QUEUED: usize = 0;
const ENDING: usize = 1;
const MASTERS: usize = 15;
const IDLE: usize = ENDING + MASTERS;
const SERVING: usize = IDLE + WORDS;
const PIDS: usize = SERVING + WORDS;
const COLLECTOR: usize = PIDS + MEMBERS;
const COUNT: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
const _: () = assert!(COLLECTOR < COUNT.get());

const BYTES: u64 = (COUNT.get() * size_of::<u32>()) as u64;

/// A set of members: one bit each.
#[derive(Clone, Copy)]
pub(super) enum Set {
    /// They wait for clients.
    Idle = IDLE as isize,
    /// They take connections from the queue.
    Serving = SERVING as isize,
}

#[derive(Debug)]
pub(super) struct SharedFlags(SharedNumbers);

impl SharedFlags {
    pub fn create() -> io::Result<File> {
        memory_file(BYTES)
    }

    pub fn map(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() < BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the file is long enough. It is one that `create` has made: nobody truncates it, and all map it by this code.
        Ok(SharedFlags(unsafe { SharedNumbers::map(file, COUNT) }?))
    }

    /// The number of connections in the queue, for those who only look.
    pub fn into_queue_length(self) -> QueueLength {
        QueueLength::new(self.0, QUEUED)
    }

    /// See [`QueueCount`](super::count::QueueCount).
    pub fn queued(&self) -> &AtomicU32 {
        &self.0[QUEUED]
    }

    /// The pids of masters whose workers are about to end without successors: after USR2 there are two masters, and both
    /// may be told to stop.
    fn ending(&self) -> &[AtomicU32] {
        &self.0[ENDING..][..MASTERS]
    }

    pub fn is_ending(&self, master: u32) -> bool {
        self.ending().iter().any(|pid| pid.load(Ordering::SeqCst) == master)
    }

    pub fn set_ending(&self, master: u32) {
        let is_over = |pid: u32| pid == 0 || pid == master || !fastrack_sys::is_running(pid);
        let replace = |place: &AtomicU32| {
            place
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |pid| is_over(pid).then_some(master))
                .is_ok()
        };
        // There is a place: no more than two masters run at a time.
        self.ending().iter().any(replace);
    }

    /// Forgets what an older process with this pid has said.
    pub fn clear_ending(&self, master: u32) {
        for place in self.ending() {
            // It fails for all other pids, which is right.
            let _ = place.compare_exchange(master, 0, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    pub fn pid(&self, place: usize) -> &AtomicU32 {
        &self.0[PIDS + place]
    }

    pub fn join(&self, pid: u32) -> Option<usize> {
        self.remove_dead(pid);
        (0..MEMBERS).find(|place| {
            self.pid(*place).compare_exchange(0, pid, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        })
    }

    /// Frees the place of a process, unless that has been done: another may have the place by now. While the place has
    /// the pid of `by`, who does this, nobody else takes it.
    pub fn vacate(&self, place: usize, pid: u32, by: u32) {
        if self.pid(place).compare_exchange(pid, by, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.set(Set::Idle, place, false);
            self.set(Set::Serving, place, false);
            self.release_collection(pid);
            self.pid(place).store(0, Ordering::SeqCst);
        }
    }

    /// Frees the places of processes that were killed together with their master, so that nobody has reported them
    /// dead.
    fn remove_dead(&self, own_pid: u32) {
        for place in 0..MEMBERS {
            let pid = self.pid(place).load(Ordering::SeqCst);
            if pid != 0 && !fastrack_sys::is_running(pid) {
                self.vacate(place, pid, own_pid);
            }
        }
    }

    /// Has a process be the one that collects garbage, unless another one is, or it is already. One that was killed is not, even before
    /// it is reaped.
    pub fn claim_collection(&self, pid: u32) -> bool {
        let is_over = |holder: u32| holder == 0 || holder != pid && !fastrack_sys::is_alive(holder);
        let replace = |holder: u32| is_over(holder).then_some(pid);
        self.0[COLLECTOR].fetch_update(Ordering::SeqCst, Ordering::SeqCst, replace).is_ok()
    }

    pub fn release_collection(&self, pid: u32) {
        // It fails for all other pids, which is right.
        let _ = self.0[COLLECTOR].compare_exchange(pid, 0, Ordering::SeqCst, Ordering::SeqCst);
    }

    pub fn set(&self, set: Set, place: usize, on: bool) {
        let word = &self.0[set as usize + place / BITS];
        if on {
            word.fetch_or(bit(place), Ordering::SeqCst);
        } else {
            word.fetch_and(!bit(place), Ordering::SeqCst);
        }
    }

    pub fn has_other(&self, set: Set, place: usize) -> bool {
        self.words(set).iter().enumerate().any(|(index, word)| others(index, word, place) != 0)
    }

    /// The members of a set, but for one.
    pub fn others(&self, set: Set, place: usize) -> impl Iterator<Item = usize> + '_ {
        self.words(set).iter().enumerate().flat_map(move |(index, word)| {
            let others = others(index, word, place);
            (0..BITS).filter(move |at| others >> at & 1 == 1).map(move |at| index * BITS + at)
        })
    }

    fn words(&self, set: Set) -> &[AtomicU32] {
        &self.0[set as usize..][..WORDS]
    }
}

/// The members in one word of a set, but for this place.
fn others(index: usize, word: &AtomicU32, place: usize) -> u32 {
    let own = if index == place / BITS { bit(place) } else { 0 };
    word.load(Ordering::SeqCst) & !own
}

fn bit(place: usize) -> u32 {
    1 << (place % BITS)
}
