//! What each worker is doing, in memory shared with the master. The master can read it even after a worker has died.
//!
//! A worker writes only its own slot, with plain stores: no system call, no lock. A slot is a seqlock: its sequence
//! number is odd while it is being written, so readers can discard a torn text.

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::sync::Arc;

use fastrack_http::{Head, KnownName};
use fastrack_sys::SharedNumbers;

use super::cause::Cause;
use super::counters::{self, Counters};

const SLOTS: usize = 1024;

/// Most threads of a worker that answer requests: each has a part of its slot.
pub const MAX_THREADS: usize = 64;

/// Words per thread: 512 bytes. The kernel provides the memory of those that are used.
const PART: usize = 64;
const SLOT: usize = MAX_THREADS * PART;

/// The counters of all slots, which come after the slots, and then the master's own.
const COUNTERS: usize = SLOTS * SLOT;
const MASTER: usize = COUNTERS + SLOTS * counters::WORDS;
/// How many slots have ever been used.
const USED: usize = MASTER;
const RESTARTS: usize = MASTER + 1;
const COUNT: NonZeroUsize = NonZeroUsize::new(RESTARTS + Cause::ALL.len()).unwrap();

// Offsets in a part.
const SEQUENCE: usize = 0;
const STATE: usize = 1;
const STARTED: usize = 2;
const DEADLINE: usize = 3;
const REQUESTS: usize = 4;
/// Lengths of the texts in bytes: method and target in the lower half, request id in the upper half. The highest bit
/// says that the application's callbacks are running.
const LENGTHS: usize = 5;
const CALLBACKS: u64 = 1 << 63;
const LINE: usize = 6;
const LINE_WORDS: usize = 26;
const ID: usize = LINE + LINE_WORDS;
const ID_WORDS: usize = 8;
/// In the first thread's: how many threads there are besides.
const OTHERS: usize = ID + ID_WORDS;
/// In the first thread's: the worker's number, pid and generation.
const NR: usize = OTHERS + 1;
const PID: usize = NR + 1;
const GENERATION: usize = PID + 1;
const _: () = assert!(GENERATION < PART);

const WORD: usize = size_of::<u64>();

pub(super) const NEVER: u64 = u64::MAX;

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

/// A slot as the master reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What the worker is doing.
    pub state: State,
    /// When the request, or its callbacks, began, in milliseconds of the monotonic clock.
    pub started: u64,
    /// When it must be done; None if there is no limit or the worker is waiting for the client.
    pub deadline: Option<u64>,
    /// Whether it is at the callbacks of the request.
    pub in_callbacks: bool,
    /// Requests answered before this one.
    pub requests: u64,
    /// Method and target, truncated if long; empty if it changed while being read.
    pub line: Vec<u8>,
    /// Its X-Request-ID, if any.
    pub id: Vec<u8>,
    /// Which worker it is; None before it was forked.
    pub worker: Option<WorkerId>,
}

/// What the master calls a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerId {
    /// Its number, from 0: its successor has the same.
    pub nr: u64,
    /// Its process.
    pub pid: u32,
    /// How many times the server had been reloaded when it was forked, plus 1.
    pub generation: u64,
}

/// How many connections are in the workers' shared queue: a number in memory that they share.
#[derive(Clone, Debug)]
pub struct QueueLength {
    page: Arc<SharedNumbers>,
    at: usize,
}

impl QueueLength {
    pub(crate) fn new(page: SharedNumbers, at: usize) -> Self {
        QueueLength { page: Arc::new(page), at }
    }

    fn get(&self) -> u64 {
        self.page.get(self.at).map_or(0, |number| number.load(Ordering::Relaxed).into())
    }
}

/// All slots, from the master's side.
#[derive(Clone, Debug)]
pub struct Scoreboard {
    page: Arc<SharedNumbers<AtomicU64>>,
    queue: Option<QueueLength>,
}

impl Scoreboard {
    /// Slots in memory that the workers forked later share.
    pub fn new() -> io::Result<Self> {
        Ok(Scoreboard { page: Arc::new(SharedNumbers::for_children(COUNT)?), queue: None })
    }

