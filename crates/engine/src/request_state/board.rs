//! What the scoreboard's memory holds. Zeroes are a board without workers.

use std::ops::Range;
use std::sync::atomic::{fence, Ordering};

use fastrack_sys::Shareable;

use super::cause::Cause;
use super::counters::CounterWords;
use super::word::Word;

/// Most threads of a worker that answer requests: each has a part of its slot.
pub const MAX_THREADS: usize = 64;

/// Most workers of a server.
pub const MAX_WORKERS: usize = 512;

/// Most processes of workers at a time: each worker may have a successor that has begun before it has ended.
pub(crate) const MAX_PROCESSES: usize = 2 * MAX_WORKERS;

/// All of it.
#[repr(C)]
pub(super) struct Board {
    pub slots: [WorkerSlot; MAX_PROCESSES],
    /// How many slots have ever been used: those from this one on have nothing to be read.
    pub used: Word,
    /// How many workers were replaced, by the cause.
    pub restarts: [Word; Cause::ALL.len()],
    /// Requests of workers that have ended, by their number. The master writes it.
    pub past_requests: [Word; MAX_WORKERS],
    /// Changes while the requests of a worker go from its slot to `past_requests`.
    pub releases: Sequence,
}

// SAFETY: it consists of Words, which are atomic.
unsafe impl Shareable for Board {}

/// A worker's place. It begins a page: the kernel provides those that are used, one for a worker with few threads.
#[repr(C, align(4096))]
pub(super) struct WorkerSlot {
    pub worker: WorkerWords,
    pub memory: MemoryWords,
    /// The worker's, and those of the workers that had the slot before.
    pub counters: CounterWords,
    /// For how long those had been in the application, in milliseconds.
    pub busy_before: Word,
    /// How many threads there are besides the first.
    pub other_threads: Word,
    pub threads: [ThreadSlot; MAX_THREADS],
}

/// Which worker it is: a [`WorkerId`](super::scoreboard::WorkerId).
#[repr(C)]
pub(super) struct WorkerWords {
    pub nr: Word,
    pub generation: Word,
    /// Published last; 0 before the worker was forked.
    pub pid: Word,
}

/// What it has found that its process takes: a [`Memory`](super::scoreboard::Memory). Zeroes where it has not looked.
#[repr(C)]
pub(super) struct MemoryWords {
    pub proportional: Word,
    pub private: Word,
}

/// What one thread is doing. It has cache lines (64 bytes) of its own.
#[repr(C, align(64))]
pub(super) struct ThreadSlot {
    pub state: StateWord,
    /// Of the rest.
    pub sequence: Sequence,
    /// When the request, or its callbacks, began, in milliseconds of the monotonic clock.
    pub started: Word,
    /// When it must be done, or [`NEVER`].
    pub deadline: Word,
    /// 1 from the beginning of the request's callbacks on.
    pub in_callbacks: Word,
    /// Requests answered before this one.
    pub requests: Word,
    /// Method and target.
    pub line: Text<26>,
    /// X-Request-ID.
    pub id: Text<8>,
}

/// A deadline that never comes.
pub(super) const NEVER: u64 = u64::MAX;

impl ThreadSlot {
    /// Forgets what a former worker's thread has left.
    pub fn begin(&self) {
        let ThreadSlot { state, sequence, started, deadline, in_callbacks, requests, line, id } = self;
        let lengths = [&line.length, &id.length];
        [&sequence.0, started, deadline, in_callbacks, requests]
            .into_iter()
            .chain(lengths)
            .for_each(|word| word.set(0));
        state.set(State::Waiting);
    }
}

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum State {
    /// The slot has no worker.
    Free = 0,
    /// It has no request.
    Waiting = 1,
    /// The application is answering a request, or its callbacks run after the response.
    Serving = 2,
    /// It is about to exit because its request exceeded the time limit.
    Ending = 3,
}

/// A [`State`].
#[repr(transparent)]
pub(super) struct StateWord(Word);

impl StateWord {
    pub fn get(&self) -> State {
        match self.0.published() {
            0 => State::Free,
            1 => State::Waiting,
            2 => State::Serving,
            _ => State::Ending,
        }
    }

    #[inline]
    pub fn set(&self, state: State) {
        self.0.publish(state as u64);
    }
}

/// The sequence number of a seqlock: it is odd while something is being written, so that readers can tell a torn text.
#[repr(transparent)]
pub(super) struct Sequence(Word);

impl Sequence {
    /// Writes something. Returns the number after that, which is another one each time.
    #[inline]
    pub fn write(&self, write: impl FnOnce()) -> u64 {
        let before = self.0.get();
        self.0.set(before.wrapping_add(1));
        fence(Ordering::Release);
        write();
        let after = before.wrapping_add(2);
        self.0.publish(after);
        after
    }

    /// Reads something. None if it was being written meanwhile.
    pub fn read<T>(&self, read: impl FnOnce() -> T) -> Option<T> {
        let before = self.0.published();
        let found = read();
        fence(Ordering::Acquire);
        (before % 2 == 0 && before == self.0.get()).then_some(found)
    }
}

/// A text that a client sent, truncated to a number of words.
#[repr(C)]
pub(super) struct Text<const WORDS: usize> {
    /// In bytes.
    length: Word,
    words: [Word; WORDS],
}

impl<const WORDS: usize> Text<WORDS> {
    /// Copies what fits of a text in a buffer: whole words, even past the end of the text.
    #[inline]
    pub fn set(&self, buffer: &[u8], text: Range<usize>) {
        let length = text.len().min(size_of_val(&self.words));
        self.length.set(length as u64);
        let (used, _) = self.words.split_at(length.div_ceil(size_of::<Word>()));
        for (index, word) in used.iter().enumerate() {
            let rest = buffer.get(text.start + index * size_of::<Word>()..).unwrap_or_default();
            word.set(u64::from_ne_bytes(rest.first_chunk().copied().unwrap_or_else(|| padded(rest))));
        }
    }

    pub fn get(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.get().to_ne_bytes()).collect();
        bytes.truncate(self.length.get() as usize);
        bytes
    }
}

#[cold]
fn padded(rest: &[u8]) -> [u8; size_of::<Word>()] {
    std::array::from_fn(|index| rest.get(index).copied().unwrap_or_default())
}
