//! The monitor: reports the state of the server over HTTP, without asking a worker.
//!
//! The monitor is one native thread of the master. It reads the scoreboard, proc(5), and the state that the master has
//! published ([`Monitor::publish`]). So it answers while all workers hang and while the master runs a hook.
//!
//! The thread has its own table of file descriptors: a forked child inherits neither its clients nor its listeners. A
//! fork may copy a locked mutex of the monitor, but a forked child uses nothing of the monitor.
//!
//! # Layers
//!
//! Bottom first:
//!
//! 1. `settings`; `master`: the published state of the master; `process`: figures of proc(5)
//! 2. `backlog`: the backlogs of the listeners
//! 3. `view`: all figures at one moment
//! 4. `metrics`, `status`: a view as OpenMetrics and as JSON
//! 5. `answer`: one request
//! 6. `clients`: connections, and their limits
//! 7. `socket_file`: the addresses of the monitor
//! 8. `monitor`: the thread

mod answer;
mod backlog;
mod clients;
mod master;
mod metrics;
mod monitor;
mod process;
mod settings;
mod socket_file;
mod status;
mod view;

#[cfg(all(test, target_os = "linux", not(feature = "portable")))]
#[path = "../../sys/tests/patience/mod.rs"]
mod patience;

pub use master::{
    Exit, ListenerInfo, MasterState, MoldState, Order, ProxyState, ServerPhase, WorkerPhase, WorkerState,
};
pub use monitor::{Monitor, THREAD_TIMEOUT};
pub use settings::MonitorSettings;
pub use view::STATUS_CLASSES;