    /// Counts the connections in the workers' shared queue, too.
    pub fn with_queue(self, queue: QueueLength) -> Self {
        Scoreboard { queue: Some(queue), ..self }
    }

    /// How many connections are in the shared queue, as far as it is known.
    pub(super) fn queued(&self) -> u64 {
        self.queue.as_ref().map_or(0, QueueLength::get)
    }

    /// Reserves a slot for a worker about to be forked; None when all are taken.
    pub fn reserve(&self) -> Option<usize> {
        let index = (0..SLOTS).find(|index| self.first(*index)[STATE].load(Ordering::SeqCst) == 0)?;
        let slot = self.first(index);
        slot.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.counters(index).begin();
        slot[STATE].store(State::Waiting as u64, Ordering::SeqCst);
        self.page[USED].fetch_max(index as u64 + 1, Ordering::SeqCst);
        Some(index)
    }

    /// The slot's worker has been forked.
    pub fn assign(&self, index: usize, worker: WorkerId) {
        if index < SLOTS {
            let slot = self.first(index);
            slot[NR].store(worker.nr, Ordering::Relaxed);
            slot[GENERATION].store(worker.generation, Ordering::Relaxed);
            slot[PID].store(worker.pid.into(), Ordering::Release);
        }
    }

    /// Frees the slot of a worker that is gone.
    pub fn release(&self, index: usize) {
        if index < SLOTS {
            self.first(index)[STATE].store(State::Free as u64, Ordering::SeqCst);
        }
    }

    /// What the worker of a slot is doing, or was doing when it died. Of several requests, the one that began first.
    pub fn read(&self, index: usize) -> Option<Entry> {
        let slot = self.slot(index)?;
        let mut first = slot.read()?;
        let others = slot.words()[OTHERS].load(Ordering::SeqCst) as usize;
        for entry in (1..=others.min(MAX_THREADS - 1)).filter_map(|thread| slot.of_thread(thread).read()) {
            let requests = first.requests + entry.requests;
            if (first.state, entry.started) < (entry.state, first.started) {
                first = entry;
            }
            first.requests = requests;
        }
        first.worker = slot.worker();
        Some(first)
    }

    /// How many slots have ever been used: those from this one on have nothing to be read.
    pub fn used(&self) -> usize {
        self.page[USED].load(Ordering::SeqCst) as usize
    }

    pub(super) fn restart_counts(&self) -> &[AtomicU64] {
        &self.page[RESTARTS..][..Cause::ALL.len()]
    }

    pub(super) fn counters(&self, index: usize) -> Counters {
        Counters::new(Arc::clone(&self.page), COUNTERS + index * counters::WORDS)
    }

    /// The worker's handle of a slot, for its first thread; None if there is no such slot.
    pub fn slot(&self, index: usize) -> Option<Slot> {
        (index < SLOTS).then(|| Slot { page: Arc::clone(&self.page), base: index * SLOT })
    }

    fn first(&self, index: usize) -> &[AtomicU64] {
        &self.page[index * SLOT..][..PART]
    }
}

/// A slot from its worker's side: the part of one thread.
#[derive(Clone, Debug)]
pub struct Slot {
    page: Arc<SharedNumbers<AtomicU64>>,
    base: usize,
}

impl Slot {
    fn words(&self) -> &[AtomicU64] {
        &self.page[self.base..][..PART]
    }

    /// How many threads have requests; None without a worker.
    pub(super) fn serving(&self) -> Option<u64> {
        let others = self.words()[OTHERS].load(Ordering::SeqCst) as usize;
        let state = |thread| self.of_thread(thread).words()[STATE].load(Ordering::Relaxed);
        let is_serving = |thread: &usize| state(*thread) == State::Serving as u64;
        let serving = || (0..=others.min(MAX_THREADS - 1)).filter(is_serving).count() as u64;
        (state(0) != State::Free as u64).then(serving)
    }

