//! One worker's connections, without Ruby.
//!
//! Data flows one way: [`Listener`] -> connection -> [`Request`] -> [`App`]
//! -> [`ResponseWriter`] -> wire -> recycle. The engine is driven through the small
//! trait [`App`], so that the whole request path runs under `cargo test`.

mod alarm;
mod answers;
mod app;
mod backlog;
mod body;
mod body_reader;
mod connection;
mod connections;
mod control;
mod engine;
mod evacuation;
mod exit_handler;
mod hand_over;
mod held;
mod helper;
mod input;
mod listener;
mod listeners;
mod output;
mod parcel;
mod pulse;
mod reactor;
mod request;
mod response_writer;
mod scoreboard;
mod settings;
mod shared;
mod shared_queue;
mod turn;
mod watch;
mod watchdog;

pub use app::{App, Flow};
pub use body_reader::{BodyError, BodyRead, BodyStream, ReadAhead};
pub use control::Control;
pub use engine::{Engine, Finish};
pub use exit_handler::ExitHandler;
pub use listener::Listener;
pub use request::{Content, Request};
pub use response_writer::{Progress, ResponseWriter};
pub use scoreboard::{Entry, Scoreboard, Slot, State};
pub use settings::Settings;
pub use shared_queue::SharedQueue;
pub use watch::{ThreadDumper, WatchSettings};
pub use watchdog::EXIT_STATUS;
