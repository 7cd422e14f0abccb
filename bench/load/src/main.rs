//! The benchmark's clients. Each sends its next request when it has had its answer and has paused. support/closed_loop.rb runs the
//! program and reads its output, which [`tally::Tally::write`] describes.

mod closed_loop;
mod options;
mod plan;
mod response;
mod tally;

use std::process::ExitCode;

use crate::options::Options;

fn main() -> ExitCode {
    let played = Options::parse(std::env::args().skip(1)).and_then(|options| closed_loop::run(&options));
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}
