//! The clients of the benchmark: ones that send a request when they have their answer, slow ones, idle ones.
//!
//! Each command prints one line of JSON when it is done. All of them are loops over epoll or few connections, so that they
//! take little of the cores that they share with the server.

mod client;
mod closed_loop;
mod connection;
mod descriptors;
mod gaps;
mod hold;
mod options;
mod plan;
mod response;
mod routers;
mod standard_input;
mod tally;
mod trickle;

#[cfg(test)]
#[path = "../../../crates/sys/tests/patience/mod.rs"]
mod patience;

use std::io;
use std::process::ExitCode;

use crate::options::{Command, Options};

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> io::Result<()> {
    match options.command {
        Command::ClosedLoop => closed_loop::run(options),
        Command::Trickle => trickle::run(options),
        Command::Hold => hold::run(options),
    }
}
