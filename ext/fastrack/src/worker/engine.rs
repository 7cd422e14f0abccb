//! Fastrack::Engine: one worker's listeners and connections.

use std::cell::{Cell, Ref, RefCell};
use std::sync::Arc;

use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::typed_data::Obj;
use magnus::{
    function, gc, method, prelude::*, DataTypeFunctions, Error, RArray, RClass, RHash, RModule, Ruby, Symbol,
    TypedData, Value,
};
use rb_sys::VALUE;

use fastrack_engine::{Control, Engine, Finish, Forking};
use fastrack_sys::borrow_fd;

use crate::app::{AppSettings, RackApp};
use crate::request::AppThread;
use crate::ruby::{system_error, GcClock, NIL};
use crate::worker::engine_arguments::{app_settings, engine_settings, listeners, optional};
use crate::worker::profiler::Profiler;
use crate::worker::shared_queue::RubySharedQueue;
use crate::worker::thread_dump::{profile_signal, thread_dump_signal, RubyThreads};

/// The Ruby object. Only the process that made the object may use it.
#[derive(TypedData)]
#[magnus(class = "Fastrack::Engine", free_immediately, mark)]
struct RubyEngine {
    /// None after `release`. Each thread in `run` or `serve` borrows the engine.
    engine: RefCell<Option<Engine>>,
    /// Whether the first thread is in `run`.
    running: Cell<bool>,
    control: Arc<Control>,
    dumper: Arc<RubyThreads>,
    profiler: Profiler,
    /// None after `release`, since a Forking keeps descriptors open.
    forking: RefCell<Option<Arc<Forking>>>,
    app_settings: AppSettings,
    /// The callable that starts threads, or nil.
    starter: Cell<VALUE>,
    pid: u32,
}

pub(super) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    let class = module.define_class("Engine", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.const_set("THREAD_DUMP_SIGNAL", thread_dump_signal())?;
    class.const_set("PROFILE_SIGNAL", profile_signal())?;
    class.define_singleton_method("new", function!(RubyEngine::new, 2))?;
    class.define_method("run", method!(RubyEngine::run, 2))?;
    class.define_method("serve", method!(RubyEngine::serve, 1))?;
    class.define_method("start_threads_by", method!(RubyEngine::start_threads_by, 1))?;
    class.define_method("dismiss_threads", method!(RubyEngine::dismiss_threads, 0))?;
    class.define_method("alone?", method!(RubyEngine::is_alone, 0))?;
    class.define_method("while_nobody_waits", method!(RubyEngine::while_nobody_waits, 0))?;
    class.define_method("while_forking", method!(RubyEngine::while_forking, 0))?;
    class.define_method("release", method!(RubyEngine::release, 0))?;
    define_control(class)
}

/// Methods that only pass the call on. Traps may call them.
fn define_control(class: RClass) -> Result<(), Error> {
    type This<'a> = &'a RubyEngine;
    // `run` returns after the requests in progress have been answered.
    class.define_method("stop", method!(|this: This| this.control.stop(), 0))?;
    // From now on each response closes its connection, and `stop` first serves all clients in the backlog.
    class.define_method("drain", method!(|this: This| this.control.drain(), 0))?;
    // `run` returns between two requests, and can be called again.
    class.define_method("pause", method!(|this: This| this.control.pause(), 0))?;
    // Number of answered requests.
    class.define_method("requests", method!(|this: This| this.control.requests(), 0))?;
    // Number of requests without an answer because the client had left before the app was called.
    class.define_method("dropped", method!(|this: This| this.control.dropped(), 0))?;
    // Numbers of streams, and of sockets that the app has taken over and has not closed.
    class.define_method("streams", method!(|this: This| this.control.streams(), 0))?;
    class.define_method("sockets", method!(|this: This| this.control.sockets(), 0))?;
    // Ends one of the streams, or else of these sockets. False if all were told to end.
    class.define_method("end_one", method!(|this: This| this.control.end_one(), 0))?;
    // Whether a client waits to be accepted, read or answered.
    class.define_method("waiting?", method!(|this: This| this.control.is_anybody_waiting(), 0))?;
    // Passes the backtraces of Ruby's threads to the watchdog, for the log. To be called on THREAD_DUMP_SIGNAL. False if the
    // watchdog has not asked for backtraces.
    class.define_method("thread_dump", method!(|this: This, text: String| this.dumper.answer(text), 1))?;
    // Begins to sample the threads that have requests. False if that goes on already. `end_profile` returns Arrays of how often a stack was
    // seen, the state of its thread or nil, and its frames, the innermost first; nil without a profile.
    class.define_method("begin_profile", method!(|this: This| this.profiler.begin(&this.control), 0))?;
    class.define_method("end_profile", method!(|this: This| this.profiler.end(), 0))?;
    // Closes this process's copies of all connections without sending anything. For a forked child.
    class.define_method("close", method!(|this: This| this.control.close(), 0))
}

