//! What only the master knows, as it has last said.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrack_engine::Memory;

/// Exits of workers that are remembered.
const EXITS: usize = 20;

/// What the server is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Its workers are not ready yet.
    #[default]
    Booting,
    /// It serves.
    Serving,
    /// It has served, and no worker is ready now. The monitor finds that out by itself.
    Down,
    /// It was told to stop, and serves on for DrainDelay.
    Draining,
    /// It finishes its requests.
    Stopping,
}

impl Phase {
    /// All of them.
    pub const ALL: [Phase; 5] =
        [Phase::Booting, Phase::Serving, Phase::Down, Phase::Draining, Phase::Stopping];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Booting => "booting",
            Phase::Serving => "serving",
            Phase::Down => "down",
            Phase::Draining => "draining",
            Phase::Stopping => "stopping",
        }
    }
}

/// What the master thinks that a worker is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerPhase {
    /// Its hooks run.
    Booting,
    /// It serves.
    Serving,
    /// It finishes its requests.
    Stopping,
}

/// A worker, as the master sees it.
#[derive(Clone, Debug)]
pub struct WorkerState {
    /// Its number.
    pub nr: usize,
    /// Its process.
    pub pid: u32,
    /// How many HUPs came before it, and 1.
    pub generation: u64,
    /// What it is at.
    pub phase: WorkerPhase,
    /// When it was forked, in seconds of the monotonic clock.
    pub spawned_at: f64,
    /// Its place in the scoreboard.
    pub slot: Option<usize>,
}

/// The process that workers are forked from instead of the master.
#[derive(Clone, Copy, Debug)]
pub struct MoldState {
    /// The process.
    pub pid: u32,
    /// That of the worker that it was.
    pub generation: u64,
    /// How many requests that had answered.
    pub requests: u64,
    /// What it takes, if it has said so.
    pub memory: Option<Memory>,
}

/// What has come of an order to start processes: HUP, USR2 or URG.
#[derive(Clone, Debug)]
pub struct Order {
    /// Orders that this master has had up to this one.
    pub number: u64,
    /// Its signal.
    pub signal: String,
    /// `begun`, `done` or `failed`.
    pub state: String,
    /// Why it has failed.
    pub reason: Option<String>,
    /// The new master that it has started.
    pub pid: Option<u32>,
}

/// Where the server listens.
#[derive(Clone, Debug)]
pub struct ListenerInfo {
    /// As its log line has it.
    pub name: String,
    /// The socket's.
    pub inode: u64,
    /// Whether it is a TCP socket. The others are unix sockets.
    pub is_tcp: bool,
    /// Connections that may wait there, where the kernel tells.
    pub limit: Option<u32>,
}

/// The end of a worker.
#[derive(Clone, Debug)]
pub struct Exit {
    /// Its number.
    pub nr: usize,
    /// Its process.
    pub pid: u32,
    /// Why, in one word; see [`fastrack_engine::Cause`].
    pub cause: String,
    /// As its log line has it.
    pub text: String,
    /// When, in seconds since 1970.
    pub at: u64,
}

/// What changes from moment to moment.
#[derive(Clone, Debug, Default)]
pub struct MasterState {
    /// What the server is at.
    pub phase: Phase,
    /// That of the newest workers.
    pub generation: u64,
    /// How many workers there should be.
    pub wanted: usize,
    /// Seconds that the server allows itself to stop: DrainDelay and GracefulTimeout.
    pub stop_seconds: f64,
    /// During USR2: the old master or the new one.
    pub other_master: Option<u32>,
    /// The last orders, the last one at the end.
    pub orders: Arc<[Order]>,
    /// Those there are.
    pub workers: Arc<[WorkerState]>,
    /// What they are forked from; None: this process.
    pub mold: Option<MoldState>,
    /// Where it listens.
    pub listeners: Arc<[ListenerInfo]>,
}

/// The notes that the master leaves for the monitor. Both hold the lock for as long as a copy takes.
#[derive(Debug, Default)]
pub struct Notes {
    state: Mutex<(MasterState, VecDeque<Exit>)>,
}

impl Notes {
    fn lock(&self) -> MutexGuard<'_, (MasterState, VecDeque<Exit>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn publish(&self, state: MasterState) {
        self.lock().0 = state;
    }

    pub fn exited(&self, exit: Exit) {
        let exits = &mut self.lock().1;
        if exits.len() == EXITS {
            exits.pop_back();
        }
        exits.push_front(exit);
    }

    /// The state, and the last exits, the last one first.
    pub fn read(&self) -> (MasterState, VecDeque<Exit>) {
        self.lock().clone()
    }
}
