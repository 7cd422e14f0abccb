//! Answers requests with a Rack app.

use std::sync::Arc;

use magnus::Error;
use rb_sys::*;

use fastrack_engine::{Activity, App, Content, Flow, Request, ResponseWriter};
use fastrack_http::Version;

use super::interim::send_continue;
use crate::env::{input, EnvBuilder, Offered};
use crate::request::{AppThread, CallStage, Callbacks, InFlight};
use crate::response::{
    end_body, read_headers, read_triple, switch_protocol, unsent_body, BodyMode, Encoding, ResponseBuffers,
    Sender, CONTINUE, NO_FINAL_STATUS,
};
use crate::ruby::{
    call, call_if_defined, forget_activity, interned, is_app_error, is_fatal, is_stream_end,
    is_worker_retired, log_line, protect, raise, report, report_activity, warn, without_gvl, GcClock, Raised,
    NIL,
};

/// The settings of Engine.new for the app. The engine's object marks the values, so that they never move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AppSettings {
    /// An Array with an env template for each listener.
    pub templates: VALUE,
    /// Number of callback Arrays in each template.
    pub callbacks: usize,
    /// The request-bound objects that the templates offer.
    pub offered: Offered,
    /// The index of the listener whose clients are the server's own proxy.
    pub proxy_listener: Option<usize>,
    /// RequestStart: a request without X-Request-Start gets one.
    pub request_start: bool,
    /// ServerTiming: responses have a Server-Timing field.
    pub server_timing: bool,
    /// A callable for the time after each response; or nil.
    pub after_response: VALUE,
    /// A callable that makes a response from the app's exception and env; or nil.
    pub error_page: VALUE,
    /// ChunkedTransfer: bodies of unknown length are sent in chunks to HTTP/1.1 clients.
    pub chunked: bool,
    /// Rack 3 or later.
    pub rack_3: bool,
    /// Rack 3.1 or later.
    pub rack_3_1: bool,
}

impl AppSettings {
    /// The values that the GC must mark.
    pub fn values(&self) -> [VALUE; 3] {
        [self.templates, self.after_response, self.error_page]
    }
}

/// A Rack app for one Ruby thread, with the thread's memory for responses.
///
/// INVARIANT: lives on the stack of the thread that runs the engine, so that the GC sees the values in it.
pub(crate) struct RackApp {
    app: VALUE,
    settings: AppSettings,
    thread: &'static AppThread,
    buffers: ResponseBuffers,
    env: EnvBuilder,
    /// The callbacks of the last request, until they are called.
    callbacks: Callbacks,
    /// An exception that is not the app's error. Raised when the engine has returned.
    pending: Option<Error>,
    /// Receives the GVL waits of this thread, if several threads serve.
    activity: Option<Arc<Activity>>,
    /// A callable that starts another thread, for the main thread; or nil.
    starter: VALUE,
}

impl RackApp {
    pub fn new(app: VALUE, settings: AppSettings, thread: &'static AppThread, starter: VALUE) -> Self {
        RackApp {
            app,
            settings,
            thread,
            buffers: ResponseBuffers::default(),
            env: EnvBuilder::new(
                settings.templates,
                settings.rack_3_1,
                settings.callbacks,
                settings.offered,
                settings.proxy_listener,
                settings.request_start,
            ),
            callbacks: Callbacks::NONE,
            pending: None,
            activity: None,
            starter,
        }
    }

    /// The exception to raise, now that the engine has returned.
    pub fn take_pending(&mut self) -> Option<Error> {
        self.pending.take()
    }

    /// Builds env, calls the app, sends its response.
    ///
    /// # Safety
    /// The caller ends the [call](AppThread::end_call) if this raises.
    unsafe fn respond(&mut self, in_flight: &mut InFlight<'_, '_>) {
        // SAFETY: as this function's; `in_flight` is on the stack, where the GC sees it.
        unsafe {
            let content = &in_flight.request.content;
            let input = match content {
                Content::Stream(stream) => in_flight.source.begin(stream, self.settings.rack_3),
                content => input(content),
            };
            if matches!(content, Content::File(..) | Content::Stream(_)) {
                in_flight.input = input;
            }
            let env = self.env.build(in_flight.request, in_flight.number, input);
            in_flight.env = env;
            let Some(mut code) = self.call_app(in_flight) else { return };
            if code == CONTINUE {
                send_continue(in_flight);
                let Some(next) = self.call_app(in_flight) else { return };
                code = next;
            }
            self.send_response(code, in_flight);
            in_flight.stage = CallStage::Answered;
            // Does the work of close_all and collect_callbacks without a protect for each step, because a protect would double the cost of
            // the step.
            in_flight.end_scopes();
            while let Some(object) = in_flight.take_open() {
                call_if_defined(object, interned().id.close);
            }
            self.callbacks.collect(in_flight, self.settings.rack_3);
            in_flight.stage = CallStage::Done;
        }
    }

