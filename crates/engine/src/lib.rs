//! One worker's connections, without Ruby.
//!
//! Data flows one way: [`Listener`] -> connection -> [`Request`] -> [`App`]
//! -> [`Exchange`] -> wire -> recycle. The engine is driven through the small
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
mod dispatch;
mod engine;
mod evacuation;
mod exchange;
mod hand_over;
mod held;
mod helper;
mod input;
mod last_words;
mod listener;
mod listeners;
mod output;
mod parcel;
mod pulse;
mod reactor;
mod request;
mod scoreboard;
mod settings;
mod shared;
mod turn;
mod watch;
mod watchdog;

pub use app::{App, Flow};
pub use body_reader::{BodyError, BodyStream, Gathering, Intake};
pub use control::Control;
pub use dispatch::Dispatch;
pub use engine::{Engine, Finish};
pub use exchange::{Exchange, Progress};
pub use last_words::LastWords;
pub use listener::Listener;
pub use request::{Content, Request};
pub use scoreboard::{Entry, Scoreboard, Slot, State};
pub use settings::Settings;
pub use watch::{Oversight, Witness};
pub use watchdog::EXIT_STATUS;
