//! The layout of the scoreboard's memory. Zeroes are a board without workers.

use fastrack_sys::Shareable;

use super::counters::CounterWords;
use super::words::{Sequence, Text, Word};

/// Most threads of a worker that answer requests. Each has a part of the worker's slot.
pub const MAX_THREADS: usize = 64;

/// Most seats of a worker: a part of its slot for each thread that answers requests, and one for the thread that runs the engine.
pub(crate) const MAX_SEATS: usize = MAX_THREADS + 1;

/// Most streams of a worker.
pub const MAX_STREAMS: usize = 1_000;

/// Most workers of a server.
pub const MAX_WORKERS: usize = 512;

/// Most processes of workers at a time. Each worker may have a successor that begins before the worker has ended.
pub(crate) const MAX_PROCESSES: usize = 2 * MAX_WORKERS;

/// The whole scoreboard.
#[repr(C)]
pub struct Board {
    pub slots: [WorkerSlot; MAX_PROCESSES],
    /// How many slots have ever been used. Later slots are empty.
    pub used: Word,
    /// How many workers were replaced, by [`Cause`].
    pub restarts: [Word; Cause::ALL.len()],
    /// Requests of workers that have ended, by the worker's number. The master writes these.
    pub past_requests: [Word; MAX_WORKERS],
    /// Odd while the master moves the requests of a worker from its slot to `past_requests`.
    pub releases: Sequence,
}

// SAFETY: it consists of Words, which are atomic.
unsafe impl Shareable for Board {}

/// The slot of one worker. It begins a page, so that the kernel provides memory only for slots in use: one page for a worker with
/// few threads.
#[repr(C, align(4096))]
pub struct WorkerSlot {
    pub worker: WorkerWords,
    pub memory: MemoryWords,
    /// Counters of the worker, and of earlier workers in the slot.
    pub counters: CounterWords,
    /// Time that earlier workers had spent in the application, in milliseconds.
    pub busy_before: Word,
    /// How many threads the worker has besides the first.
    pub other_threads: Word,
    pub threads: [ThreadSlot; MAX_SEATS],
}

/// A [`WorkerId`](super::WorkerId).
#[repr(C)]
pub struct WorkerWords {
    pub nr: Word,
    pub generation: Word,
    /// Published last. 0 before the worker was forked.
    pub pid: Word,
}

/// A [`Memory`](super::Memory) that the worker has measured. Zeroes before it has.
#[repr(C)]
pub struct MemoryWords {
    pub proportional: Word,
    pub private: Word,
}

/// The activity of one thread. It has cache lines (64 bytes) of its own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct ThreadSlot {
    pub state: StateWord,
    /// Guards the fields below.
    pub sequence: Sequence,
    /// When the request, or its callbacks, began, in milliseconds of the monotonic clock.
    pub started: Word,
    /// When the request must be done, or [`NEVER`].
    pub deadline: Word,
    /// 1 once the request's callbacks have begun.
    pub in_callbacks: Word,
    /// Requests that the thread answered before this one.
    pub requests: Word,
    /// Method and target.
    pub line: Text<26>,
    /// The value of X-Request-ID.
    pub id: Text<8>,
}

/// The deadline of a request without a time limit.
pub const NEVER: u64 = u64::MAX;

impl ThreadSlot {
    /// Clears the state of a former worker's thread.
    pub fn begin(&self) {
        let ThreadSlot { state, sequence, started, deadline, in_callbacks, requests, line, id } = self;
        sequence.reset();
        [started, deadline, in_callbacks, requests].into_iter().for_each(|word| word.set(0));
        line.clear();
        id.clear();
        state.set(State::Waiting);
    }

    /// Copies the request of another slot, whose thread does not change it. The caller sets the deadline.
    pub fn copy_request(&self, other: &ThreadSlot) {
        self.sequence.write(|| {
            self.started.set(other.started.get());
            self.in_callbacks.set(0);
            self.line.copy(&other.line);
            self.id.copy(&other.id);
        });
        self.state.set(State::Serving);
    }
}

/// The state of a worker's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum State {
    /// The slot has no worker.
    Free = 0,
    /// The thread has no request.
    Waiting = 1,
    /// The application answers a request, or its callbacks run after the response.
    Serving = 2,
    /// The worker is about to exit: the request has exceeded its time limit.
    Ending = 3,
}

/// A [`State`].
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct StateWord(Word);

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

/// Why a worker was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Cause {
    /// The worker has answered its `MaxRequestPerChild`.
    RequestLimit,
    /// HUP.
    Reload,
    /// A refork: its successor shares the memory of a worker that has served.
    Refork,
    /// The worker took too much memory.
    Memory,
    /// A request exceeded its time limit.
    RequestTimeout,
    /// The master killed the worker, which stood still or did not end in time.
    WorkerTimeout,
    /// A signal killed the worker: a crash, or the kernel when memory ran out.
    Signal,
    /// The worker exited by itself with a status other than 0.
    Failure,
    /// The worker was not ready in time, or exited before.
    Boot,
    /// Any other reason: the application called exit, or somebody has sent TERM to the worker.
    Exit,
}

impl Cause {
    /// All causes, in their order.
    pub const ALL: [Cause; 10] = [
        Cause::RequestLimit,
        Cause::Reload,
        Cause::Refork,
        Cause::Memory,
        Cause::RequestTimeout,
        Cause::WorkerTimeout,
        Cause::Signal,
        Cause::Failure,
        Cause::Boot,
        Cause::Exit,
    ];

    /// The name for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Cause::RequestLimit => "request_limit",
            Cause::Reload => "reload",
            Cause::Refork => "refork",
            Cause::Memory => "memory",
            Cause::RequestTimeout => "request_timeout",
            Cause::WorkerTimeout => "worker_timeout",
            Cause::Signal => "signal",
            Cause::Failure => "failure",
            Cause::Boot => "boot",
            Cause::Exit => "exit",
        }
    }
}
