//! What each worker is at, in memory that it shares with the master: the
//! master can still read it when the worker is dead, however it died.
//!
//! A worker writes its own slot and nobody else's, with plain stores: no
//! system call, no lock. A sequence number that is odd while a slot is being
//! written tells readers of a text that is not whole (a seqlock).

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::sync::Arc;

use fastrack_http::KnownName;
use fastrack_sys::SharedNumbers;

use crate::conn::request::Request;

/// Workers that have a slot, at most.
const MOST: usize = 1024;

/// Words of one slot: 512 bytes.
const SLOT: usize = 64;
const COUNT: NonZeroUsize = NonZeroUsize::new(MOST * SLOT).unwrap();

// The places in a slot.
const SEQUENCE: usize = 0;
const STATE: usize = 1;
const STARTED: usize = 2;
const DEADLINE: usize = 3;
const REQUESTS: usize = 4;
/// How long the texts are, in bytes: method and target in the lower half, the request's id in the upper one.
const LENGTHS: usize = 5;
const LINE: usize = 6;
const LINE_WORDS: usize = 26;
const ID: usize = LINE + LINE_WORDS;
const ID_WORDS: usize = 8;
const _: () = assert!(ID + ID_WORDS <= SLOT);

const WORD: usize = size_of::<u64>();

/// A deadline that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

/// What a worker is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// The slot has no worker.
    Free = 0,
    /// Nothing, or something that is no request.
    Waiting = 1,
    /// A request, which the application has.
    Serving = 2,
    /// Its end: a request has taken too long.
    Ending = 3,
}

/// A slot, as the master reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What the worker is at.
    pub state: State,
    /// When the application got the request, in milliseconds of the steady clock.
    pub started: u64,
    /// When it is to be done; None when there is no limit, or when it is the client that is waited for.
    pub deadline: Option<u64>,
    /// How many requests were answered before.
    pub requests: u64,
    /// Method and target of the request, the latter cut off where it is long; empty when it could not be read whole.
    pub line: Vec<u8>,
    /// Its X-Request-ID; empty if it has none.
    pub id: Vec<u8>,
}

/// All slots, from the master's side.
#[derive(Debug)]
pub struct Scoreboard {
    page: Arc<SharedNumbers<AtomicU64>>,
}

impl Scoreboard {
    /// Slots that this process shares with the workers that it will fork.
    pub fn new() -> io::Result<Self> {
        Ok(Scoreboard { page: Arc::new(SharedNumbers::for_children(COUNT)?) })
    }

    /// Takes a free slot for a worker that is about to be forked; None when all are taken.
    pub fn reserve(&self) -> Option<usize> {
        let free = |index: &usize| self.state(*index) == State::Free;
        let index = (0..MOST).find(free)?;
        let slot = self.words(index);
        slot[1..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        slot[SEQUENCE].store(0, Ordering::Relaxed);
        slot[STATE].store(State::Waiting as u64, Ordering::SeqCst);
        Some(index)
    }

    /// The worker of this slot is gone.
    pub fn release(&self, index: usize) {
        if index < MOST {
            self.words(index)[STATE].store(State::Free as u64, Ordering::SeqCst);
        }
    }

    /// What the worker of a slot is at; after its death, what it was at.
    pub fn read(&self, index: usize) -> Option<Entry> {
        let state = if index < MOST { self.state(index) } else { State::Free };
        if state == State::Free {
            return None;
        }
        let slot = self.words(index);
        let before = slot[SEQUENCE].load(Ordering::Acquire);
        let deadline = slot[DEADLINE].load(Ordering::Relaxed);
        let lengths = slot[LENGTHS].load(Ordering::Relaxed);
        let mut entry = Entry {
            state,
            started: slot[STARTED].load(Ordering::Relaxed),
            deadline: (deadline != NEVER).then_some(deadline),
            requests: slot[REQUESTS].load(Ordering::Relaxed),
            line: load(&slot[LINE..][..LINE_WORDS], lengths as u32),
            id: load(&slot[ID..][..ID_WORDS], (lengths >> 32) as u32),
        };
        fence(Ordering::Acquire);
        if before % 2 == 1 || before != slot[SEQUENCE].load(Ordering::Relaxed) {
            entry.line.clear();
            entry.id.clear();
        }
        Some(entry)
    }

    /// A slot, for the worker that it was reserved for; None if there is no such slot.
    pub fn slot(&self, index: usize) -> Option<Slot> {
        (index < MOST).then(|| Slot { page: Arc::clone(&self.page), base: index * SLOT })
    }

    fn state(&self, index: usize) -> State {
        match self.words(index)[STATE].load(Ordering::SeqCst) {
            0 => State::Free,
            1 => State::Waiting,
            2 => State::Serving,
            _ => State::Ending,
        }
    }

    fn words(&self, index: usize) -> &[AtomicU64] {
        &self.page[index * SLOT..][..SLOT]
    }
}

/// One worker's slot, from its own side.
#[derive(Clone, Debug)]
pub struct Slot {
    page: Arc<SharedNumbers<AtomicU64>>,
    base: usize,
}

impl Slot {
    fn words(&self) -> &[AtomicU64] {
        &self.page[self.base..][..SLOT]
    }

