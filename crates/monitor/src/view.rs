//! All figures of the server at one moment.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use fastrack_engine::{Cause, Connections, Counts, Entry, Scoreboard, State};
use fastrack_sys::monotonic_micros;

use crate::backlog::backlogs;
use crate::master::{
    Exit, ListenerInfo, MasterState, MoldState, Published, ServerPhase, WorkerPhase, WorkerState,
};
use crate::process::{listen_overflows, own_cpu_seconds, usage, PssCache, Usage};
use crate::settings::MonitorSettings;

/// How long a view is reused, in microseconds.
const VIEW_LIFETIME: u64 = 100_000;

/// The names of the status classes, in the order of [`Counts::responses`]. The first is for requests without a status.
pub const STATUS_CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The numbers of connections, by state.
pub fn states(connections: &Connections) -> [(&'static str, u64); 6] {
    let Connections { idle, reading, waiting, in_app, streaming, writing } = *connections;
    [
        ("idle", idle),
        ("reading", reading),
        ("waiting", waiting),
        ("in_app", in_app),
        ("streaming", streaming),
        ("writing", writing),
    ]
}

/// A worker.
#[derive(Clone, Debug)]
pub struct Worker {
    pub master: WorkerState,
    pub entry: Option<Entry>,
    /// The number of requests in the application.
    pub in_app: Option<u64>,
    /// The number of requests that wait for a thread.
    pub waiting: Option<u64>,
    /// The number of streams.
    pub streams: Option<u64>,
    /// The number of requests of all workers with the same number, past and present.
    pub slot_requests: Option<u64>,
    /// The time that all threads have spent in the application, in milliseconds.
    pub busy: Option<u64>,
    /// None if the process has ended.
    pub usage: Option<Usage>,
}

impl Worker {
    /// The state of the worker in one word.
    pub fn state(&self) -> &'static str {
        let serving = self.entry.as_ref().is_some_and(|entry| entry.state != State::Waiting);
        match self.master.phase {
            _ if self.usage.is_none() => "dead",
            WorkerPhase::Booting => "booting",
            WorkerPhase::Stopping => "stopping",
            WorkerPhase::Lingering => "lingering",
            WorkerPhase::Serving if serving => "busy",
            WorkerPhase::Serving => "idle",
        }
    }

    /// The request in progress: method and path, and its duration in seconds.
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
    pub settings: Arc<MonitorSettings>,
    pub master: MasterState,
    /// The last exits, newest first.
    pub exits: VecDeque<Exit>,
    pub counts: Counts,
    pub restarts: Vec<(Cause, u64)>,
    pub workers: Vec<Worker>,
    /// The usage of the master's process, which includes the monitor.
    pub usage: Option<Usage>,
    /// The usage of the mold; None without a mold.
    pub mold: Option<Usage>,
    /// The usage of generation 0 beside another mold.
    pub first: Option<Usage>,
    /// The usage of the proxy.
    pub proxy: Option<Usage>,
    /// Each listener with the number of waiting connections.
    pub listeners: Vec<(ListenerInfo, Option<u32>)>,
    pub overflows: Option<u64>,
    pub own_cpu_seconds: Option<f64>,
}

impl View {
    /// The phase of the server. `Down` if the master serves but no worker is ready, or clients of the proxy are not served.
    pub fn phase(&self) -> ServerPhase {
        match self.master.phase {
            ServerPhase::Serving if self.ready() == 0 || !self.proxy_serves() => ServerPhase::Down,
            phase => phase,
        }
    }

    /// Whether the server is ready for new clients.
    pub fn serves(&self) -> bool {
        self.ready() > 0
            && self.proxy_serves()
            && !matches!(self.master.phase, ServerPhase::Draining | ServerPhase::Stopping)
    }

    /// False if clients of the ports are not served, because the proxy boots, hangs or has died.
    fn proxy_serves(&self) -> bool {
        self.master.proxy.as_ref().is_none_or(|proxy| proxy.serves())
    }

    /// The number of serving workers, idle or busy.
    pub fn ready(&self) -> usize {
        self.workers.iter().filter(|worker| matches!(worker.state(), "idle" | "busy")).count()
    }
}

/// Makes views.
#[derive(Debug)]
pub struct Viewer {
    settings: Arc<MonitorSettings>,
    published: Arc<Published>,
    scoreboard: Scoreboard,
    last: Mutex<(u64, PssCache, Option<Arc<View>>)>,
}

impl Viewer {
    pub fn new(settings: Arc<MonitorSettings>, published: Arc<Published>, scoreboard: Scoreboard) -> Self {
        Viewer { settings, published, scoreboard, last: Mutex::default() }
    }

    /// The number of the last order that the master has published; 0 without an order.
    pub fn last_order(&self) -> u64 {
        self.published.read().0.orders.last().map_or(0, |order| order.number)
    }

    /// The state that the master has published.
    pub fn published(&self) -> &Published {
        &self.published
    }

    /// The present view, or one that is younger than [`VIEW_LIFETIME`].
    pub fn view(&self) -> Arc<View> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = monotonic_micros();
        let (until, memories, kept) = &mut *last;
        match kept {
            Some(view) if now < *until => Arc::clone(view),
            _ => {
                let view = Arc::new(self.look(now, memories));
                *until = now + VIEW_LIFETIME;
                *kept = Some(Arc::clone(&view));
                view
            }
        }
    }

    fn look(&self, now: u64, memories: &mut PssCache) -> View {
        let (master, exits) = self.published.read();
        let own = std::process::id();
        let proxy = master.proxy.as_ref().and_then(|proxy| proxy.pid);
        let pids: Vec<u32> = [own]
            .into_iter()
            .chain(proxy)
            .chain(master.mold.map(|mold| mold.pid))
            .chain(master.first.map(|mold| mold.pid))
            .chain(master.workers.iter().map(|worker| worker.pid))
            .collect();
        let memory = memories.get(&pids);
        let mut usages = pids.iter().zip(memory).map(|(pid, memory)| Some(Usage { memory, ..usage(*pid)? }));
        let usage = usages.next().flatten();
        let proxy = proxy.and_then(|_| usages.next().flatten());
        let mut of_mold = |mold: Option<MoldState>| {
            let (mold, usage) = (mold?, usages.next().flatten()?);
            Some(Usage { memory: usage.memory.or(mold.memory), ..usage })
        };
        let (mold, first) = (of_mold(master.mold), of_mold(master.first));
        let entry = |worker: &WorkerState| self.scoreboard.read(worker.slot?);
        let connections = |worker: &WorkerState| Some(self.scoreboard.counts(worker.slot?)?.connections);
        let busy = |worker: &WorkerState| self.scoreboard.busy(worker.slot?, now / 1000);
        let by_number = self.scoreboard.requests_by_number();
        let workers = master.workers.iter().zip(usages).map(|(worker, usage)| {
            let (entry, connections) = (entry(worker), connections(worker));
            // The kernel may hide the memory of another user's process. The worker reports its own.
            let reported = entry.as_ref().and_then(|entry| entry.memory);
            Worker {
                master: worker.clone(),
                in_app: connections.map(|connections| connections.in_app),
                waiting: connections.map(|connections| connections.waiting),
                streams: connections.map(|connections| connections.streaming),
                slot_requests: by_number.get(worker.nr).copied(),
                busy: busy(worker),
                usage: usage.map(|usage| Usage { memory: usage.memory.or(reported), ..usage }),
                entry,
            }
        });
        let mut workers: Vec<_> = workers.collect();
        // Two workers have the same number while one replaces the other. The older one comes first.
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
            first,
            proxy,
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
