//! The scoreboard as the master reads it. The master can do so even after a worker has died.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use fastrack_sys::{borrow_fd, file_size_limit, memory_file, SharedMemory};

use super::counters::Counts;
use super::layout::{
    Board, Cause, MemoryWords, State, ThreadSlot, WorkerSlot, WorkerWords, MAX_SEATS, MAX_WORKERS, NEVER,
};
use super::worker_side::Slot;

/// A slot as the master reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// State of the worker: of the thread whose request began first.
    pub state: State,
    /// When the request, or its callbacks, began, in milliseconds of the monotonic clock.
    pub started: u64,
    /// When the request must be done. None if there is no limit, or the worker waits for the client.
    pub deadline: Option<u64>,
    /// Whether the callbacks of the request run.
    pub in_callbacks: bool,
    /// Requests that the worker answered before this one.
    pub requests: u64,
    /// Method and path, truncated if long. Empty if the worker changed them meanwhile.
    pub line: Vec<u8>,
    /// The request's X-Request-ID, if any.
    pub id: Vec<u8>,
    /// The worker. None before it was forked.
    pub worker: Option<WorkerId>,
    /// Memory of its process, if the worker has noted it.
    pub memory: Option<Memory>,
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Private memory, and a share of the memory that it has in common with others (PSS, proc(5)).
    pub proportional: u64,
    /// Private memory.
    pub private: u64,
}

/// A worker, as the master knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerId {
    /// Number, from 0. Its successor has the same.
    pub nr: u64,
    /// Process id.
    pub pid: u32,
    /// Number of reloads when the worker was forked, plus 1.
    pub generation: u64,
}

/// Number of connections in the workers' shared queue, in memory that the workers share.
#[derive(Clone, Debug)]
pub struct QueueLength(SharedMemory<AtomicU32>);

impl QueueLength {
    pub(crate) fn new(number: SharedMemory<AtomicU32>) -> Self {
        QueueLength(number)
    }
}

/// All slots, as the master reads them.
#[derive(Clone, Debug)]
pub struct Scoreboard {
    pub(super) board: SharedMemory<Board>,
    queue: Option<QueueLength>,
}

impl Scoreboard {
    /// A scoreboard in memory that is shared with processes forked later.
    pub fn new() -> io::Result<Self> {
        Ok(Self::on(SharedMemory::for_children()?))
    }

    /// A scoreboard that is also shared with processes that inherit the file. There is no file where files are limited
    /// (RLIMIT_FSIZE): the kernel counts the memory as a file, and would end this process by SIGXFSZ.
    pub fn with_file() -> io::Result<(Self, Option<File>)> {
        let length = size_of::<Board>() as u64;
        if file_size_limit() < length {
            return Ok((Self::new()?, None));
        }
        let file = memory_file(length)?;
        // SAFETY: no process truncates the file, and all processes map it by this code.
        let board = unsafe { SharedMemory::of_file(&file) }?;
        Ok((Self::on(board), Some(file)))
    }

    /// The scoreboard of another process, whose file this process has inherited.
    ///
    /// # Safety
    /// The descriptor must be open until this returns, and must be of a [`with_file`](Self::with_file).
    pub unsafe fn from_raw_fd(fd: RawFd) -> io::Result<Self> {
        // SAFETY: as the caller promises.
        let copy = File::from(unsafe { borrow_fd(fd) }?.try_clone_to_owned()?);
        // SAFETY: as above.
        Ok(Self::on(unsafe { SharedMemory::of_file(&copy) }?))
    }

    fn on(board: SharedMemory<Board>) -> Self {
        Scoreboard { board, queue: None }
    }

    /// The same scoreboard, whose totals include the connections in the shared queue.
    pub fn with_queue(self, queue: QueueLength) -> Self {
        Scoreboard { queue: Some(queue), ..self }
    }

    /// Number of connections in the shared queue. 0 where it is not known.
    fn queued(&self) -> u64 {
        self.queue.as_ref().map_or(0, |queue| queue.0.load(Ordering::Relaxed).into())
    }

    /// Reserves a slot for a worker that is about to be forked. None when all slots are in use.
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

    /// Notes the memory of the slot's worker. The worker calls it where the kernel does not tell the master.
    pub fn note_memory(&self, index: usize, memory: Memory) {
        if let Some(slot) = self.board.slots.get(index) {
            slot.memory.private.set(memory.private);
            slot.memory.proportional.publish(memory.proportional);
        }
    }

