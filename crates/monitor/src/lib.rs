//! The monitor: says what the server is doing, over HTTP, and asks no worker.
//!
//! It is one thread of the master, of native code, which reads the scoreboard and proc(5). So
//! it answers while all workers hang, and the master in a hook. What only the master knows, that one leaves here
//! ([`Monitor::publish`]).
//!
//! The thread has a table of file descriptors of its own: no fork of the master's passes on its clients or its listener.
//! It owns no lock that a fork could find taken and needs: a forked child never touches what is here.
//!
//! # Layers
//!
//! Bottom first:
//!
//! 1. `settings`; `master`: what the master says; `process`, `backlog`: what proc(5) says
//! 2. `view`: all of it at one moment
//! 3. `metrics`, `status`: a view as OpenMetrics and as JSON
//! 4. `answer`: one request
//! 5. `clients`: connections, and their limits
//! 6. `place`: the addresses of the monitor
//! 7. `monitor`: the thread

mod answer;
mod backlog;
mod clients;
mod master;
mod metrics;
mod monitor;
mod place;
mod process;
mod settings;
mod status;
mod view;

#[cfg(all(test, target_os = "linux", not(feature = "portable")))]
#[path = "../../sys/tests/patience/mod.rs"]
mod patience;

pub use master::{Exit, ListenerInfo, MasterState, MoldState, Order, Phase, WorkerPhase, WorkerState};
pub use monitor::{Monitor, PATIENCE};
pub use settings::Settings;
