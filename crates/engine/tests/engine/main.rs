//! The engine from outside: real sockets, and an application without Ruby.

mod hand_over;
mod keep_alive;
mod lifecycle;
mod requests;
mod support;