impl RubyEngine {
    /// `Engine.new(listeners, settings)`; see lib/fastrack/worker.rb for both.
    fn new(ruby: &Ruby, list: RArray, hash: RHash) -> Result<Obj<Self>, Error> {
        let (listeners, templates) = listeners(ruby, list)?;
        let (app_settings, kept) = app_settings(ruby, hash, templates)?;
        let dumper = Arc::<RubyThreads>::default();
        let settings = engine_settings(ruby, hash, Arc::clone(&dumper) as _)?;
        let queue: Option<Obj<RubySharedQueue>> = optional(ruby, hash, "queue")?;
        let queue = queue.as_ref().map(|queue| queue.borrow(ruby)).transpose()?;
        let master: Option<i32> = optional(ruby, hash, "master_fd")?;
        // SAFETY: Ruby's IO keeps the descriptor open during this call.
        let master = master.map(|fd| unsafe { borrow_fd(fd) }).transpose();
        let engine = master
            .and_then(|master| Engine::new(listeners, master, settings, queue.as_deref()))
            .map_err(|error| system_error(ruby, "engine", &error))?;
        let object = ruby.obj_wrap(RubyEngine {
            control: engine.control(),
            dumper,
            profiler: Profiler::default(),
            forking: RefCell::new(Some(Arc::new(engine.forking()))),
            engine: RefCell::new(Some(engine)),
            running: Cell::new(false),
            app_settings,
            starter: Cell::new(NIL),
            pid: std::process::id(),
        });
        // From here on the object marks the values.
        drop(kept);
        Ok(object)
    }

    /// `run(app, limit)`: serves until stopped, or until `limit` more requests were answered (0: no limit). For the main
    /// thread.
    fn run(ruby: &Ruby, this: &Self, app: Value, limit: u64) -> Result<Symbol, Error> {
        let misuse = |message: &'static str| Error::new(ruby.exception_runtime_error(), message);
        let Some(engine) = this.own_engine(ruby)? else { return Ok(ruby.to_symbol("closed")) };
        if this.running.replace(true) {
            return Err(misuse("this engine is running already"));
        }
        let (finish, error) = this.with_app(ruby, app, |app| engine.run(app, (limit > 0).then_some(limit)));
        this.running.set(false);
        if let Some(error) = error {
            return Err(error);
        }
        Ok(ruby.to_symbol(match finish {
            Finish::Stopped => "stopped",
            Finish::Streaming => "streaming",
            Finish::Limit => "limit",
            Finish::Paused => "paused",
            Finish::Closed => "closed",
            Finish::Lost => "lost",
            Finish::Broken | Finish::Dismissed => {
                return Err(misuse("the engine cannot wait for its descriptors"))
            }
        }))
    }

    /// `serve(app)`: serves in another thread while the main thread is in `run`. Returns after `dismiss_threads`, or after a stream when
    /// there are enough other threads.
    fn serve(ruby: &Ruby, this: &Self, app: Value) -> Result<(), Error> {
        let Some(engine) = this.own_engine(ruby)? else { return Ok(()) };
        let (_, error) = this.with_app(ruby, app, |app| engine.serve(app));
        error.map_or(Ok(()), Err)
    }

