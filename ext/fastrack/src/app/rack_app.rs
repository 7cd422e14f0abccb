//! The Rack application, as the engine calls it.

use magnus::Error;
use rb_sys::*;

use fastrack_engine::{App, Content, Flow, Request, ResponseWriter};
use fastrack_http::{DateCache, ResponseHead, Version};
use fastrack_sys::epoch_seconds;

use crate::env::body_source::SourceLoan;
use crate::env::build::{self as env, Caches};
use crate::env::input::input;
use crate::env::protocol;
use crate::request::callbacks::{Callbacks, How, Outcome};
use crate::request::in_flight::{Call, Current};
use crate::response::headers::{take_headers, triple, unsent_body, Orders};
use crate::response::sender::{Manner, Sender};
use crate::ruby::errors::{exception, is_failure, report, warn};
use crate::ruby::gvl::without_gvl;
use crate::ruby::interned::names;
use crate::ruby::protect::{protect, Raised};
use crate::ruby::roots::Roots;
use crate::ruby::scoped_ref::Loan;

/// What the application's side may choose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Bodies of unknown length are sent in chunks to HTTP/1.1 clients.
    pub chunked: bool,
    /// Rack 3 or later.
    pub rack_3: bool,
    /// Rack 3.1 or later.
    pub rack_3_1: bool,
}

impl Options {
    fn how(self, writer: &ResponseWriter<'_>) -> How {
        How { rack_3: self.rack_3, is_broken: writer.is_broken() }
    }
}

/// A Rack application and the memory that its responses are made in.
///
/// INVARIANT: lives on the stack of the thread that runs the engine, so that
/// the GC sees the values in it.
pub(crate) struct RackApp<'a> {
    app: VALUE,
    roots: Roots,
    options: Options,
    /// Where the call of the application is noted.
    current: &'a Current,
    head: ResponseHead,
    encoded: Vec<u8>,
    date: DateCache,
    caches: Caches,
    /// What is to be called now that the response has left.
    callbacks: Callbacks,
    /// An exception that is not the application's failure, to be raised when the engine has returned.
    pending: Option<Error>,
}

/// The Ruby objects of the request that is being answered.
struct Objects {
    env: VALUE,
    /// What the environment is a copy of.
    template: VALUE,
    /// The Tempfile of a large body, or what reads a body that is under way.
    file: VALUE,
    /// What a body is read from that is under way.
    source: SourceLoan,
    /// The socket object that a streaming body has while it is called.
    stream: VALUE,
    /// The body while close is still due.
    unclosed: VALUE,
    /// What is told to those who wait for the end of the response.
    outcome: Outcome,
    /// What the block of an iteration works on while it lasts.
    loan: Loan,
    /// How far the request has come.
    stage: Stage,
}

/// How far a request has come that goes well.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The application is called, or its response sent.
    Answering,
    /// The response has left.
    Answered,
    /// What was still open is closed, and what is to be called after the response collected.
    Done,
}

impl Objects {
    fn none() -> Self {
        let nil = Qnil as VALUE;
        let outcome = Outcome { status: nil, headers: nil, error: nil };
        let (source, loan) = (SourceLoan::none(), Loan::none());
        let stage = Stage::Answering;
        Objects {
            env: nil,
            template: nil,
            file: nil,
            source,
            stream: nil,
            unclosed: nil,
            outcome,
            loan,
            stage,
        }
    }

    fn end_loans(&mut self) {
        self.loan.end();
        self.source.end();
    }

    /// The next one that is to be closed. The body's close is the application's. A large body's file would be closed by
    /// the GC, too, but a busy server may have hundreds by then; and a stream that is left belongs to a call that has
    /// failed: the client would wait for the rest.
    fn take_open(&mut self) -> Option<VALUE> {
        let slots = [&mut self.unclosed, &mut self.file, &mut self.stream];
        let open = slots.into_iter().find(|slot| **slot != Qnil as VALUE)?;
        Some(std::mem::replace(open, Qnil as VALUE))
    }
}

impl<'a> RackApp<'a> {
    pub fn new(app: VALUE, roots: Roots, options: Options, current: &'a Current) -> Self {
        RackApp {
            app,
            roots,
            options,
            current,
            head: ResponseHead::default(),
            encoded: Vec::new(),
            date: DateCache::default(),
            caches: Caches::default(),
            callbacks: Callbacks::none(),
            pending: None,
        }
    }

