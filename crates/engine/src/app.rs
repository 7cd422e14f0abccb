//! The application, as the engine calls it.

use std::sync::Arc;

use crate::admission::Activity;
use crate::conn::{Request, ResponseWriter};

/// Whether the engine may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// Go on.
    Continue,
    /// Return from [`Engine::run`](crate::Engine::run) at once: the caller has something to deal with.
    Break,
}

/// The application, and the thread that it runs on.
pub trait App {
    /// Called when a thread starts to serve beside others, with its number. From here on the application reports the thread's waits through
    /// `activity`, if it knows them.
    fn begin(&mut self, _thread: usize, _activity: &Arc<Activity>) {}

    /// Answers one request through `writer`.
    ///
    /// If nothing was sent the engine answers 500. If the response was not [finished](ResponseWriter::finish) the
    /// engine resets the connection.
    fn call(&mut self, request: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow;

    /// Called after each response has left and its connection was closed or kept.
    fn after_response(&mut self) -> Flow {
        Flow::Continue
    }

    /// Whether there is something to call after the last response, which counts towards the request's time limit.
    fn has_callbacks(&self) -> bool {
        false
    }

    /// Calls that, after [`after_response`](Self::after_response).
    fn call_callbacks(&mut self) -> Flow {
        Flow::Continue
    }

    /// Lets signal handlers and other threads run. Called now and then while there is much to read and nothing to
    /// answer.
    fn check(&mut self) -> Flow {
        Flow::Continue
    }

    /// Runs `wait`, which may block the thread; nothing else blocks it. An implementation may skip `wait` if the
    /// thread has something else to do, and must not run it twice.
    fn block(&mut self, wait: &mut (dyn FnMut() + Send)) -> Flow {
        wait();
        Flow::Continue
    }

    /// Memory has run out: frees what can be freed.
    fn free_memory(&mut self) -> Flow {
        Flow::Continue
    }

    /// The worker is idle after large bodies: gives their memory back to the system.
    fn trim_memory(&mut self) -> Flow {
        fastrack_sys::trim_heap();
        Flow::Continue
    }

    /// Logs a line.
    fn warn(&mut self, line: &str);
}