    /// From the first thread's: for how long the application has been answering the requests that it is at, all together, in
    /// milliseconds. Without their callbacks, whose time is not counted as a request's either.
    pub(super) fn in_progress(&self, now: u64) -> u64 {
        let others = self.words()[OTHERS].load(Ordering::SeqCst) as usize;
        let threads = (0..=others.min(MAX_THREADS - 1)).map(|thread| self.of_thread(thread));
        let is_serving = |slot: &Slot| slot.words()[STATE].load(Ordering::Acquire) == State::Serving as u64;
        let serving = threads.filter(|slot| is_serving(slot) && !slot.is_in_callbacks());
        serving.map(|slot| now.saturating_sub(slot.started())).sum()
    }

    /// Those of its worker.
    pub(crate) fn counters(&self) -> Counters {
        Counters::new(Arc::clone(&self.page), COUNTERS + self.base / SLOT * counters::WORDS)
    }

    /// From the first thread's: another one's.
    fn of_thread(&self, thread: usize) -> Slot {
        Slot { page: Arc::clone(&self.page), base: self.base + thread * PART }
    }

    /// One for each of `threads` threads, from the first thread's on; at most [`MAX_THREADS`].
    pub(super) fn for_threads(&self, threads: usize) -> Vec<Slot> {
        let threads = threads.clamp(1, MAX_THREADS);
        let slots: Vec<Slot> = (0..threads).map(|thread| self.of_thread(thread)).collect();
        for slot in &slots[1..] {
            // What the former worker's thread has left.
            slot.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
            slot.words()[STATE].store(State::Waiting as u64, Ordering::Relaxed);
        }
        self.words()[OTHERS].store(threads as u64 - 1, Ordering::SeqCst);
        slots
    }

    fn worker(&self) -> Option<WorkerId> {
        let words = self.words();
        let pid = u32::try_from(words[PID].load(Ordering::Acquire)).ok().filter(|pid| *pid != 0)?;
        let [nr, generation] = [NR, GENERATION].map(|at| words[at].load(Ordering::Relaxed));
        Some(WorkerId { nr, pid, generation })
    }

    fn read(&self) -> Option<Entry> {
        let slot = self;
        let words = slot.words();
        let state = match words[STATE].load(Ordering::SeqCst) {
            0 => return None,
            1 => State::Waiting,
            2 => State::Serving,
            _ => State::Ending,
        };
        let before = words[SEQUENCE].load(Ordering::Acquire);
        let (line, id) = slot.texts();
        let (started, deadline) = (slot.started(), Some(slot.deadline()).filter(|at| *at != NEVER));
        let requests = words[REQUESTS].load(Ordering::Relaxed);
        let in_callbacks = slot.is_in_callbacks();
        let mut entry = Entry { state, started, deadline, in_callbacks, requests, line, id, worker: None };
        fence(Ordering::Acquire);
        if before % 2 == 1 || before != words[SEQUENCE].load(Ordering::Relaxed) {
            entry.line.clear();
            entry.id.clear();
        }
        Some(entry)
    }

    /// A request begins. Returns a number that no other request of this worker has.
    pub(super) fn begin(&self, head: &Head, bytes: &[u8], now: u64, deadline: u64) -> u64 {
        let slot = self.words();
        let sequence = slot[SEQUENCE].load(Ordering::Relaxed);
        slot[SEQUENCE].store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        slot[STARTED].store(now, Ordering::Relaxed);
        slot[DEADLINE].store(deadline, Ordering::Relaxed);
        let line = store(&slot[LINE..][..LINE_WORDS], bytes, line(head));
        let id = store(&slot[ID..][..ID_WORDS], bytes, id(head));
        slot[LENGTHS].store(line | id << 32, Ordering::Relaxed);
        let sequence = sequence.wrapping_add(2);
        slot[SEQUENCE].store(sequence, Ordering::Release);
        slot[STATE].store(State::Serving as u64, Ordering::Release);
        sequence
    }

    /// The callbacks of the last request begin. Returns a number as [`begin`](Self::begin) does.
    pub(super) fn begin_callbacks(&self, now: u64, deadline: u64) -> u64 {
        let slot = self.words();
        slot[STARTED].store(now, Ordering::Relaxed);
        slot[DEADLINE].store(deadline, Ordering::Relaxed);
        slot[LENGTHS].fetch_or(CALLBACKS, Ordering::Relaxed);
        let sequence = slot[SEQUENCE].load(Ordering::Relaxed).wrapping_add(2);
        slot[SEQUENCE].store(sequence, Ordering::Release);
        slot[STATE].store(State::Serving as u64, Ordering::Release);
        sequence
    }

