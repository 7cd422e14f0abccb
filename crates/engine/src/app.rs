//! What the engine wants of an application.

use crate::conn::request::Request;
use crate::conn::response_writer::ResponseWriter;

/// Whether the engine may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// Go on.
    Continue,
    /// Leave [`Engine::run`](crate::Engine::run) at once: something outside waits to be dealt with.
    Break,
}

/// The application behind the engine, and the thread that it runs on.
pub trait App {
    /// Answers one request through `writer`.
    ///
    /// An writer on which nothing was sent makes the engine answer 500;
    /// one that is not [finished](ResponseWriter::finish) makes it reset the connection.
    fn call(&mut self, request: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow;

    /// Called after each response has left and its connection is closed.
    /// Nothing is to be done by itself.
    fn after_response(&mut self) -> Flow {
        Flow::Continue
    }

    /// Has whatever else wants this thread take its turn: signals, other threads. Called now and then
    /// while there is much to read and nothing to answer. Nothing else wants it by itself.
    fn check(&mut self) -> Flow {
        Flow::Continue
    }

    /// Runs `wait`, which may block the thread: nothing else ever does. It is
    /// run at most once, and not at all when the thread has something else to do. By itself it is just run.
    fn block(&mut self, wait: &mut (dyn FnMut() + Send)) -> Flow {
        wait();
        Flow::Continue
    }

    /// Takes a line for the server's log.
    fn warn(&mut self, line: &str);
}