    /// What is to be raised now that the engine has returned.
    pub fn take_pending(&mut self) -> Option<Error> {
        self.pending.take()
    }

    /// Environment, application, response.
    ///
    /// # Safety
    /// Under protect, with the GVL. Its frames own nothing. [`Current::end`] is called when this has raised.
    unsafe fn respond(
        &mut self,
        request: &Request<'_>,
        writer: &mut ResponseWriter<'_>,
        objects: &mut Objects,
    ) {
        // SAFETY: as this function's; `objects` is on the stack, where the GC sees it.
        unsafe {
            let input = match &request.content {
                Content::Stream(stream) => objects.source.begin(stream, self.options.rack_3),
                content => input(*content, self.roots),
            };
            if matches!(request.content, Content::File(..) | Content::Stream(_)) {
                objects.file = input;
            }
            let rack_3_1 = self.options.rack_3_1;
            (objects.env, objects.template) =
                env::build(request, input, self.roots, &mut self.caches, rack_3_1);
            let mut call = Call::new(objects.env, &raw mut *writer, &raw const *request);
            // Nothing else touches what the call points to until the end.
            self.current.begin(&raw mut call);
            let result = rb_funcallv(self.app, names().id_call, 1, &objects.env);
            self.current.end();
            if call.is_hijacked() {
                objects.unclosed = unsent_body(result);
                return;
            }
            self.answer(result, request, writer, objects);
            objects.stage = Stage::Answered;
            // Here rather than by clean_up and collect_callbacks: each protect costs as much as what it is for.
            objects.end_loans();
            while let Some(object) = objects.take_open() {
                call_if_there(object, names().id_close);
            }
            let Objects { env, template, outcome, .. } = objects;
            self.callbacks.collect(*env, *template, outcome, self.options.how(writer));
            objects.stage = Stage::Done;
        }
    }

    /// Sends a response.
    ///
    /// # Safety
    /// Under protect, with the GVL. Its frames own nothing.
    unsafe fn answer(
        &mut self,
        result: VALUE,
        request: &Request<'_>,
        writer: &mut ResponseWriter<'_>,
        objects: &mut Objects,
    ) {
        // SAFETY: as this function's.
        unsafe {
            let triple = triple(result, &mut objects.unclosed);
            objects.outcome.status = triple.status;
            objects.outcome.headers = triple.headers;
            self.head.start(triple.code);
            let mut orders = Orders::none();
            take_headers(triple.headers, &mut self.head, &mut objects.loan, &mut orders);
            if orders.protocol != Qnil as VALUE {
                protocol::switch(orders.protocol, objects.env, &mut self.head);
            }
            let manner = Manner {
                head_only: request.head.method.of_buffer(request.bytes) == b"HEAD",
                chunked: self.options.chunked,
                http_11: request.head.version == Version::Http11,
                rack_3: self.options.rack_3,
            };
            let mut sender = Sender {
                writer,
                request,
                head: &mut self.head,
                encoded: &mut self.encoded,
                date: self.date.at(epoch_seconds()),
                manner,
                unclosed: &mut objects.unclosed,
                loan: &mut objects.loan,
                stream: &mut objects.stream,
                left: None,
            };
            sender.send(triple.body, orders.hijack);
        }
    }

    /// Answers a failure of the application's with the page that there is for it.
    fn show_error(&mut self, request: &Request<'_>, writer: &mut ResponseWriter<'_>, objects: &mut Objects) {
        let arguments = [objects.outcome.error, objects.env];
        let result = protect(|| {
            // SAFETY: under protect. This closure borrows everything, and owns nothing.
            unsafe {
                let page = self.roots.error_page();
                let page = rb_funcallv(page, names().id_call, arguments.len() as _, arguments.as_ptr());
                self.answer(page, request, writer, objects);
            }
            Qnil as VALUE
        });
        self.settle(result, objects.env);
        self.clean_up(objects);
    }

    /// Closes what is still open after the response, well or badly as it went.
    fn clean_up(&mut self, objects: &mut Objects) {
        objects.end_loans();
        while let Some(object) = objects.take_open() {
            let closed = protect(|| {
                // SAFETY: under protect, and owning nothing.
                unsafe { call_if_there(object, names().id_close) }
            });
            note_failure(&closed, &mut objects.outcome);
            self.settle(closed, objects.env);
        }
    }

