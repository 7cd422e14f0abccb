//! The limit program: what a request costs when nothing but its syscalls is done.
//!
//! A fixed number of forked workers share one listener and answer every request with the same
//! canned bytes, without looking at what was asked. The kernel's work for a request is all that is
//! left, so a server on the same sockets cannot use less CPU; `bench/run` divides by it.

mod close_each;
mod connection;
mod keep_alive;
mod listener;
mod options;
mod response;

use std::io;
use std::process::ExitCode;

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::wait;
use nix::unistd::{fork, getpid, getppid, ForkResult, Pid};

use crate::listener::Listener;
use crate::options::Options;
use crate::response::Response;

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| supervise(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("limit: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Forks the workers and waits for the first that ends, which is always a fault: a worker serves
/// until it is killed. TERM ends this process, and with it (see [`die_with`]) its workers.
fn supervise(options: &Options) -> io::Result<()> {
    let listener = Listener::open(options)?;
    let response = Response::read(&options.response)?;
    let master = getpid();
    for _ in 0..options.workers {
        // SAFETY: the process has one thread, so the child may do anything its parent may.
        if let ForkResult::Child = unsafe { fork() }? {
            die_with(master)?;
            return serve(&listener, &response, options);
        }
    }
    Err(io::Error::other(format!("a worker ended: {:?}", wait()?)))
}

fn serve(listener: &Listener, response: &Response, options: &Options) -> io::Result<()> {
    if options.keep_alive {
        keep_alive::serve(listener, response, options.request_bytes)
    } else {
        close_each::serve(listener, response, options.request_bytes)
    }
}

/// Asks the kernel to kill this worker when its master dies, so that none is ever left behind.
fn die_with(master: Pid) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The master may have died before the line above took effect.
    if getppid() != master {
        return Err(io::Error::other("the master is gone"));
    }
    Ok(())
}
