//! One worker's connections, without Ruby.
//!
//! The path of a request: [`Listener`] -> connection -> [`Request`] -> [`App`] -> [`ResponseWriter`] -> keep-alive or
//! close. [`App`] is the only seam to the application, so the whole path runs under `cargo test`.
//!
//! # Layers
//!
//! Bottom first. A layer imports only from itself and from layers above it in this list; `bin/lib/checks.rb` refuses
//! circles.
//!
//! 1. `sync`: atomics; `clock`: clocks; `fork`: descriptors that a forked child must close; `app_sockets`: clients' sockets that
//!    the application has; `scoreboard`: memory shared with the master; `times`: how the time of a request is divided
//! 2. `claim`: the request in progress, its time limit, and who answers it; `admission`: which thread drives, and when
//!    another request begins
//! 3. `access_log`: lines about requests, and the thread that writes them; `control`: the operations on the engine for
//!    other threads and signal handlers
//! 4. `accept`: listeners
//! 5. `settings`
//! 6. `conn`: one connection, its requests, bodies and responses
//! 7. `app`: the trait
//! 8. `handoff`: the queue through which workers share connections
//! 9. `reactor`: all connections of a worker
//! 10. `shared`: the reactor's lock, the baton and the timer, for all threads of a worker
//! 11. `ending`: how the process ends in a request
//! 12. `helper`: the thread that drives the reactor while the application is busy
//! 13. `worker`: the loop of a worker's Ruby threads

mod accept;
mod access_log;
mod admission;
mod app;
mod app_sockets;
mod claim;
mod clock;
mod conn;
mod control;
mod ending;
mod fork;
mod handoff;
mod helper;
mod reactor;
mod scoreboard;
mod settings;
mod shared;
mod sync;
mod times;
mod worker;

#[cfg(test)]
#[path = "../../sys/tests/patience/mod.rs"]
mod patience;

pub use accept::Listener;
pub use access_log::{AccessLogSettings, LogFormat};
pub use admission::Activity;
pub use app::{App, Flow};
pub use claim::{RequestSettings, StreamEnd, ThreadDumper};
pub use conn::{BodyError, BodyRead, BodyStream, Content, Progress, ReadAhead, Request, ResponseWriter};
pub use control::Control;
pub use ending::TIMEOUT_STATUS;
pub use handoff::SharedQueue;

pub use fastrack_access_log::{GvlTimings, Timings};
pub use reactor::Finish;
pub use scoreboard::{
    Cause, Connections, Counts, Entry, GcTime, Histogram, Memory, QueueLength, Scoreboard, Slot, State,
    WorkerId, BUCKETS, FINE_BUCKETS, MAX_STREAMS, MAX_THREADS, MAX_WORKERS,
};
pub use settings::{OrphanSettings, Settings};
pub use times::GvlEvent;
pub use worker::{Engine, Forking, GcPause};
