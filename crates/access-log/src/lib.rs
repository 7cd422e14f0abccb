//! Lines of the access log: those of the workers, and those of the proxy's own answers, have one format.

#![forbid(unsafe_code)]

mod escape;
mod line;
mod timings;

pub use line::{Format, Line, LineWriter, Request, LINE_LIMIT};
pub use timings::{GvlTimings, Timings};
