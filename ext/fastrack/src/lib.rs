//! The Ruby boundary of Fastrack: env, application call, response.
//!
//! No protocol and no system calls here: those are in the crates. Every Ruby call that may raise runs inside
//! [`protect`](ruby::protect::protect), in frames that own nothing.
//!
//! A folder uses those before it, never those after it:
//!
//! 1. `ruby`: calling Ruby from Rust
//! 2. `env`: the Rack environment of a request, and its input
//! 3. `request`: the request in progress
//! 4. `response`: the app's response, and how it is sent
//! 5. `app`: the Rack app that the engine calls
//! 6. `worker`: the classes that lib/fastrack uses

// The one public item is Init_fastrack, which the macro makes.
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
    ruby::interned::init(ruby)?;
    env::input::init(ruby)?;
    env::body_source::init(ruby, module)?;
    worker::shared_queue::init(ruby, module)?;
    worker::scoreboard::init(ruby, module)?;
    worker::engine::init(ruby, module)
}
