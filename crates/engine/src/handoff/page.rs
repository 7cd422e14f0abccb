//! The page of memory that all workers share: who is idle, who serves, and how long the queue is.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, Ordering};

use fastrack_sys::{memory_file, SharedNumbers};

pub(super) const MEMBERS: usize = 512;

const BITS: usize = u32::BITS as usize;
const WORDS: usize = MEMBERS / BITS;

// Offsets in the page.
const QUEUED: usize = 0;
const ENDING: usize = 1;
const IDLE: usize = 16;
const SERVING: usize = IDLE + WORDS;
const PIDS: usize = SERVING + WORDS;
const COUNT: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
const _: () = assert!(PIDS + MEMBERS <= COUNT.get());

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
pub(super) struct Page(SharedNumbers);

impl Page {
    pub fn create() -> io::Result<File> {
        memory_file(BYTES)
    }

    pub fn map(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() < BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the file is long enough. It is one that `create` has made: nobody truncates it, and all map it by this code.
        Ok(Page(unsafe { SharedNumbers::map(file, COUNT) }?))
    }

    /// Length of the queue; wrong after a worker has died between counting and sending, until it is found empty.
    pub fn queued(&self) -> &AtomicU32 {
        &self.0[QUEUED]
    }

    /// The pid of a master whose workers are about to end without successors.
    pub fn ending(&self) -> &AtomicU32 {
        &self.0[ENDING]
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

    pub fn leave(&self, place: usize) {
        self.set(Set::Idle, place, false);
        self.set(Set::Serving, place, false);
        self.pid(place).store(0, Ordering::SeqCst);
    }

    /// Frees the places of processes that were killed together with their master, so that nobody has reported them
    /// dead.
    fn remove_dead(&self, own_pid: u32) {
        for place in 0..MEMBERS {
            let pid = self.pid(place).load(Ordering::SeqCst);
            // While the place has this process's pid, nobody else takes it.
            if pid != 0
                && !fastrack_sys::is_running(pid)
                && self.pid(place).compare_exchange(pid, own_pid, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                self.leave(place);
            }
        }
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
        let first = set as usize;
        self.0[first..first + WORDS].iter().enumerate().any(|(index, word)| {
            let own = if index == place / BITS { bit(place) } else { 0 };
            word.load(Ordering::SeqCst) & !own != 0
        })
    }
}

fn bit(place: usize) -> u32 {
    1 << (place % BITS)
}
