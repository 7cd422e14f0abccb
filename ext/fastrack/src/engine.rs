//! Fastrack::Engine: one worker's listeners and connections, as Ruby sees them.

use std::cell::RefCell;
use std::sync::Arc;

use magnus::rb_sys::AsRawValue;
use magnus::{function, method, prelude::*, Error, RArray, RHash, RModule, Ruby, Symbol, Value};

use fastrack_engine::{Control, Engine, ExitHandler, Finish};
use fastrack_sys::borrow_fd;

use crate::app::{Options, RackApp};
use crate::current::Current;
use crate::roots::RootSet;
use crate::settings::{limit, listeners, optional, settings, system_error};
use crate::shared_queue::RubySharedQueue;
use crate::thread_dump::{inquiry_signal, RubyThreads};

/// The engine as a Ruby object. It belongs to the process that made it.
#[magnus::wrap(class = "Fastrack::Engine", free_immediately)]
struct RubyEngine {
    /// None once a forked child has let go of it.
    engine: RefCell<Option<Engine>>,
    /// Apart from the engine, which is in use while `run` runs.
    control: Arc<Control>,
    testimony: Arc<RubyThreads>,
    exit_handler: Arc<ExitHandler>,
    /// What the application is being called for.
    current: Current,
    roots: RootSet,
    options: Options,
    pid: u32,
}

pub(crate) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    ruby.require("socket")?;
    ruby.require("fastrack/spooled_body")?;
    let class = module.define_class("Engine", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.const_set("INQUIRY_SIGNAL", inquiry_signal())?;
    class.define_singleton_method("new", function!(RubyEngine::new, 2))?;
    class.define_method("run", method!(RubyEngine::run, 2))?;
    class.define_method("stop", method!(RubyEngine::stop, 0))?;
    class.define_method("drain", method!(RubyEngine::drain, 0))?;
    class.define_method("pause", method!(RubyEngine::pause, 0))?;
    class.define_method("requests", method!(RubyEngine::requests, 0))?;
    class.define_method("waiting?", method!(RubyEngine::is_anybody_waiting, 0))?;
    class.define_method("dropped", method!(RubyEngine::dropped, 0))?;
    class.define_method("client_gone?", method!(RubyEngine::is_client_gone, 0))?;
    class.define_method("allow", method!(RubyEngine::allow, 1))?;
    class.define_method("testify", method!(RubyEngine::testify, 1))?;
    class.define_method("answer_crashes", method!(RubyEngine::answer_crashes, 0))?;
    class.define_method("give_up", method!(RubyEngine::give_up, 0))?;
    class.define_method("hijack", method!(RubyEngine::hijack, 0))?;
    class.define_method("early_hints", method!(RubyEngine::early_hints, 1))?;
    class.define_method("close", method!(RubyEngine::close, 0))?;
    Ok(())
}

impl RubyEngine {
    /// `Engine.new(listeners, settings)`; see lib/fastrack/worker.rb for both.
    fn new(ruby: &Ruby, list: RArray, hash: RHash) -> Result<Self, Error> {
        let (listeners, templates) = listeners(ruby, list)?;
        let after_response: Option<Value> = optional(ruby, hash, "after_response")?;
        let error_page: Option<Value> = optional(ruby, hash, "error_page")?;
        let roots = RootSet::new(ruby, templates, after_response, error_page)?;
        let (rack_3, rack_3_1) = rack_version(ruby)?;
        let chunked = optional(ruby, hash, "chunked")?.unwrap_or(false);
        let options = Options { chunked, rack_3, rack_3_1 };
        let master: Option<i32> = optional(ruby, hash, "master_fd")?;
        let queue: Option<magnus::typed_data::Obj<RubySharedQueue>> = optional(ruby, hash, "dispatch")?;
        let queue = queue.as_ref().map(|queue| queue.borrow(ruby)).transpose()?;
        let testimony = Arc::<RubyThreads>::default();
        let settings = settings(ruby, hash, Arc::clone(&testimony) as _)?;
        // SAFETY: Ruby's IO closes it after this call at the earliest.
        let master = master.map(|fd| unsafe { borrow_fd(fd) }).transpose();
        let engine = master.and_then(|master| Engine::new(listeners, master, settings, queue.as_deref()));
        let engine = engine.map_err(|error| system_error(ruby, "engine", &error))?;
        Ok(RubyEngine {
            control: engine.control(),
            testimony,
            exit_handler: Arc::new(engine.exit_handler()),
            engine: RefCell::new(Some(engine)),
            current: Current::default(),
            roots,
            options,
            pid: std::process::id(),
        })
    }

