//! What each worker is doing, in memory shared with the master, from the master's side. It can read that even after a worker has
//! died.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use fastrack_sys::SharedMemory;

use super::board::{Board, MemoryWords, State, ThreadSlot, WorkerWords, NEVER, SLOTS};
use super::slot::Slot;

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
    /// Requests that this worker answered before this one.
    pub requests: u64,
    /// Method and target, truncated if long; empty if it changed while being read.
    pub line: Vec<u8>,
    /// Its X-Request-ID, if any.
    pub id: Vec<u8>,
    /// Which worker it is; None before it was forked.
    pub worker: Option<WorkerId>,
    /// What its process takes, if it has said so.
    pub memory: Option<Memory>,
}

/// What a process takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What it has alone, and its share of what it has in common with others (PSS).
    pub proportional: u64,
    /// What it has alone.
    pub private: u64,
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
pub struct QueueLength(SharedMemory<AtomicU32>);

impl QueueLength {
    pub(crate) fn new(number: SharedMemory<AtomicU32>) -> Self {
        QueueLength(number)
    }
}

/// All slots, from the master's side.
#[derive(Clone, Debug)]
pub struct Scoreboard {
    pub(super) board: SharedMemory<Board>,
    queue: Option<QueueLength>,
}

impl Scoreboard {
    /// Slots in memory that the workers forked later share.
    pub fn new() -> io::Result<Self> {
        Ok(Scoreboard { board: SharedMemory::for_children()?, queue: None })
    }

    /// Counts also the connections in the workers' shared queue.
    pub fn with_queue(self, queue: QueueLength) -> Self {
        Scoreboard { queue: Some(queue), ..self }
    }

    /// How many connections are in the shared queue, as far as it is known.
    pub(super) fn queued(&self) -> u64 {
        self.queue.as_ref().map_or(0, |queue| queue.0.load(Ordering::Relaxed).into())
    }

    /// Reserves a slot for a worker about to be forked; None when all are taken.
    pub fn reserve(&self) -> Option<usize> {
        let Board { slots, used, .. } = &*self.board;
        let index = slots.iter().position(|slot| slot.threads[0].state.get() == State::Free)?;
        slots[index].begin();
        used.publish(used.get().max(index as u64 + 1));
        Some(index)
    }

    /// The slot's worker has been forked.
    pub fn assign(&self, index: usize, worker: WorkerId) {
        if let Some(slot) = self.board.slots.get(index) {
            slot.worker.set(worker);
        }
    }

    /// The slot's worker says what it takes: where the kernel does not tell the master.
    pub fn note_memory(&self, index: usize, memory: Memory) {
        if let Some(slot) = self.board.slots.get(index) {
            slot.memory.private.set(memory.private);
            slot.memory.proportional.publish(memory.proportional);
        }
    }

    /// Frees the slot of a worker that is gone. Its requests remain in the total of its number.
    pub fn release(&self, index: usize) {
        let (Some(slot), Some(entry)) = (self.board.slots.get(index), self.read(index)) else { return };
        let number = entry.worker.map(|worker| worker.nr as usize);
        self.board.releases.write(|| {
            slot.threads[0].state.set(State::Free);
            if let Some(past) = number.and_then(|number| self.board.past_requests.get(number)) {
                past.add(entry.requests);
            }
        });
    }

    /// Requests answered since the scoreboard was made, by the number of the worker: those of its predecessors and its own.
    pub fn requests_by_number(&self) -> Vec<u64> {
        let sums = || self.sums_by_number();
        // The master may be stopped in the middle.
        (0..100).find_map(|_| self.board.releases.read(sums)).unwrap_or_else(sums)
    }

    fn sums_by_number(&self) -> Vec<u64> {
        let mut sums = Vec::new();
        for entry in (0..self.used()).filter_map(|index| self.read(index)) {
            let Some(number) = entry.worker.map(|worker| worker.nr as usize) else { continue };
            for number in sums.len()..=number.min(SLOTS - 1) {
                sums.push(self.board.past_requests[number].get());
            }
            if let Some(sum) = sums.get_mut(number) {
                *sum += entry.requests;
            }
        }
        sums
    }

    /// What the worker of a slot is doing, or was doing when it died. Of several requests, the one that began first.
    pub fn read(&self, index: usize) -> Option<Entry> {
        let slot = self.board.slots.get(index)?;
        let mut first = slot.threads[0].read()?;
        for entry in slot.threads()[1..].iter().filter_map(ThreadSlot::read) {
            let requests = first.requests + entry.requests;
            if (first.state, entry.started) < (entry.state, first.started) {
                first = entry;
            }
            first.requests = requests;
        }
        first.worker = slot.worker.get();
        first.memory = slot.memory.get();
        Some(first)
    }

    /// How many slots have ever been used: those from this one on have nothing to be read.
    pub fn used(&self) -> usize {
        self.board.used.published() as usize
    }

    /// The worker's handle of a slot; None if there is no such slot.
    pub fn slot(&self, index: usize) -> Option<Slot> {
        self.board.slots.get(index)?;
        Some(Slot::new(self.board.part(|board| &board.slots[index])))
    }
}

impl WorkerWords {
    fn set(&self, worker: WorkerId) {
        self.nr.set(worker.nr);
        self.generation.set(worker.generation);
        self.pid.publish(worker.pid.into());
    }