    /// The application gets a request now. What is returned tells it from every other request of this worker.
    pub(crate) fn begin(&self, request: &Request<'_>, now: u64, deadline: u64) -> u64 {
        let slot = self.words();
        let sequence = slot[SEQUENCE].load(Ordering::Relaxed);
        slot[SEQUENCE].store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        slot[STARTED].store(now, Ordering::Relaxed);
        slot[DEADLINE].store(deadline, Ordering::Relaxed);
        let line = store(&slot[LINE..][..LINE_WORDS], request.bytes, line(request));
        let id = store(&slot[ID..][..ID_WORDS], request.bytes, id(request));
        slot[LENGTHS].store(line | id << 32, Ordering::Relaxed);
        let sequence = sequence.wrapping_add(2);
        slot[SEQUENCE].store(sequence, Ordering::Release);
        slot[STATE].store(State::Serving as u64, Ordering::Release);
        sequence
    }

    /// The application is done with it.
    pub(crate) fn end(&self) {
        let slot = self.words();
        slot[STATE].store(State::Waiting as u64, Ordering::Release);
        let requests = slot[REQUESTS].load(Ordering::Relaxed);
        slot[REQUESTS].store(requests.wrapping_add(1), Ordering::Relaxed);
    }

    /// The worker is about to end because of this request.
    pub(crate) fn give_up(&self) {
        self.words()[STATE].store(State::Ending as u64, Ordering::SeqCst);
    }

    pub(crate) fn started(&self) -> u64 {
        self.words()[STARTED].load(Ordering::Relaxed)
    }

    pub(crate) fn deadline(&self) -> u64 {
        self.words()[DEADLINE].load(Ordering::Relaxed)
    }

    pub(crate) fn set_deadline(&self, deadline: u64) {
        self.words()[DEADLINE].store(deadline, Ordering::Relaxed);
    }

    /// Whether the method of the request that this worker is at is HEAD. For signal handlers, too.
    pub(crate) fn is_head_request(&self) -> bool {
        let method = self.words()[LINE].load(Ordering::Relaxed).to_ne_bytes();
        self.words()[LENGTHS].load(Ordering::Relaxed) as u32 >= 5 && method.starts_with(b"HEAD ")
    }