    /// `run(app, limit)`: serves until stopped, or `limit` more requests were answered (0: no limit).
    fn run(ruby: &Ruby, this: &Self, app: Value, limit: u64) -> Result<Symbol, Error> {
        if std::process::id() != this.pid {
            return Err(misuse(ruby, "this engine belongs to another process"));
        }
        let Ok(mut engine) = this.engine.try_borrow_mut() else {
            return Err(misuse(ruby, "this engine is running already"));
        };
        let Some(engine) = engine.as_mut() else { return Ok(ruby.to_symbol("closed")) };
        let mut app = RackApp::new(app.as_raw(), this.roots.borrow(ruby), this.options, &this.current);
        let finish = engine.run(&mut app, (limit > 0).then_some(limit));
        match (app.take_pending(), finish) {
            (Some(error), _) => Err(error),
            (None, Finish::Stopped) => Ok(ruby.to_symbol("stopped")),
            (None, Finish::Limit) => Ok(ruby.to_symbol("limit")),
            (None, Finish::Paused) => Ok(ruby.to_symbol("paused")),
            (None, Finish::Orphaned) => Ok(ruby.to_symbol("orphaned")),
            (None, Finish::Closed) => Ok(ruby.to_symbol("closed")),
            (None, Finish::Broken) => Err(misuse(ruby, "the engine cannot wait for its descriptors")),
        }
    }

    /// `stop`: the current request, and those that have begun, are finished; then run returns. For traps too.
    fn stop(&self) {
        self.control.stop();
    }

    /// `drain`: keeps no connection from now on, and stops, once it is to, with all who have come. For traps too.
    fn drain(&self) {
        self.control.drain();
    }

    /// `pause`: run returns between two requests, to be called again. For traps too.
    fn pause(&self) {
        self.control.pause();
    }

    /// `requests`: how many requests were answered.
    fn requests(&self) -> u64 {
        self.control.requests()
    }

    /// `waiting?`: whether a client waits to be accepted or read.
    fn is_anybody_waiting(&self) -> bool {
        self.control.is_anybody_waiting()
    }

    /// `dropped`: how many requests were not answered because their client had left before it was their turn.
    fn dropped(&self) -> u64 {
        self.control.dropped()
    }

    /// `client_gone?`: whether the client whose request is being answered has left.
    fn is_client_gone(&self) -> bool {
        self.control.is_client_gone()
    }

    /// `allow(seconds)`: so long the request that is being answered may take from now on; 0 is any time.
    fn allow(ruby: &Ruby, this: &Self, seconds: f64) -> Result<(), Error> {
        if seconds.is_nan() || seconds < 0.0 {
            return Err(Error::new(
                ruby.exception_arg_error(),
                "a limit is a number of seconds, or 0 for none",
            ));
        }
        this.control.allow(limit(seconds));
        Ok(())
    }

    /// `testify(text)`: what Ruby's threads are at, for the log. To be called on `INQUIRY_SIGNAL`.
    fn testify(&self, text: String) {
        self.testimony.give(text);
    }

    /// `answer_crashes`: from now on a fatal signal (SIGSEGV, SIGABRT and the like) does what `give_up` does, before Ruby
    /// gets it.
    fn answer_crashes(&self) {
        self.exit_handler.say_on_fatal_signals(rb_sys::rb_funcallv as *const ());
    }

    /// `give_up`: this process ends as soon as this has returned. The request that is being answered gets a 502, or is cut
    /// off if its response has begun; all other connections go to other workers.
    fn give_up(&self) {
        self.exit_handler.say();
    }

    /// `hijack`: gives the application the connection whose request it is answering: a TCPSocket or UNIXSocket. Raises
    /// IOError when there is none, or the response has begun.
    fn hijack(ruby: &Ruby, this: &Self) -> Result<Value, Error> {
        this.current.hijack(ruby)
    }

    /// `early_hints(headers)`: sends 103 with these headers to the client whose request is being answered, unless it
    /// knows no HTTP/1.1. Raises ArgumentError for headers that cannot be sent, and IOError as `hijack` does.
    fn early_hints(ruby: &Ruby, this: &Self, headers: Value) -> Result<(), Error> {
        this.current.hint(ruby, headers)
    }

    /// `close`: lets go of all connections without a word to any client. For a forked child.
    fn close(&self) {
        self.control.close();
    }
}

impl Drop for RubyEngine {
    fn drop(&mut self) {
        // A forked child that collects its copy must not take the parent's clients out of the shared epoll set, and
        // what it has a copy of was being changed by a thread that it has no copy of.
        if std::process::id() != self.pid {
            self.control.close();
            std::mem::forget(self.engine.get_mut().take());
        }
    }
}

/// Whether the Rack that the application has loaded is 3 or later, and 3.1 or later.
fn rack_version(ruby: &Ruby) -> Result<(bool, bool), Error> {
    let release: Option<String> = ruby.eval("::Rack.release if defined?(::Rack.release)")?;
    let release = release.unwrap_or_default();
    let mut numbers = release.split('.').map(|number| number.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    Ok((version >= (3, 0), version >= (3, 1)))
}

fn misuse(ruby: &Ruby, message: &'static str) -> Error {
    Error::new(ruby.exception_runtime_error(), message)
}