    /// Keeps what is to be called after the response.
    fn collect_callbacks(&mut self, objects: &mut Objects, how: How) {
        if objects.env == Qnil as VALUE || objects.stage == Stage::Done {
            return;
        }
        let Objects { env, template, outcome, .. } = objects;
        let collected = protect(|| {
            // SAFETY: under protect, and owning nothing.
            unsafe { self.callbacks.collect(*env, *template, outcome, how) };
            Qnil as VALUE
        });
        self.settle(collected, *env);
    }

    /// Reports a failure, or keeps what is to be raised.
    fn settle(&mut self, result: Result<VALUE, Raised>, env: VALUE) {
        match result {
            Ok(_) => {}
            Err(Raised::Panic(message)) => warn(&format!("a request failed inside Fastrack: {message}")),
            Err(Raised::Ruby(error)) if is_failure(&error) => report(&error, env),
            Err(Raised::Ruby(error)) => self.pending = Some(error),
        }
    }

    /// Runs traps and whatever other threads want of this one.
    fn check_interrupts(&mut self) {
        let checked = protect(|| {
            // SAFETY: under protect, and owning nothing.
            unsafe { rb_thread_check_ints() };
            Qnil as VALUE
        });
        // What a trap raises is for whoever called run, whatever its class.
        match checked {
            Err(Raised::Ruby(error)) => self.pending = Some(error),
            other => self.settle(other, Qnil as VALUE),
        }
    }

    fn flow(&self) -> Flow {
        if self.pending.is_some() {
            Flow::Break
        } else {
            Flow::Continue
        }
    }
}

impl App for RackApp<'_> {
    fn call(&mut self, request: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow {
        let mut objects = Objects::none();
        let result = protect(|| {
            // SAFETY: under protect. This closure borrows everything, and owns nothing.
            unsafe { self.respond(request, writer, &mut objects) };
            Qnil as VALUE
        });
        self.current.end();
        let failed = note_failure(&result, &mut objects.outcome);
        self.settle(result, objects.env);
        self.clean_up(&mut objects);
        let unanswered = objects.stage == Stage::Answering && writer.is_untouched();
        if failed && unanswered && self.roots.error_page() != Qnil as VALUE {
            self.show_error(request, writer, &mut objects);
        }
        self.collect_callbacks(&mut objects, self.options.how(writer));
        self.flow()
    }

    fn after_response(&mut self) -> Flow {
        let callable = self.roots.after_response();
        if callable != Qnil as VALUE {
            let called = protect(|| {
                // SAFETY: under protect, and owning nothing.
                unsafe { rb_funcallv(callable, names().id_call, 0, std::ptr::null()) }
            });
            self.settle(called, Qnil as VALUE);
        }
        let mut callbacks = std::mem::replace(&mut self.callbacks, Callbacks::none());
        callbacks.call(|result, env| self.settle(result, env));
        // A busy worker may never block, and an application may return without Ruby having looked.
        self.check_interrupts();
        self.flow()
    }

    fn check(&mut self) -> Flow {
        self.check_interrupts();
        self.flow()
    }

    fn block(&mut self, wait: &mut (dyn FnMut() + Send)) -> Flow {
        without_gvl(wait);
        self.check_interrupts();
        self.flow()
    }

    fn warn(&mut self, line: &str) {
        warn(line);
    }
}

/// Whether this is an Array of no other class, not even one of its own.
///
/// # Safety
/// With the GVL.
unsafe fn is_plain_array(object: VALUE) -> bool {
    // SAFETY: as this function's; what has this type is an object on the heap, which begins with an RBasic.
    unsafe {
        RB_TYPE_P(object, ruby_value_type::RUBY_T_ARRAY) && (*(object as *const RBasic)).klass == rb_cArray
    }
}

/// Notes a failure of the application's as the outcome, unless there was one before; whether it is one.
fn note_failure(result: &Result<VALUE, Raised>, outcome: &mut Outcome) -> bool {
    let Err(Raised::Ruby(error)) = result else { return false };
    if outcome.error == Qnil as VALUE {
        outcome.error = exception(error);
    }
    is_failure(error)
}

/// # Safety
/// Under protect, with the GVL.
unsafe fn call_if_there(object: VALUE, method: ID) -> VALUE {
    // SAFETY: as this function's.
    unsafe {
        // A plain Array answers this at length: it has to ask for respond_to_missing?, too.
        if is_plain_array(object) && rb_method_boundp(rb_cArray, method, 0) == 0
            || rb_respond_to(object, method) == 0
        {
            return Qnil as VALUE;
        }
        rb_funcallv(object, method, 0, std::ptr::null())
    }
}
