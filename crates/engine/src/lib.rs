//! One worker's connections, without Ruby.
//!
//! The path of a request: [`Listener`] -> connection -> [`Request`] -> [`App`] -> [`ResponseWriter`] -> keep-alive or
//! close. [`App`] is the only seam to the application, so the whole path runs under `cargo test`.
//!
//! # Layers
//!
//! Bottom first. A layer imports only from itself and from layers above it in this list; `bin/lib/layers.rb` has the
//! same order and checks each import.
//!
//! 1. `sync`: atomics; `clock`: clocks; `fork`: descriptors that a forked child must close; `request_state`: the request
//!    in progress, its time limit, and the scoreboard
//! 2. `baton`: which thread drives
//! 3. `access_log`: lines about requests, and the thread that writes them; `control`: the operations on the engine for
//!    other threads and signal handlers
//! 4. `accept`: listeners
//! 5. `settings`
//! 6. `conn`: one connection, its requests, bodies and responses
//! 7. `app`: the trait
//! 8. `handoff`: the queue through which workers share connections
//! 9. `reactor`: all connections of a worker
//! 10. `helper`: the thread that drives the reactor while the application is busy
//! 11. `worker`: the loop of a worker's Ruby threads

mod accept;
mod access_log;
mod app;
mod baton;
mod clock;
mod conn;
mod control;
mod fork;
mod handoff;
mod helper;
mod reactor;
mod request_state;
mod settings;
mod sync;
mod worker;

#[cfg(test)]
#[path = "../../sys/tests/patience/mod.rs"]
mod patience;

pub use accept::Listener;
pub use access_log::{AccessLogSettings, LogFormat};
pub use app::{App, Flow};
pub use conn::{BodyError, BodyRead, BodyStream, Content, Progress, ReadAhead, Request, ResponseWriter};
pub use control::Control;
pub use handoff::SharedQueue;
pub use helper::TIMEOUT_STATUS;

pub use reactor::Finish;
pub use request_state::{
    Activity, Cause, Connections, Counts, Entry, GcTime, Histogram, Memory, QueueLength, RequestSettings,
    Scoreboard, Slot, State, ThreadDumper, WorkerId, BUCKETS, MAX_THREADS, MAX_WORKERS,
};
pub use settings::Settings;
pub use worker::{Engine, Forking, GcPause};
