//! The published state of the master.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrack_engine::Memory;

/// The number of exits that are kept.
const MAX_EXITS: usize = 20;

/// The phase of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerPhase {
    /// No worker is ready yet.
    #[default]
    Booting,
    /// The server serves.
    Serving,
    /// The server has served, and no worker is ready now. Set by the monitor, never by the master.
    Down,
    /// The server was told to stop, and serves for another DrainDelay.
    Draining,
    /// The server finishes its requests.
    Stopping,
}

impl ServerPhase {
    /// All phases.
    pub const ALL: [ServerPhase; 5] = [
        ServerPhase::Booting,
        ServerPhase::Serving,
        ServerPhase::Down,
        ServerPhase::Draining,
        ServerPhase::Stopping,
    ];

    /// The name of the phase in status and metrics.
    pub fn name(self) -> &'static str {
        match self {
            ServerPhase::Booting => "booting",
            ServerPhase::Serving => "serving",
            ServerPhase::Down => "down",
            ServerPhase::Draining => "draining",
            ServerPhase::Stopping => "stopping",
        }
    }
}

/// The phase of a worker, as the master sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerPhase {
    /// The worker runs its hooks.
    Booting,
    /// The worker serves.
    Serving,
    /// The worker finishes its requests.
    Stopping,
    /// The worker has finished its requests, and has streams or sockets that the application has taken over.
    Lingering,
}

/// A worker, as the master sees it.
#[derive(Clone, Debug)]
pub struct WorkerState {
    /// The number of the worker.
    pub nr: usize,
    /// The pid of the worker.
    pub pid: u32,
    /// 1 plus the number of rolling restarts before this worker.
    pub generation: u64,
    /// The phase of the worker.
    pub phase: WorkerPhase,
    /// The time of the fork, in seconds of the monotonic clock.
    pub spawned_at: f64,
    /// The index of the worker in the scoreboard.
    pub slot: Option<usize>,
}

/// A process that forks workers.
#[derive(Clone, Copy, Debug)]
pub struct MoldState {
    /// The pid of the mold.
    pub pid: u32,
    /// The generation that it had as a worker.
    pub generation: u64,
    /// The number of requests that it had answered as a worker.
    pub requests: u64,
    /// The memory that the mold has reported; None before the report.
    pub memory: Option<Memory>,
}

/// An order to start processes (HUP, USR2 or URG), and its outcome.
#[derive(Clone, Debug)]
pub struct Order {
    /// The number of the order, counted from 1 in this master.
    pub number: u64,
    /// The name of the signal, without SIG.
    pub signal: String,
    /// `begun`, `done` or `failed`.
    pub state: String,
    /// The reason of a failure.
    pub reason: Option<String>,
    /// The pid of the new master that the order has started.
    pub pid: Option<u32>,
}

/// A listener of the server.
#[derive(Clone, Debug)]
pub struct ListenerInfo {
    /// The address, as in the log line of the listener.
    pub name: String,
    /// The inode of the socket.
    pub inode: u64,
    /// Whether this is a TCP socket; otherwise it is a unix socket.
    pub is_tcp: bool,
    /// The size of the backlog; None if the kernel does not report it.
    pub limit: Option<u32>,
}

/// The end of a worker.
#[derive(Clone, Debug)]
pub struct Exit {
    /// The number of the worker.
    pub nr: usize,
    /// The pid of the worker.
    pub pid: u32,
    /// The cause in one word; see [`fastrack_engine::Cause`].
    pub cause: String,
    /// The log line of the exit.
    pub text: String,
    /// The time of the exit, in seconds since 1970.
    pub at: u64,
}

/// The state of the master at one moment.
#[derive(Clone, Debug, Default)]
pub struct MasterState {
    /// The phase of the server.
    pub phase: ServerPhase,
    /// The generation of the newest workers.
    pub generation: u64,
    /// The number of workers that should run.
    pub wanted: usize,
    /// The longest time of a stop, in seconds: DrainDelay and GracefulTimeout.
    pub stop_seconds: f64,
    /// The pid of the other master during USR2.
    pub other_master: Option<u32>,
    /// The last orders, oldest first.
    pub orders: Arc<[Order]>,
    /// The workers that run.
    pub workers: Arc<[WorkerState]>,
    /// The process that forks the workers; None while there is none.
    pub mold: Option<MoldState>,
    /// Generation 0 beside another mold; None if there is none.
    pub first: Option<MoldState>,
    /// The bytes that a refork would save; None if that is unknown.
    pub refork_saving: Option<u64>,
    /// The listeners of the server.
    pub listeners: Arc<[ListenerInfo]>,
    /// The proxy; None if the server is to have none.
    pub proxy: Option<ProxyState>,
}

/// The proxy, as the master sees it.
#[derive(Clone, Debug)]
pub struct ProxyState {
    /// None while there is no process.
    pub pid: Option<u32>,
    /// "booting", "serving", "silent" or "dead".
    pub state: String,
    /// What it counts.
    pub counts: serde_json::Map<String, serde_json::Value>,
}

impl ProxyState {
    /// Whether clients of the proxy are served.
    pub fn serves(&self) -> bool {
        self.state == "serving"
    }
}

/// The last profile of a worker.
#[derive(Debug, Default)]
struct Profile {
    /// The number of the worker, and the seconds, that a client has asked for and the master has not taken yet.
    asked: Option<(usize, u32)>,
    is_running: bool,
    /// The profile as JSON, as the master has published it; empty before.
    text: Arc<str>,
}

/// The state that the master has published for the monitor. Both threads hold the lock only to copy.
#[derive(Debug, Default)]
pub struct Published {
    state: Mutex<(MasterState, VecDeque<Exit>)>,
    profile: Mutex<Profile>,
}

impl Published {
    fn lock(&self) -> MutexGuard<'_, (MasterState, VecDeque<Exit>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn publish(&self, state: MasterState) {
        self.lock().0 = state;
    }

    fn profile(&self) -> MutexGuard<'_, Profile> {
        self.profile.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client asks for a profile. False while there is one.
    pub fn ask_for_profile(&self, nr: usize, seconds: u32) -> bool {
        let mut profile = self.profile();
        let is_free = profile.asked.is_none() && !profile.is_running;
        if is_free {
            profile.asked = Some((nr, seconds));
        }
        is_free
    }

    /// What a client has asked for, until the master publishes the profile.
    pub fn profile_order(&self) -> Option<(usize, u32)> {
        self.profile().asked
    }

    pub fn publish_profile(&self, is_running: bool, text: &str) {
        *self.profile() = Profile { asked: None, is_running, text: text.into() };
    }

    pub fn read_profile(&self) -> Arc<str> {
        Arc::clone(&self.profile().text)
    }

    pub fn exited(&self, exit: Exit) {
        let exits = &mut self.lock().1;
        if exits.len() == MAX_EXITS {
            exits.pop_back();
        }
        exits.push_front(exit);
    }

    /// The state, and the last exits, newest first.
    pub fn read(&self) -> (MasterState, VecDeque<Exit>) {
        self.lock().clone()
    }
}
