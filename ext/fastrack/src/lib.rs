//! The Ruby boundary of Fastrack: env, application call, response.
//!
//! No protocol and no system calls here: those are in the crates.
//!
//! # Safety
//!
//! Every Ruby call that may raise runs inside `protect`, since a raise jumps over Rust frames without
//! running destructors. This is the contract of each `unsafe fn` here, unless it says more: the caller is under protect,
//! has the GVL, and none of its frames inside protect owns anything. A SAFETY line says "under protect" where the
//! function's own caller has promised that.
//!
//! # Layers
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
    env::init(ruby, module)?;
    ruby.require("socket")?;
    ruby.require("stringio")?;
    ruby.require("fastrack/rack/input")?;
    ruby::init(ruby)?;
    worker::init(ruby, module)
}