    /// Method and target, and the id, of the request that this worker is at.
    pub(crate) fn texts(&self) -> (Vec<u8>, Vec<u8>) {
        let slot = self.words();
        let lengths = slot[LENGTHS].load(Ordering::Relaxed);
        let line = load(&slot[LINE..][..LINE_WORDS], lengths as u32);
        (line, load(&slot[ID..][..ID_WORDS], (lengths >> 32) as u32))
    }
}

/// Where method and target are, which stand side by side (RFC 9112 §3).
fn line(request: &Request<'_>) -> Range<usize> {
    Range::from(request.head.method).start..Range::from(request.head.target).end
}

fn id(request: &Request<'_>) -> Range<usize> {
    let field = request.head.fields.iter().find(|field| field.known == Some(KnownName::XRequestId));
    field.map_or(0..0, |field| field.value.into())
}

/// Copies as much of a text as fits, and says how much that is. A whole word is copied where the text ends before it
/// does, if the buffer has one: its length tells how much of that counts.
fn store(words: &[AtomicU64], buffer: &[u8], text: Range<usize>) -> u64 {
    let length = text.len().min(words.len() * WORD);
    for (index, word) in words.iter().take(length.div_ceil(WORD)).enumerate() {
        let rest = buffer.get(text.start + index * WORD..).unwrap_or_default();
        let bytes = rest.first_chunk().copied().unwrap_or_else(|| padded(rest));
        word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
    length as u64
}

#[cold]
fn padded(rest: &[u8]) -> [u8; WORD] {
    std::array::from_fn(|index| rest.get(index).copied().unwrap_or_default())
}

fn load(words: &[AtomicU64], length: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
    bytes.truncate(length as usize);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::request::with_request;

    fn begin(slot: &Slot, bytes: &[u8]) -> u64 {
        with_request(bytes, |request| slot.begin(request, 5, 7))
    }

    #[test]
    fn the_master_reads_what_the_worker_is_at() {
        let board = Scoreboard::new().expect("memory");
        assert_eq!((board.read(0), board.read(MOST)), (None, None));
        let index = board.reserve().expect("a slot");
        let slot = board.slot(index).expect("the slot");
        assert_eq!(board.read(index).map(|entry| entry.state), Some(State::Waiting));
        let one = begin(&slot, b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nX-Request-ID: abc-123456789\r\n\r\n");
        let line = b"GET /a?b=c".to_vec();
        let serving = Entry {
            state: State::Serving,
            started: 5,
            deadline: Some(7),
            requests: 0,
            line,
            id: b"abc-123456789".to_vec(),
        };
        assert_eq!(board.read(index), Some(serving));
        assert_eq!(slot.texts(), (b"GET /a?b=c".to_vec(), b"abc-123456789".to_vec()));
        slot.end();
        assert_eq!(board.read(index).map(|entry| (entry.state, entry.requests)), Some((State::Waiting, 1)));
        let two = begin(&slot, b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
        slot.set_deadline(NEVER);
        let entry = board.read(index).expect("an entry");
        assert_eq!(
            (entry.line.as_slice(), entry.id.as_slice(), entry.deadline),
            (&b"HEAD /"[..], &b""[..], None)
        );
        assert_ne!(one, two);
        board.release(index);
        assert_eq!(board.read(index), None);
    }

    #[test]
    fn a_long_target_is_cut_off_and_one_half_written_is_not_shown() {
        let board = Scoreboard::new().expect("memory");
        let index = board.reserve().expect("a slot");
        let slot = board.slot(index).expect("the slot");
        let long = format!(
            "GET /{} HTTP/1.1\r\nHost: h\r\nX-Request-Id: {}\r\n\r\n",
            "p".repeat(999),
            "i".repeat(99)
        );
        begin(&slot, long.as_bytes());
        let entry = board.read(index).expect("an entry");
        assert_eq!(entry.line, format!("GET /{}", "p".repeat(203)).into_bytes());
        assert_eq!(entry.id, b"i".repeat(64));
        slot.words()[SEQUENCE].fetch_add(1, Ordering::SeqCst);
        let entry = board.read(index).expect("an entry");
        assert_eq!((entry.state, entry.line.len(), entry.id.len()), (State::Serving, 0, 0));
    }

    #[test]
    fn there_is_a_slot_for_each_of_many_workers_and_then_none() {
        let board = Scoreboard::new().expect("memory");
        let slots: Vec<_> = std::iter::from_fn(|| board.reserve()).collect();
        assert_eq!(slots, (0..MOST).collect::<Vec<_>>());
        board.release(17);
        assert_eq!((board.reserve(), board.reserve()), (Some(17), None));
    }
}