    /// Calls the app. Returns the status of the response; None if the app has hijacked the connection.
    unsafe fn call_app(&mut self, in_flight: &mut InFlight<'_, '_>) -> Option<u16> {
        // SAFETY: as this function's.
        unsafe {
            let env = in_flight.env;
            // Only methods called by the app use the request until end_call.
            self.thread.begin_call(&raw mut *in_flight);
            let result = call(self.app, interned().id.call, &[env]);
            self.thread.end_call();
            if in_flight.hijacked != NIL {
                in_flight.body = unsent_body(result);
                return None;
            }
            Some(read_triple(result, in_flight))
        }
    }

    unsafe fn send_response(&mut self, code: u16, in_flight: &mut InFlight<'_, '_>) {
        let head = &mut self.buffers.head;
        // SAFETY: as this function's.
        unsafe {
            if code == CONTINUE {
                raise(rb_eRangeError, NO_FINAL_STATUS);
            }
            head.start(code);
            let server_headers = read_headers(in_flight.headers, head, &mut in_flight.block);
            if server_headers.protocol != NIL {
                switch_protocol(server_headers.protocol, in_flight.env, head);
            }
            let request = in_flight.request;
            let mode = BodyMode {
                head_only: request.head.method.of_buffer(request.bytes) == b"HEAD",
                chunked: self.settings.chunked,
                server_timing: self.settings.server_timing,
                http_11: request.head.version == Version::Http11,
                rack_3: self.settings.rack_3,
            };
            let body = in_flight.body;
            let (buffers, encoding) = (&mut self.buffers, Encoding::Plain);
            let mut sender = Sender { in_flight, buffers, mode, remaining: None, encoding };
            sender.send(body, server_headers.hijack);
        }
    }

    /// Answers an error of the app with the error page.
    fn send_error_page(&mut self, in_flight: &mut InFlight<'_, '_>) {
        let (page, env) = (self.settings.error_page, in_flight.env);
        let result = protect(|| {
            // SAFETY: under protect. This closure borrows everything, and owns nothing.
            unsafe {
                let result = call(page, interned().id.call, &[in_flight.error, env]);
                let code = read_triple(result, in_flight);
                self.send_response(code, in_flight);
            }
        });
        self.handle(result, env);
        self.close_all(in_flight);
    }

    /// Closes the objects that are still open after the response.
    fn close_all(&mut self, in_flight: &mut InFlight<'_, '_>) {
        in_flight.end_scopes();
        while let Some(object) = in_flight.take_open() {
            // SAFETY: under protect, and owning nothing.
            let closed = protect(|| unsafe { call_if_defined(object, interned().id.close) });
            in_flight.note_error(&closed);
            self.handle(closed, in_flight.env);
        }
    }

    fn collect_callbacks(&mut self, in_flight: &mut InFlight<'_, '_>) {
        // SAFETY: under protect, and owning nothing.
        let collected = protect(|| unsafe { self.callbacks.collect(in_flight, self.settings.rack_3) });
        self.handle(collected, in_flight.env);
    }

    /// Reports an error of the app. Stores any other exception as pending.
    fn handle<T>(&mut self, result: Result<T, Raised>, env: VALUE) {
        match result {
            Ok(_) => {}
            Err(Raised::Ruby(error)) if is_stream_end(&error) => {}
            Err(Raised::Panic(message)) => warn(&format!("a request failed inside Fastrack: {message}")),
            Err(Raised::Ruby(error)) if is_app_error(&error) => report(&error, env),
            Err(Raised::Ruby(error)) => {
                if is_fatal(&error) {
                    report(&error, env);
                }
                self.pending = Some(error);
            }
        }
    }

    /// Runs traps, and lets other threads run.
    fn check_interrupts(&mut self) -> Flow {
        // SAFETY: under protect, and owning nothing.
        match protect(|| unsafe { rb_thread_check_ints() }) {
            // The exception was for a stream that has ended since.
            Err(Raised::Ruby(error)) if is_stream_end(&error) => {}
            // An exception of a trap, of any class, is for the caller of run.
            Err(Raised::Ruby(error)) => self.pending = Some(error),
            other => self.handle(other, NIL),
        }
        self.flow()
    }

