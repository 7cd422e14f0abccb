//! The clients of the benchmark: `closed-loop` clients send a request when they have their answer, `trickle` clients send or read slowly,
//! `hold` clients keep an idle connection. Each command prints lines of JSON.

mod bystanders;
mod closed_loop;
mod gaps;
mod options;
mod plan;
mod response;
mod tally;

use std::process::ExitCode;

use crate::options::Options;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let played = Options::parse(words).and_then(|options| match command.as_str() {
        "closed-loop" => closed_loop::run(&options),
        "trickle" => bystanders::trickle(&options),
        "hold" => bystanders::hold(&options),
        _ => Err(std::io::Error::other("usage: load closed-loop|trickle|hold --NAME VALUE...")),
    });
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}
