//! The Ruby side of Fastrack's engine: environment, application call, response.
//!
//! No protocol and no system calls here; those are the crates'. Every Ruby
//! call that may raise runs inside [`protect`], in frames that own nothing.

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
    worker::shared_queue::init(ruby, module)?;
    env::body_source::init(ruby, module)?;
    worker::scoreboard::init(ruby, module)?;
    worker::engine::init(ruby, module)
}
