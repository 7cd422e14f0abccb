//! Methods of Fastrack::RequestBound, whose objects in env act on one request.
//!
//! A request is over when its callbacks have returned. A later call affects no other request.

use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::{method, prelude::*, Error, RClass, RHash, RModule, Ruby, Value};

use crate::app::{hijack, send_early_hints};
use crate::env::bound_request;
use crate::request::{no_request, AppThread};
use crate::worker::engine_arguments::limit;

pub(super) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    let base: RClass = module.const_get("RequestBound")?;
    let class = |name: &str| base.const_get::<_, RClass>(name);
    base.define_method("timings", method!(timings, 0))?;
    class("Hijack")?.define_method("call", method!(call_hijack, 0))?;
    class("EarlyHints")?.define_method("call", method!(call_early_hints, 1))?;
    class("ClientGone")?.define_method("call", method!(call_client_gone, 0))?;
    class("Timeout")?.define_method("call", method!(call_timeout, 1))?;
    class("IoBound")?.define_method("call", method!(call_io_bound, 0))?;
    ruby.eval::<Value>("class Fastrack::RequestBound; def to_proc = method(:call).to_proc; end").map(drop)
}

/// The thread of the object's request; None if the request is over.
fn thread_of(this: Value) -> Option<&'static AppThread> {
    // SAFETY: the class of the object has this method, so `RequestBoundObjects::make` has made the object.
    AppThread::of_request(unsafe { bound_request(this.as_raw()) })
}

/// `rack.hijack`: passes the connection to the app, as a TCPSocket or UNIXSocket. Raises IOError if the request is over or
/// belongs to another thread, or if the response has started.
fn call_hijack(ruby: &Ruby, this: Value) -> Result<Value, Error> {
    let thread = thread_of(this).ok_or_else(|| no_request(ruby))?;
    let socket = thread.with_request(ruby, |in_flight| hijack(in_flight, ruby))?;
    // SAFETY: a socket object, alive on the stack.
    Ok(unsafe { Value::from_raw(socket) })
}

/// `rack.early_hints`: sends 103 with these headers, unless the client speaks HTTP/1.0 or the request is over. Raises
/// ArgumentError for invalid headers, and IOError in another thread and after the start of the response.
fn call_early_hints(ruby: &Ruby, this: Value, headers: Value) -> Result<(), Error> {
    let Some(thread) = thread_of(this) else { return Ok(()) };
    thread.with_request(ruby, |in_flight| send_early_hints(in_flight, ruby, headers.as_raw()))
}

/// `fastrack.client_gone`: whether the client has left, or the request is over. For any thread.
fn call_client_gone(this: Value) -> bool {
    thread_of(this).is_none_or(AppThread::is_client_gone)
}

/// `puma.mark_as_io_bound`: the request holds none of the threads of MaxThreads from now on. For any thread.
fn call_io_bound(this: Value) {
    thread_of(this).into_iter().for_each(AppThread::mark_io_bound);
}

/// `timings`: a Hash with the division of the request's time until now, or until its response was complete, in seconds. Nil if
/// the request is over, or no option asks for timings. For any thread.
fn timings(ruby: &Ruby, this: Value) -> Result<Option<RHash>, Error> {
    let Some(timings) = thread_of(this).and_then(AppThread::timings) else { return Ok(None) };
    let hash = ruby.hash_new();
    for (name, micros) in timings.named() {
        hash.aset(ruby.to_symbol(name), micros as f64 / 1e6)?;
    }
    Ok(Some(hash))
}

/// `fastrack.timeout`: sets the time limit of the request, in seconds from now; 0 is no limit. For any thread.
fn call_timeout(ruby: &Ruby, this: Value, seconds: f64) -> Result<(), Error> {
    if seconds.is_nan() || seconds < 0.0 {
        let message = "a limit is a number of seconds, or 0 for none";
        return Err(Error::new(ruby.exception_arg_error(), message));
    }
    thread_of(this).into_iter().for_each(|thread| thread.allow(limit(seconds)));
    Ok(())
}
