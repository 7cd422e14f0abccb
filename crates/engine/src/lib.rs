//! One worker's connections, without Ruby.
//!
//! Data flows one way: [`Listener`] -> connection -> [`Request`] -> [`App`]
//! -> [`ResponseWriter`] -> wire -> recycle. The engine is driven through the small
//! trait [`App`], so that the whole request path runs under `cargo test`.

mod accept;
mod app;
mod conn;
mod control;
mod fork;
mod handoff;
mod helper;
mod reactor;
mod settings;
mod watch;
mod worker;

pub use accept::listener::Listener;
pub use app::{App, Flow};
pub use conn::body::reader::{BodyError, BodyRead, ReadAhead};
pub use conn::body::stream::BodyStream;
pub use conn::request::{Content, Request};
pub use conn::response_writer::{Progress, ResponseWriter};
pub use control::Control;
pub use handoff::queue::SharedQueue;
pub use settings::Settings;
pub use watch::active_request::{ThreadDumper, WatchSettings};
pub use watch::scoreboard::{Entry, Scoreboard, Slot, State};
pub use watch::watchdog::EXIT_STATUS;
pub use worker::exit_handler::ExitHandler;
pub use worker::{Engine, Finish};
