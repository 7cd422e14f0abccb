//! Fastrack::Monitor: the master's side of the thread that serves status and metrics.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use magnus::{function, method, prelude::*, Error, RModule, Ruby};

use fastrack_engine::Memory;
use fastrack_monitor::{
    Exit, ListenerInfo, MasterState, MoldState, Monitor, MonitorSettings, Order, ProxyState, ServerPhase,
    WorkerPhase, WorkerState, THREAD_TIMEOUT,
};
use fastrack_sys::epoch_seconds;
use rb_sys::rb_thread_check_ints;

use super::app_user::RubyAppUser;
use super::scoreboard::RubyScoreboard;
use crate::ruby::{protect, system_error, without_gvl};

/// Longest wait without the GVL before signals are checked.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The Ruby object. The master makes the object, and its children close their copies.
#[magnus::wrap(class = "Fastrack::Monitor", free_immediately)]
struct RubyMonitor(RefCell<Monitor>);

/// Number, pid, generation, state, time of the fork, slot.
type Worker = (usize, u32, u64, String, f64, Option<usize>);

/// Phase, generation, workers wanted, seconds for a stop, the other master's pid, bytes that a refork would save.
type Server = (String, u64, usize, f64, Option<u32>, Option<u64>);

/// Number, signal, state, reason, the new master's pid.
type OrderRow = (u64, String, String, Option<String>, Option<u32>);

/// Pid, generation, requests, memory in bytes (PSS, private).
type Mold = (u32, u64, u64, Option<(u64, u64)>);

/// Name, inode, whether the listener is TCP, limit of the backlog.
type Listener = (String, u64, bool, Option<u32>);

pub(super) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    let class = module.define_class("Monitor", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("start", function!(RubyMonitor::start, 6))?;
    class.define_method("listen", method!(RubyMonitor::listen, 0))?;
    class.define_method("publish", method!(RubyMonitor::publish, 6))?;
    class.define_method("exited", method!(RubyMonitor::exited, 4))?;
    class.define_method("profile_order", method!(RubyMonitor::profile_order, 0))?;
    class.define_method("publish_profile", method!(RubyMonitor::publish_profile, 2))?;
    class.define_method("warning", method!(RubyMonitor::warning, 0))?;
    class.define_method("close", method!(RubyMonitor::close, 0))?;
    Ok(())
}

impl RubyMonitor {
    /// `Monitor.start(scoreboard, [path, "host:port", token], [version, ruby, host], threads, replaces, user)`: starts the
    /// thread, which does not listen yet. `replaces`: an old master may still listen at that port. `user` is an AppUser or nil.
    fn start(
        ruby: &Ruby,
        scoreboard: &RubyScoreboard,
        (path, listen, token): (Option<PathBuf>, Option<String>, Option<String>),
        (version, ruby_version, host): (String, String, String),
        threads: usize,
        replaces: bool,
        user: Option<&RubyAppUser>,
    ) -> Result<Self, Error> {
        let listen = listen.map(|address| address.parse()).transpose();
        let listen = listen.map_err(|_| Error::new(ruby.exception_arg_error(), "not an address and port"))?;
        let started_at = fastrack_sys::monotonic_micros() as f64 / 1e6;
        let scoreboard = &scoreboard.0;
        let user = user.map(|user| user.0.clone());
        let settings = MonitorSettings {
            path,
            user,
            listen,
            token,
            version,
            ruby: ruby_version,
            host,
            threads,
            started_at,
            replaces,
        };
        let monitor = waiting(ruby, || Some(Monitor::start(settings.clone(), scoreboard.clone())))?;
        let monitor = monitor.map_err(|error| system_error(ruby, "the monitor", &error))?;
        Ok(RubyMonitor(RefCell::new(monitor)))
    }

    /// `listen`: listens at the addresses, even if an old master's monitor still uses them.
    fn listen(ruby: &Ruby, this: &Self) -> Result<(), Error> {
        let mut monitor = this.0.borrow_mut();
        let end = Instant::now() + THREAD_TIMEOUT;
        if !monitor.order_to_listen() {
            return Ok(());
        }
        let monitor = &mut *monitor;
        waiting(ruby, move || {
            (monitor.await_listening(SIGNAL_CHECK_INTERVAL) || Instant::now() > end).then_some(())
        })
    }

