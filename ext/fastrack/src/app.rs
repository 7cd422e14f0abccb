//! The Rack application, as the engine calls it.

use magnus::Error;
use rb_sys::*;

use fastrack_engine::{App, Content, Exchange, Flow, Request};
use fastrack_http::{DateCache, ResponseHead, Version};
use fastrack_sys::epoch_seconds;

use crate::body::{Manner, Sender};
use crate::env;
use crate::errors::{is_failure, report, warn};
use crate::gvl::without_gvl;
use crate::input::input;
use crate::loan::Loan;
use crate::names::names;
use crate::peer::PeerCache;
use crate::protect::{protect, Raised};
use crate::response::{take_headers, triple};
use crate::roots::Roots;

/// What the application's side may choose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Bodies of unknown length are sent in chunks to HTTP/1.1 clients.
    pub chunked: bool,
    /// Rack 3 or later.
    pub rack_3: bool,
}

/// A Rack application and the memory that its responses are made in.
///
/// INVARIANT: lives on the stack of the thread that runs the engine, so that
/// the GC sees the values in it.
pub(crate) struct RackApp {
    app: VALUE,
    roots: Roots,
    options: Options,
    head: ResponseHead,
    encoded: Vec<u8>,
    date: DateCache,
    peers: PeerCache,
    /// An exception that is not the application's failure, to be raised when the engine has returned.
    pending: Option<Error>,
}

/// The Ruby objects of the request that is being answered.
struct Objects {
    env: VALUE,
    /// The Tempfile of a large body.
    file: VALUE,
    /// The socket object that a streaming body has while it is called.
    stream: VALUE,
    /// The body while close is still due.
    unclosed: VALUE,
    /// What the block of an iteration works on while it lasts.
    loan: Loan,
}

impl RackApp {
    pub fn new(app: VALUE, roots: Roots, options: Options) -> Self {
        RackApp {
            app,
            roots,
            options,
            head: ResponseHead::default(),
            encoded: Vec::new(),
            date: DateCache::default(),
            peers: PeerCache::default(),
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
    /// Under protect, with the GVL. Its frames own nothing.
    unsafe fn respond(&mut self, request: &Request<'_>, exchange: &mut Exchange<'_>, objects: &mut Objects) {
        // SAFETY: as this function's; `objects` is on the stack, where the GC sees it.
        unsafe {
            let input = input(request.content, self.roots);
            if matches!(request.content, Content::File(..)) {
                objects.file = input;
            }
            objects.env = env::build(request, input, self.roots, &mut self.peers);
            let result = rb_funcallv(self.app, names().id_call, 1, &objects.env);
            let triple = triple(result, &mut objects.unclosed);
            self.head.start(triple.code);
            take_headers(triple.headers, &mut self.head, &mut objects.loan);
            let manner = Manner {
                head_only: request.head.method.of_buffer(request.bytes) == b"HEAD",
                chunked: self.options.chunked,
                http_11: request.head.version == Version::Http11,
                rack_3: self.options.rack_3,
                tcp: request.peer.is_some(),
            };
            let mut sender = Sender {
                exchange,
                head: &mut self.head,
                encoded: &mut self.encoded,
                date: self.date.at(epoch_seconds()),
                manner,
                unclosed: &mut objects.unclosed,
                loan: &mut objects.loan,
                stream: &mut objects.stream,
                left: None,
            };
            sender.send(triple.body);
        }
    }

    /// Closes what is still open after the response, well or badly as it went.
    fn clean_up(&mut self, objects: &mut Objects) {
        objects.loan.end();
        // The body's close is the application's. A large body's file would be closed by the GC, too, but a
        // busy server may have hundreds by then; and a stream that is left belongs to a call that has failed:
        // the client would wait for the rest.
        for slot in [&mut objects.unclosed, &mut objects.file, &mut objects.stream] {
            let object = std::mem::replace(slot, Qnil as VALUE);
            if object != Qnil as VALUE {
                let closed = protect(|| {
                    // SAFETY: under protect, and owning nothing.
                    unsafe { call_if_there(object, names().id_close) }
                });
                self.settle(closed, objects.env);
            }
        }
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

impl App for RackApp {
    fn call(&mut self, request: &Request<'_>, exchange: &mut Exchange<'_>) -> Flow {
        let nil = Qnil as VALUE;
        let mut objects = Objects { env: nil, file: nil, stream: nil, unclosed: nil, loan: Loan::none() };
        let result = protect(|| {
            // SAFETY: under protect. This closure borrows everything, and owns nothing.
            unsafe { self.respond(request, exchange, &mut objects) };
            Qnil as VALUE
        });
        self.settle(result, objects.env);
        self.clean_up(&mut objects);
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