    /// Frees the slot of a worker that is gone. Its requests stay in the total of its number.
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

    /// Requests answered since the scoreboard was made, by the number of the worker. Its predecessors' requests count.
    pub fn requests_by_number(&self) -> Vec<u64> {
        let sums = || self.sums_by_number();
        // The master may be stopped in the middle.
        (0..100).find_map(|_| self.board.releases.read(sums)).unwrap_or_else(sums)
    }

    fn sums_by_number(&self) -> Vec<u64> {
        let mut sums = Vec::new();
        for entry in (0..self.used()).filter_map(|index| self.read(index)) {
            let Some(number) = entry.worker.map(|worker| worker.nr as usize) else { continue };
            for number in sums.len()..=number.min(MAX_WORKERS - 1) {
                sums.push(self.board.past_requests[number].get());
            }
            if let Some(sum) = sums.get_mut(number) {
                *sum += entry.requests;
            }
        }
        sums
    }

    /// The state of a slot's worker, also after its death. Of several requests, it shows the one that began first.
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

    /// Number of slots that have ever been used. Later slots are empty. A worker's application may have overwritten the number.
    pub fn used(&self) -> usize {
        self.board.slots.len().min(self.board.used.published() as usize)
    }

    /// The worker's handle of a slot. None if there is no such slot.
    pub fn slot(&self, index: usize) -> Option<Slot> {
        self.board.slots.get(index)?;
        Some(Slot::new(self.board.part(|board| &board.slots[index])))
    }
}

/// Totals.
impl Scoreboard {
    /// Totals of all workers that have had a slot, and the connections of its present worker. None if there is no such slot.
    pub fn counts(&self, index: usize) -> Option<Counts> {
        let slot = self.board.slots.get(index)?;
        Some(slot.counters.read(slot.serving()))
    }

    /// Time of a slot's present worker in the application, of all threads together and up to `now`, in milliseconds. None if there is
    /// no such slot.
    pub fn busy(&self, index: usize, now: u64) -> Option<u64> {
        Some(self.board.slots.get(index)?.busy(now))
    }

    /// Totals of all workers since the scoreboard was made, and their connections. Connections in the shared queue count as waiting.
    pub fn totals(&self) -> Counts {
        let mut totals = Counts::default();
        (0..self.used()).filter_map(|index| self.counts(index)).for_each(|counts| totals.add(&counts));
        totals.connections.waiting += self.queued();
        totals
    }

    /// Counts a worker that was replaced. Only the master calls it.
    pub fn count_restart(&self, cause: Cause) {
        self.board.restarts[cause as usize].add(1);
    }

    /// Number of workers that were replaced, by the cause.
    pub fn restarts(&self) -> [(Cause, u64); Cause::ALL.len()] {
        Cause::ALL.map(|cause| (cause, self.board.restarts[cause as usize].get()))
    }
}

impl WorkerSlot {
    /// Prepares the slot for a worker that is about to be forked.
    fn begin(&self) {
        self.worker.pid.set(0);
        self.memory.proportional.set(0);
        self.other_threads.set(0);
        self.counters.begin();
        self.busy_before.set(self.counters.busy());
        self.threads[0].begin();
    }

    /// The parts of the threads that there are.
    fn threads(&self) -> &[ThreadSlot] {
        let others = self.other_threads.published() as usize;
        &self.threads[..=others.min(MAX_SEATS - 1)]
    }

    /// Number of threads that have requests. None without a worker.
    fn serving(&self) -> Option<u64> {
        let is_serving = |thread: &&ThreadSlot| thread.state.get() == State::Serving;
        let serving = || self.threads().iter().filter(is_serving).count() as u64;
        (self.threads[0].state.get() != State::Free).then(serving)
    }

    /// Time of the worker in the application, of all threads together and up to `now`, in milliseconds. Callbacks do not count.
    fn busy(&self, now: u64) -> u64 {
        let is_serving =
            |thread: &&ThreadSlot| thread.state.get() == State::Serving && !thread.is_in_callbacks();
        let in_progress =
            self.threads().iter().filter(is_serving).map(|thread| now.saturating_sub(thread.started.get()));
        self.counters.busy().saturating_sub(self.busy_before.get()) + in_progress.sum::<u64>()
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
        let (line, id) = self.sequence.read(|| self.texts_without_query()).unwrap_or_default();
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