    fn get(&self) -> Option<WorkerId> {
        let pid = u32::try_from(self.pid.published()).ok().filter(|pid| *pid != 0)?;
        Some(WorkerId { nr: self.nr.get(), pid, generation: self.generation.get() })
    }
}

impl MemoryWords {
    fn get(&self) -> Option<Memory> {
        let proportional = Some(self.proportional.published()).filter(|bytes| *bytes != 0)?;
        Some(Memory { proportional, private: self.private.get() })
    }
}

impl ThreadSlot {
    /// None without a worker.
    fn read(&self) -> Option<Entry> {
        let state = Some(self.state.get()).filter(|state| *state != State::Free)?;
        let (line, id) = self.sequence.read(|| self.texts()).unwrap_or_default();
        Some(Entry {
            state,
            started: self.started.get(),
            deadline: Some(self.deadline.get()).filter(|at| *at != NEVER),
            in_callbacks: self.is_in_callbacks(),
            requests: self.requests.get(),
            line,
            id,
            worker: None,
            memory: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrack_http::{Head, Limits};

    fn begin(slot: &ThreadSlot, bytes: &[u8]) -> u64 {
        let mut head = Head::default();
        head.parse(bytes, Limits::default()).expect("a good head");
        slot.begin_request(&head, bytes, 5, 7)
    }

    #[test]
    fn the_master_reads_what_the_worker_is_doing() {
        let board = Scoreboard::new().expect("memory");
        assert_eq!((board.read(0), board.read(board.board.slots.len())), (None, None));
        let index = board.reserve().expect("a slot");
        let slot = &board.board.slots[index].threads[0];
        assert_eq!(board.read(index).map(|entry| entry.state), Some(State::Waiting));
        let worker = WorkerId { nr: 2, pid: 77, generation: 3 };
        board.assign(index, worker);
        let one = begin(slot, b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nX-Request-ID: abc-123456789\r\n\r\n");
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
            memory: None,
        };
        assert_eq!(board.read(index), Some(serving));
        assert_eq!(slot.texts(), (b"GET /a?b=c".to_vec(), b"abc-123456789".to_vec()));
        slot.end_request();
        assert_eq!(board.read(index).map(|entry| (entry.state, entry.requests)), Some((State::Waiting, 1)));
        let two = begin(slot, b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
        slot.deadline.set(NEVER);
        let entry = board.read(index).expect("an entry");
        assert_eq!(
            (entry.line.as_slice(), entry.id.as_slice(), entry.deadline),
            (&b"HEAD /"[..], &b""[..], None)
        );
        assert_ne!(one, two);
        let memory = Memory { proportional: 9, private: 4 };
        board.note_memory(index, memory);
        assert_eq!(board.read(index).and_then(|entry| entry.memory), Some(memory));
        board.release(index);
        assert_eq!(board.read(index), None);
        assert_eq!(board.reserve(), Some(index));
        assert_eq!(board.read(index).map(|entry| (entry.worker, entry.memory)), Some((None, None)));
    }

    #[test]
    fn a_long_target_is_truncated_and_a_torn_one_is_not_shown() {
        let board = Scoreboard::new().expect("memory");
        let index = board.reserve().expect("a slot");
        let slot = &board.board.slots[index].threads[0];
        let long = format!(
            "GET /{} HTTP/1.1\r\nHost: h\r\nX-Request-Id: {}\r\n\r\n",
            "p".repeat(999),
            "i".repeat(99)
        );
        begin(slot, long.as_bytes());
        let entry = board.read(index).expect("an entry");
        assert_eq!(entry.line, format!("GET /{}", "p".repeat(203)).into_bytes());
        assert_eq!(entry.id, b"i".repeat(64));
        let mut torn = None;
        slot.sequence.write(|| torn = board.read(index));
        let entry = torn.expect("an entry");
        assert_eq!((entry.state, entry.line.len(), entry.id.len()), (State::Serving, 0, 0));
    }

    #[test]
    fn a_worker_begins_at_0_and_its_number_keeps_what_its_predecessors_answered() {
        let board = Scoreboard::new().expect("memory");
        let fork = |nr, requests| {
            let index = board.reserve().expect("a slot");
            board.assign(index, WorkerId { nr, pid: 7, generation: 1 });
            (0..requests).for_each(|_| board.board.slots[index].threads[0].end_request());
            index
        };
        let [zero, one] = [fork(0, 3), fork(1, 5)];
        // The successor serves beside its predecessor for a while, in another slot.
        let successor = fork(0, 2);
        assert_eq!(board.requests_by_number(), [5, 5]);
        for index in [zero, one, zero] {
            board.release(index);
        }
        // This one has the slot of another number's former worker.
        assert_eq!((fork(1, 0), board.read(zero).map(|entry| entry.requests)), (zero, Some(0)));
        assert_eq!(
            (board.requests_by_number(), board.read(successor).map(|entry| entry.requests)),
            (vec![5, 5], Some(2))
        );
        fork(u64::MAX, 1);
        assert_eq!(board.requests_by_number().len(), SLOTS);
    }

    #[test]
    fn there_is_a_slot_for_each_of_many_workers_and_then_none() {
        let board = Scoreboard::new().expect("memory");
        let slots: Vec<_> = std::iter::from_fn(|| board.reserve()).collect();
        assert_eq!(slots, (0..board.board.slots.len()).collect::<Vec<_>>());
        board.release(17);
        assert_eq!((board.reserve(), board.reserve()), (Some(17), None));
    }
}
