//! Words of shared memory that one process writes and others read.

use std::ops::Range;
use std::sync::atomic::{fence, AtomicU64, Ordering};

/// A number that one thread at a time writes and any process may read, with plain loads and stores: no system call, no lock.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Word(AtomicU64);

impl Word {
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    #[inline]
    pub fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    /// Sets the number. A reader that [sees](Self::published) the number also sees all earlier writes of this thread.
    #[inline]
    pub fn publish(&self, number: u64) {
        self.0.store(number, Ordering::Release);
    }

    /// The number that was last [published](Self::publish).
    #[inline]
    pub fn published(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// The sequence number of a seqlock. It is odd while its owner writes, so that readers can tell a torn text.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Sequence(Word);

impl Sequence {
    /// Begins anew: nobody writes or reads.
    pub fn reset(&self) {
        self.0.set(0);
    }

    /// Runs `write`. Returns the number after it, which differs each time.
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

    /// Runs `read`. None if the owner has written meanwhile.
    pub fn read<T>(&self, read: impl FnOnce() -> T) -> Option<T> {
        let before = self.0.published();
        let found = read();
        fence(Ordering::Acquire);
        (before % 2 == 0 && before == self.0.get()).then_some(found)
    }
}

/// A text from a client, truncated to a number of words.
#[derive(Debug)]
#[repr(C)]
pub struct Text<const WORDS: usize> {
    /// In bytes.
    length: Word,
    words: [Word; WORDS],
}

impl<const WORDS: usize> Default for Text<WORDS> {
    fn default() -> Self {
        Text { length: Word::default(), words: std::array::from_fn(|_| Word::default()) }
    }
}

impl<const WORDS: usize> Text<WORDS> {
    /// Becomes a copy of another text.
    pub fn copy(&self, other: &Self) {
        self.length.set(other.length.get());
        self.words.iter().zip(&other.words).for_each(|(word, other)| word.set(other.get()));
    }

    /// Copies as much of `buffer[text]` as fits. It copies whole words, also past the end of the text.
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

    pub fn clear(&self) {
        self.length.set(0);
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
