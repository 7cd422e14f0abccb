//! The engine from outside: real sockets, and an application without Ruby.

mod counting;
mod handoff;
mod keep_alive;
mod lifecycle;
mod requests;
mod spool;
mod support;
mod threads;
