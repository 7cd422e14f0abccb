//! Faces the internet for Fastrack: TLS, HTTP/2, files and compression.
//!
//! A process of its own, which the master starts with the listening sockets, and which knows no Ruby. It asks the workers over a unix
//! socket, so that one queue, slow clients, limits and 503 work as without it. Private keys are in no process that runs the app.
//!
//! ```text
//!   client -> server (TLS, HTTP/2) -> handler -> files
//!                                        |
//!                                        '-----> upstream -> worker
//! ```

mod access_log;
mod acme;
mod acme_client;
mod body;
mod change;
mod clock;
pub mod compress;
mod connection;
mod control;
mod ending;
pub mod fields;
pub mod files;
mod finish;
pub mod forwarded;
mod handler;
mod listening;
mod local;
mod memory;
mod orders;
mod pace;
mod place;
mod progress;
mod proxy_protocol;
mod ranges;
mod rate;
mod requests;
mod run;
mod server;
mod settings;
mod shares;
mod site;
mod stats;
mod tls;
mod tunnel;
mod uploaded;
mod upstream;
mod watched;
mod work;
mod worker_request;
mod worker_socket;

use std::path::Path;
use std::process::ExitCode;

// What a worker sends may be anything that its app writes: the fuzz target reads it, too.
pub use upstream::framing::{Framing, Part};
pub use upstream::head::{Head, Malformed};

/// Runs the program's command.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        [] => run::run(),
        ["check"] => run::check(),
        ["local-certificate", folder, _, ..] => local_certificate(Path::new(folder), &arguments[2..]),
        _ => Err("this program is for Fastrack's master: see `fastrack --help`".to_owned()),
    };
    match result {
        Ok(()) => {
            control::finish();
            ExitCode::SUCCESS
        }
        Err(error) => {
            control::error(&error);
            control::finish();
            ExitCode::FAILURE
        }
    }
}

/// Makes certificates for this machine, and prints their paths.
fn local_certificate(folder: &Path, hosts: &[String]) -> Result<(), String> {
    let files = local::make(folder, hosts)
        .map_err(|error| format!("cannot make a certificate in {}: {error}", folder.display()))?;
    files.iter().for_each(|file| println!("{}", file.display()));
    Ok(())
}
