//! All that is known, at one moment.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use fastrack_engine::{Cause, Connections, Counts, Entry, Scoreboard, State};
use fastrack_sys::monotonic_micros;

use crate::backlog::backlogs;
use crate::master::{Exit, ListenerInfo, MasterState, Notes, Phase, WorkerPhase, WorkerState};
use crate::process::{listen_overflows, own_cpu_seconds, usage, MemoryBook, Usage};
use crate::settings::Settings;

/// How long a view counts, in microseconds: whoever asks more often gets the same.
const LASTS: u64 = 100_000;

/// Names of the classes of statuses; the first is of requests without one.
pub const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The connections, by what they wait for.
pub fn states(connections: &Connections) -> [(&'static str, u64); 5] {
    let Connections { idle, reading, waiting, in_app, writing } = *connections;
    [("idle", idle), ("reading", reading), ("waiting", waiting), ("in_app", in_app), ("writing", writing)]
}

/// A worker.
#[derive(Clone, Debug)]
pub struct Worker {
    pub master: WorkerState,
    pub entry: Option<Entry>,
    /// Requests that the application is answering.
    pub in_app: Option<u64>,
    /// Requests of all workers that have had its number.
    pub slot_requests: Option<u64>,
    /// Milliseconds that its threads have been in the application, all together.
    pub busy: Option<u64>,
    /// None if its process has ended.
    pub usage: Option<Usage>,
}

impl Worker {
    /// One word for what it does.
    pub fn state(&self) -> &'static str {
        let serving = self.entry.as_ref().is_some_and(|entry| entry.state != State::Waiting);
        match self.master.phase {
            _ if self.usage.is_none() => "dead",
            WorkerPhase::Booting => "booting",
            WorkerPhase::Stopping => "stopping",
            WorkerPhase::Serving if serving => "busy",
            WorkerPhase::Serving => "idle",
        }
    }

    /// The request that it answers: method and path; and its seconds.
    pub fn request(&self, now: f64) -> Option<(String, f64)> {
        let entry = self.entry.as_ref().filter(|entry| entry.state != State::Waiting)?;
        let path = entry.line.escape_ascii().to_string();
        let text = if entry.in_callbacks { format!("callbacks of {path}") } else { path };
        Some((text, (now - entry.started as f64 / 1000.0).max(0.0)))
    }
}

#[derive(Clone, Debug)]
pub struct View {
    /// In seconds of the monotonic clock.
    pub now: f64,
    pub settings: Arc<Settings>,
    pub master: MasterState,
    /// The last one first.
    pub exits: VecDeque<Exit>,
    pub counts: Counts,
    pub restarts: Vec<(Cause, u64)>,
    pub workers: Vec<Worker>,
    /// The master's process: the monitor is part of it.
    pub usage: Option<Usage>,
    /// The mold's process; None if there is none.
    pub mold: Option<Usage>,
    /// With the connections that wait there.
    pub listeners: Vec<(ListenerInfo, Option<u32>)>,
    pub overflows: Option<u64>,
    pub own_cpu_seconds: Option<f64>,
}

impl View {
    /// What the server is at, as each answer says it.
    pub fn phase(&self) -> Phase {
        match self.master.phase {
            Phase::Serving if self.ready() == 0 => Phase::Down,
            phase => phase,
        }
    }

    /// Whether clients are served, and are to come.
    pub fn serves(&self) -> bool {
        self.ready() > 0 && !matches!(self.master.phase, Phase::Draining | Phase::Stopping)
    }

    /// Workers that serve, whether idle or busy.
    pub fn ready(&self) -> usize {
        self.workers.iter().filter(|worker| matches!(worker.state(), "idle" | "busy")).count()
    }
}

/// Where views come from.
#[derive(Debug)]
pub struct Viewer {
    settings: Arc<Settings>,
    notes: Arc<Notes>,
    scoreboard: Scoreboard,
    last: Mutex<(u64, MemoryBook, Option<Arc<View>>)>,
}

impl Viewer {
    pub fn new(settings: Arc<Settings>, notes: Arc<Notes>, scoreboard: Scoreboard) -> Self {
        Viewer { settings, notes, scoreboard, last: Mutex::default() }
    }

    /// The number of the last order that the master has told of; 0: it has had none.
    pub fn last_order(&self) -> u64 {
        self.notes.read().0.orders.last().map_or(0, |order| order.number)
    }

    /// The present, or what it was a moment ago.
    pub fn view(&self) -> Arc<View> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = monotonic_micros();
        let (until, book, kept) = &mut *last;
        match kept {
            Some(view) if now < *until => Arc::clone(view),
            _ => {
                let view = Arc::new(self.look(now, book));
                *until = now + LASTS;
                *kept = Some(Arc::clone(&view));
                view
            }
        }
    }

    fn look(&self, now: u64, book: &mut MemoryBook) -> View {
        let (master, exits) = self.notes.read();
        let own = std::process::id();
        let pids: Vec<u32> = [own]
            .into_iter()
            .chain(master.mold.map(|mold| mold.pid))
            .chain(master.workers.iter().map(|worker| worker.pid))
            .collect();
        let memory = book.of(&pids);
        let mut usages = pids.iter().zip(memory).map(|(pid, memory)| Some(Usage { memory, ..usage(*pid)? }));
        let usage = usages.next().flatten();
        let mold = master.mold.and_then(|mold| {
            let usage = usages.next().flatten()?;
            Some(Usage { memory: usage.memory.or(mold.memory), ..usage })
        });
        let entry = |worker: &WorkerState| self.scoreboard.read(worker.slot?);
        let in_app = |worker: &WorkerState| Some(self.scoreboard.counts(worker.slot?)?.connections.in_app);
        let busy = |worker: &WorkerState| self.scoreboard.busy(worker.slot?, now / 1000);
        let by_number = self.scoreboard.requests_by_number();
        let workers = master.workers.iter().zip(usages).map(|(worker, usage)| {
            let entry = entry(worker);
            // Of another user's process the kernel may not tell.
            let said = entry.as_ref().and_then(|entry| entry.memory);
            Worker {
                master: worker.clone(),
                in_app: in_app(worker),
                slot_requests: by_number.get(worker.nr).copied(),
                busy: busy(worker),
                usage: usage.map(|usage| Usage { memory: usage.memory.or(said), ..usage }),
                entry,
            }
        });
        let mut workers: Vec<_> = workers.collect();
        // The older one of two that have a number while one replaces the other comes first.
        workers.sort_by(|one, other| {
            let (one, other) = (&one.master, &other.master);
            one.nr.cmp(&other.nr).then(one.spawned_at.total_cmp(&other.spawned_at))
        });
        View {
            now: now as f64 / 1e6,
            settings: Arc::clone(&self.settings),
            workers,
            usage,
            mold,
            listeners: master.listeners.iter().cloned().zip(backlogs(&master.listeners)).collect(),
            overflows: listen_overflows(),
            counts: self.scoreboard.totals(),
            restarts: self.scoreboard.restarts().into(),
            own_cpu_seconds: own_cpu_seconds(),
            master,
            exits,
        }
    }
}
