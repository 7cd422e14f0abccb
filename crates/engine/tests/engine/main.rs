//! The engine from outside: real sockets, and an application without Ruby.

mod lifecycle;
mod requests;
mod support;
