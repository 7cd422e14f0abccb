//! The Ruby boundary of Fastrack: env, application call, response.
//!
//! The crates implement the protocol and the system calls.
//!
//! # Safety
//!
//! Every Ruby call that may raise runs inside `protect`, since a raise jumps over Rust frames without running destructors.
//! The contract of each `unsafe fn` here, unless its comment says more: the caller is under protect and has the GVL, and no
//! frame of the caller inside protect owns anything. "Under protect" in a SAFETY line refers to this contract.
//!
//! # Layers
//!
//! A folder uses the folders before it, never the folders after it:
//!
//! 1. `ruby`: calling Ruby from Rust
//! 2. `env`: the Rack environment of a request, and its input
//! 3. `request`: the request in progress
//! 4. `response`: sending the app's response
//! 5. `app`: the Rack app that the engine calls
//! 6. `worker`: the classes that lib/fastrack uses

// The only public item is Init_fastrack, defined by magnus::init.
#![allow(missing_docs)]

mod app;
mod env;
mod request;
mod response;
mod ruby;
mod worker;

use magnus::{Error, Ruby};

#[magnus::init]
fn init(ruby: &Ruby) -> Result<(), Error> {
    let module = ruby.define_module("Fastrack")?;
    env::init(ruby, module)?;
    ruby.require("socket")?;
    ruby.require("stringio")?;
    ruby.require("fastrack/rack/input")?;
    ruby.require("fastrack/rack/stream_ended")?;
    ruby::init(ruby)?;
    worker::init(ruby, module)
}