    fn flow(&self) -> Flow {
        if self.pending.is_some() {
            Flow::Break
        } else {
            Flow::Continue
        }
    }
}

impl Drop for RackApp {
    fn drop(&mut self) {
        if self.activity.is_some() {
            forget_activity();
        }
    }
}

impl App for RackApp {
    fn begin(&mut self, thread: usize, activity: &Arc<Activity>) {
        self.thread.set_number(thread);
        let activity = self.activity.insert(Arc::clone(activity));
        // SAFETY: `drop` of this RackApp forgets the activity, in the same thread.
        unsafe { report_activity(Arc::as_ptr(activity)) };
    }

    fn call(&mut self, request: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow {
        writer.count_gc(GcClock::begin_request());
        let mut in_flight = InFlight::new(request, writer, self.thread);
        // SAFETY: under protect. The closure borrows everything, and owns nothing.
        let result = protect(|| unsafe { self.respond(&mut in_flight) });
        if result.is_err() {
            self.thread.set_body_called(false);
        }
        self.thread.end_call();
        if matches!(&result, Err(Raised::Ruby(error)) if is_worker_retired(error)) {
            in_flight.end_block();
            // SAFETY: under protect. The closure borrows everything, and owns nothing.
            let ended = protect(|| unsafe { end_body(&mut in_flight) });
            self.handle(ended, in_flight.env);
        }
        let is_app_error = in_flight.note_error(&result);
        self.handle(result, in_flight.env);
        self.close_all(&mut in_flight);
        let is_unanswered = in_flight.stage == CallStage::Answering && in_flight.writer.is_untouched();
        if is_app_error && is_unanswered && self.settings.error_page != NIL {
            self.send_error_page(&mut in_flight);
        }
        if in_flight.env != NIL && in_flight.stage != CallStage::Done {
            self.collect_callbacks(&mut in_flight);
        }
        in_flight.writer.count_gc(GcClock::end_request());
        if !self.callbacks.are_any() {
            self.thread.end_request();
        }
        self.flow()
    }

    fn after_response(&mut self) -> Flow {
        let after_response = self.settings.after_response;
        if after_response != NIL {
            // SAFETY: under protect, and owning nothing.
            let called = protect(|| unsafe { call(after_response, interned().id.call, &[]) });
            self.handle(called, NIL);
        }
        // A busy worker may never block, and the app may return before Ruby has checked.
        self.check_interrupts()
    }

    fn has_callbacks(&self) -> bool {
        self.callbacks.are_any()
    }

    fn call_callbacks(&mut self) -> Flow {
        let callbacks = std::mem::replace(&mut self.callbacks, Callbacks::NONE);
        callbacks.call(|result, env| self.handle(result, env));
        self.thread.end_request();
        self.check_interrupts()
    }

    fn check(&mut self) -> Flow {
        self.check_interrupts()
    }

    fn block(&mut self, wait: &mut (dyn FnMut() + Send)) -> Flow {
        without_gvl(wait);
        self.check_interrupts()
    }

    fn free_memory(&mut self) -> Flow {
        // SAFETY: under protect, and owning nothing.
        let collected = protect(|| unsafe { rb_gc() });
        self.handle(collected, NIL);
        fastrack_sys::trim_heap();
        self.check_interrupts()
    }

    fn trim_memory(&mut self) -> Flow {
        // The bodies of past requests are young garbage. If the app has disabled the GC, no collection is made here either.
        let code = c"GC.disable or begin; GC.enable; GC.start(full_mark: false); end";
        // SAFETY: under protect, and owning nothing; the code ends with NUL.
        let collected = protect(|| unsafe { rb_eval_string(code.as_ptr()) });
        self.handle(collected, NIL);
        without_gvl(&mut fastrack_sys::trim_heap);
        self.check_interrupts()
    }

    fn start_thread(&mut self) -> bool {
        if self.starter == NIL {
            return false;
        }
        // SAFETY: under protect, and owning nothing.
        let started = protect(|| unsafe { call(self.starter, interned().id.call, &[]) });
        let is_started = matches!(started, Ok(started) if started == Qtrue as VALUE);
        self.handle(started, NIL);
        is_started
    }

    fn interrupt(&mut self, thread: usize) {
        // SAFETY: under protect, with the GVL, and owning nothing.
        let interrupted = protect(|| unsafe { self.thread.interrupt(thread) });
        self.handle(interrupted, NIL);
    }

    fn warn(&mut self, line: &str) {
        let logged = log_line(line);
        self.handle(logged, NIL);
    }
}