    /// The callbacks are done.
    pub(super) fn rest(&self) {
        self.words()[STATE].store(State::Waiting as u64, Ordering::Release);
    }

    pub(super) fn end(&self) {
        let slot = self.words();
        slot[STATE].store(State::Waiting as u64, Ordering::Release);
        let requests = slot[REQUESTS].load(Ordering::Relaxed);
        slot[REQUESTS].store(requests.wrapping_add(1), Ordering::Relaxed);
    }

    /// The worker is about to exit because of this request.
    pub(super) fn set_ending(&self) {
        self.words()[STATE].store(State::Ending as u64, Ordering::SeqCst);
    }

    pub(super) fn started(&self) -> u64 {
        self.words()[STARTED].load(Ordering::Relaxed)
    }

    pub(super) fn deadline(&self) -> u64 {
        self.words()[DEADLINE].load(Ordering::Relaxed)
    }

    pub(super) fn set_deadline(&self, deadline: u64) {
        self.words()[DEADLINE].store(deadline, Ordering::Relaxed);
    }

    pub(super) fn is_head_request(&self) -> bool {
        let method = self.words()[LINE].load(Ordering::Relaxed).to_ne_bytes();
        self.words()[LENGTHS].load(Ordering::Relaxed) as u32 >= 5 && method.starts_with(b"HEAD ")
    }

    pub(super) fn is_in_callbacks(&self) -> bool {
        self.words()[LENGTHS].load(Ordering::Relaxed) & CALLBACKS != 0
    }

    pub(super) fn texts(&self) -> (Vec<u8>, Vec<u8>) {
        let slot = self.words();
        let lengths = slot[LENGTHS].load(Ordering::Relaxed) & !CALLBACKS;
        let line = load(&slot[LINE..][..LINE_WORDS], lengths as u32);
        (line, load(&slot[ID..][..ID_WORDS], (lengths >> 32) as u32))
    }
}

/// Method and target are adjacent (RFC 9112 §3).
fn line(head: &Head) -> Range<usize> {
    Range::from(head.method).start..Range::from(head.target).end
}

fn id(head: &Head) -> Range<usize> {
    if !head.has(KnownName::XRequestId) {
        return 0..0;
    }
    let field = head.fields.iter().find(|field| field.known == Some(KnownName::XRequestId));
    field.map_or(0..0, |field| field.value.into())
}

/// Copies what fits and returns that length. Copies whole words, even past the end of the text.
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

    fn begin(slot: &Slot, bytes: &[u8]) -> u64 {
        let mut head = Head::default();
        head.parse(bytes, fastrack_http::Limits::default()).expect("a good head");
        slot.begin(&head, bytes, 5, 7)
    }

    #[test]
    fn the_master_reads_what_the_worker_is_doing() {
        let board = Scoreboard::new().expect("memory");
        assert_eq!((board.read(0), board.read(SLOTS)), (None, None));
        let index = board.reserve().expect("a slot");
        let slot = board.slot(index).expect("the slot");
        assert_eq!(board.read(index).map(|entry| entry.state), Some(State::Waiting));
        let worker = WorkerId { nr: 2, pid: 77, generation: 3 };
        board.assign(index, worker);
        let one = begin(&slot, b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nX-Request-ID: abc-123456789\r\n\r\n");
        let line = b"GET /a?b=c".to_vec();
        let serving = Entry {
            state: State::Serving,
            started: 5,
            deadline: Some(7),
            in_callbacks: false,
            requests: 0,
            line,
            id: b"abc-123456789".to_vec(),
            worker: Some(worker),
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
        assert_eq!(board.reserve(), Some(index));
        assert_eq!(board.read(index).map(|entry| entry.worker), Some(None));
    }

    #[test]
    fn a_long_target_is_truncated_and_a_torn_one_is_not_shown() {
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
        assert_eq!(slots, (0..SLOTS).collect::<Vec<_>>());
        board.release(17);
        assert_eq!((board.reserve(), board.reserve()), (Some(17), None));
    }
}