    /// `start_threads_by(callable)`: from now on `run` calls it for each thread that streams need. It returns true if it has started a
    /// thread, which calls `serve`.
    fn start_threads_by(&self, callable: Value) {
        self.starter.set(callable.as_raw());
    }

    /// `dismiss_threads`: makes all threads return from `serve`. To be called after the last `run`.
    fn dismiss_threads(&self) {
        self.engine.borrow().iter().for_each(Engine::dismiss_threads);
    }

    /// `alone?`: whether no other thread has a request.
    fn is_alone(&self) -> bool {
        self.control.is_closed() || self.engine.borrow().as_ref().is_none_or(Engine::is_alone)
    }

    /// `while_nobody_waits { collect }`: runs the block if no client has to wait for its end, and returns its result; else nil. For the
    /// calls after a response.
    fn while_nobody_waits(ruby: &Ruby, this: &Self) -> Result<Option<Value>, Error> {
        let collect = ruby.block_proc()?;
        let engine = this.own_engine(ruby)?;
        let pause = engine.as_deref().and_then(Engine::begin_gc_pause);
        // `call` returns an exception as a value, so the pause ends before the exception goes on.
        pause.map(|_pause| collect.call(())).transpose()
    }

    /// Borrows the engine, with the GVL. No exception unwinds over the borrow: `with_app` returns exceptions as values.
    fn own_engine(&self, ruby: &Ruby) -> Result<Option<Ref<'_, Engine>>, Error> {
        if std::process::id() == self.pid {
            return Ok(Ref::filter_map(self.engine.borrow(), Option::as_ref).ok());
        }
        Err(Error::new(ruby.exception_runtime_error(), "this engine belongs to another process"))
    }

    fn with_app(
        &self,
        ruby: &Ruby,
        app: Value,
        run: impl FnOnce(&mut RackApp) -> Finish,
    ) -> (Finish, Option<Error>) {
        let entered = AppThread::enter(ruby, &self.control);
        let mut app = RackApp::new(app.as_raw(), self.app_settings, entered.thread(), self.starter.get());
        let finish = run(&mut app);
        (finish, app.take_pending())
    }

    /// `release`: closes all descriptors of a stopped engine, including connections, and ends the helper thread. Returns false
    /// if the engine is running, or belongs to another process.
    fn release(&self) -> bool {
        let Ok(mut engine) = self.engine.try_borrow_mut() else { return false };
        if std::process::id() != self.pid {
            return false;
        }
        self.control.mark_dropped();
        GcClock::forget();
        drop((engine.take(), self.forking.take()));
        true
    }

    /// `while_forking { fork }`: runs the block while no thread changes the connections, so that the child can close its
    /// copies of all connections.
    fn while_forking(ruby: &Ruby, this: &Self) -> Result<Value, Error> {
        let fork = ruby.block_proc()?;
        let forking = this.forking.borrow().clone();
        match forking {
            Some(forking) => forking.run(|| fork.call(())),
            None => fork.call(()),
        }
    }
}

impl DataTypeFunctions for RubyEngine {
    fn mark(&self, marker: &gc::Marker) {
        for value in self.app_settings.values().into_iter().chain([self.starter.get()]) {
            // SAFETY: the values have been marked until now, so they are alive, or were just set. `mark` also pins them.
            marker.mark(unsafe { Value::from_raw(value) });
        }
    }
}

impl Drop for RubyEngine {
    fn drop(&mut self) {
        // In a forked child, dropping the engine would remove the parent's clients from the shared epoll set. The child leaks
        // the engine: the parent's helper thread may have been changing it during the fork.
        if std::process::id() != self.pid {
            self.control.close();
            std::mem::forget(self.engine.get_mut().take());
        }
    }
}