    /// `publish(server, workers, [mold, generation_0], listeners, orders, proxy)`: publishes the master's state.
    fn publish(
        &self,
        server: Server,
        workers: Vec<Worker>,
        (mold, first): (Option<Mold>, Option<Mold>),
        listeners: Vec<Listener>,
        orders: Vec<OrderRow>,
        proxy: Option<(u32, String, String)>,
    ) {
        let (phase, generation, wanted, stop_seconds, other_master, refork_saving) = server;
        let phase = ServerPhase::ALL.into_iter().find(|one| one.name() == phase).unwrap_or_default();
        let workers = workers.into_iter().map(worker).collect();
        let listeners = listeners.into_iter().map(listener).collect();
        let orders = orders.into_iter().map(order).collect();
        let state = MasterState {
            phase,
            generation,
            wanted,
            stop_seconds,
            other_master,
            orders,
            workers,
            mold: mold.map(mold_state),
            first: first.map(mold_state),
            refork_saving,
            listeners,
            proxy: proxy.map(|(pid, state, counts)| ProxyState {
                pid: (pid > 0).then_some(pid),
                state,
                // A proxy that has just started has counted nothing yet.
                counts: serde_json::from_str(&counts).unwrap_or_default(),
            }),
        };
        self.0.borrow().publish(state);
    }

    /// `exited(nr, pid, cause, text)`: records the end of a worker.
    fn exited(&self, nr: usize, pid: u32, cause: String, text: String) {
        self.0.borrow().exited(Exit { nr, pid, cause, text, at: epoch_seconds() });
    }

    /// `profile_order`: the number of a worker and the seconds for which to profile it, if a client has asked for that; or nil.
    fn profile_order(&self) -> Option<(usize, u32)> {
        self.0.borrow().profile_order()
    }

    /// `publish_profile(running, json)`: publishes a profile, which ends the order.
    fn publish_profile(&self, is_running: bool, text: String) {
        self.0.borrow().publish_profile(is_running, &text);
    }

    /// `warning`: the next line for the log, or nil.
    fn warning(&self) -> Option<String> {
        self.0.borrow().warning()
    }

    /// `close`: ends the thread. A forked process only closes the inherited descriptors.
    fn close(&self) {
        // If another thread was borrowing the monitor during a fork, the child's copy stays borrowed.
        let Ok(mut monitor) = self.0.try_borrow_mut() else { return };
        let monitor = &mut *monitor;
        without_gvl(&mut || monitor.close());
        // The first call does not run while a signal is pending. A second close does nothing.
        monitor.close();
    }
}

/// Repeats `work`, which waits for the monitor's thread without the GVL, until it returns a value.
fn waiting<T: Send>(ruby: &Ruby, mut work: impl FnMut() -> Option<T> + Send) -> Result<T, Error> {
    let mut found = None;
    loop {
        without_gvl(&mut || found = work());
        if let Some(found) = found.take() {
            return Ok(found);
        }
        // SAFETY: under protect, in a frame that owns nothing.
        protect(|| unsafe { rb_thread_check_ints() }).map_err(|raised| raised.into_error(ruby))?;
    }
}

fn worker((nr, pid, generation, state, spawned_at, slot): Worker) -> WorkerState {
    let phase = match state.as_str() {
        "booting" => WorkerPhase::Booting,
        "serving" => WorkerPhase::Serving,
        "lingering" => WorkerPhase::Lingering,
        _ => WorkerPhase::Stopping,
    };
    WorkerState { nr, pid, generation, phase, spawned_at, slot }
}

fn mold_state((pid, generation, requests, memory): Mold) -> MoldState {
    let memory = memory.map(|(proportional, private)| Memory { proportional, private });
    MoldState { pid, generation, requests, memory }
}

fn order((number, signal, state, reason, pid): OrderRow) -> Order {
    Order { number, signal, state, reason, pid }
}

fn listener((name, inode, is_tcp, limit): Listener) -> ListenerInfo {
    ListenerInfo { name, inode, is_tcp, limit }
}
