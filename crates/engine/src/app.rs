//! The application, as the engine sees it.

use std::sync::Arc;

use crate::admission::Activity;
use crate::conn::{Request, ResponseWriter};

/// Whether the engine continues after a call of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Flow {
    /// Continue.
    Continue,
    /// Return from [`Engine::run`](crate::Engine::run) at once: the caller has an exception or an interrupt to handle.
    Break,
}

/// The application, and the thread that calls it.
pub trait App {
    /// Called when an additional thread starts serving. From here on the application may report the thread's GVL waits
    /// through `activity`.
    fn begin(&mut self, _thread: usize, _activity: &Arc<Activity>) {}

    /// Answers one request through `writer`.
    ///
    /// The engine answers 500 if nothing was sent, and resets the connection if the response was not
    /// [finished](ResponseWriter::finish).
    fn call(&mut self, request: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow;

    /// Called after each response was sent and its connection was closed or kept.
    fn after_response(&mut self) -> Flow {
        Flow::Continue
    }

    /// Whether the last request left callbacks. The time limit of the request covers their run.
    fn has_callbacks(&self) -> bool {
        false
    }

    /// Runs the callbacks of the last request, after [`after_response`](Self::after_response).
    fn call_callbacks(&mut self) -> Flow {
        Flow::Continue
    }

    /// Lets signal handlers and other threads run. Called regularly while there is much to read and no request to
    /// answer.
    fn check(&mut self) -> Flow {
        Flow::Continue
    }

    /// Runs `wait`, the only call of the engine that may block the thread. An implementation may skip `wait` if the
    /// thread has other work, and must not run it twice.
    fn block(&mut self, wait: &mut (dyn FnMut() + Send)) -> Flow {
        wait();
        Flow::Continue
    }

    /// Called when memory has run out: frees as much as possible.
    fn free_memory(&mut self) -> Flow {
        Flow::Continue
    }

    /// Called when the worker is idle after large bodies: returns free memory to the system.
    fn trim_memory(&mut self) -> Flow {
        fastrack_sys::trim_heap();
        Flow::Continue
    }

    /// Starts another thread that will [serve](crate::Engine::serve). False if that is not possible. Only the first thread is asked.
    fn start_thread(&mut self) -> bool {
        false
    }

    /// The stream of the thread with this number is to end: ends the application's wait for more of the body. The thread may have begun
    /// something else by now: see [`Control::stream_end`](crate::Control::stream_end). The engine repeats the call while the stream lasts.
    /// Only the first thread is called.
    fn interrupt(&mut self, _thread: usize) {}

    /// Logs one line.
    fn warn(&mut self, line: &str);
}
