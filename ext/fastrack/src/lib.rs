//! The Ruby side of Fastrack's engine: environment, application call, response.
//!
//! No protocol and no system calls here; those are the crates'. Every Ruby
//! call that may raise runs inside [`protect`], in frames that own nothing.

// The one public item is Init_fastrack, which the macro makes.
#![allow(missing_docs)]

mod app;
mod body;
mod body_source;
mod callbacks;
mod current;
mod engine;
mod env;
mod errors;
mod fields;
mod file_body;
mod gvl;
mod input;
mod loan;
mod names;
mod peer;
mod protect;
mod protocol;
mod response;
mod roots;
mod scoreboard;
mod settings;
mod shapes;
mod shared_queue;
mod socket;
mod strings;
mod thread_dump;

use magnus::{Error, Ruby};

#[magnus::init]
fn init(ruby: &Ruby) -> Result<(), Error> {
    let module = ruby.define_module("Fastrack")?;
    names::init(ruby)?;
    shared_queue::init(ruby, module)?;
    body_source::init(ruby, module)?;
    scoreboard::init(ruby, module)?;
    engine::init(ruby, module)
}
