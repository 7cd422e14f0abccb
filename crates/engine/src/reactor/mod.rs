//! A worker's connections, driven by the application's thread or, while that is busy, by the helper.
//!
//! Nothing here waits or calls the application. What comes out is connections whose requests are ready.

mod accept_for_others;
mod access;
mod close;
mod finish;
mod gc_pause;
mod give;
mod incoming;
mod lead;
mod leading;
mod linger;
mod next_action;
mod queue_limit;
mod request_length;
mod schedule;
mod shortage;
mod stop;
mod table;
#[cfg(test)]
mod tests;
mod unwatched;
mod waiting;

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use fastrack_http::DateCache;

use crate::accept::Backlog;
use crate::access_log::AccessLog;
use crate::baton::Threads;
use crate::conn::{Connection, ReadBufPool};
use crate::control::Control;
use crate::handoff::QueueHandle;
use crate::request_state::Count;
use crate::settings::{own_descriptors, Settings};

pub(crate) use access::LOG_TIME;
pub use lead::Finish;
pub(crate) use lead::Lead;
pub(crate) use next_action::Action;
pub(crate) use table::Table;

/// Bytes that must have been freed before an idle worker trims the heap: it takes milliseconds.
const TRIM: usize = 16 * 1024 * 1024;

/// What to do with a connection next.
#[must_use]
pub(crate) enum Next {
    Ready(Box<Connection>),
    /// Nothing: it waits for an event, has gone to another worker, or was closed.
    Kept,
}

/// What is known of the time that new clients have waited to be accepted.
#[derive(Debug, Default)]
struct BacklogTime {
    /// This worker has answered no request since it last waited for clients.
    is_idle: bool,
    /// When the system was last asked, in milliseconds of the monotonic clock, and what it said, in milliseconds.
    looked: u64,
    waited: u64,
}

#[derive(Debug)]
pub(crate) struct Reactor {
    /// Who leads. Whoever drives has the reactor's lock.
    pub threads: Threads,
    pub lead: Lead,
    settings: Settings,
    control: Arc<Control>,
    table: Table,
    read_bufs: ReadBufPool,
    /// Requests that are ready, in the order in which they became so.
    ready: VecDeque<Box<Connection>>,
    queue_handle: Option<QueueHandle>,
    /// Clients that have not been accepted.
    backlog: Backlog,
    /// None of them could be accepted at the last try.
    backlog_failed: bool,
    date: DateCache,
    backlog_time: BacklogTime,
    /// How many requests wait, as others have been told.
    published: usize,
    access_log: Option<Box<AccessLog>>,
    capacity: usize,
    /// When requests that have begun are cut off; set while stopping.
    stop_deadline: Option<u64>,
    /// Until when requests whose head has not arrived are waited for, before they go to another worker.
    head_deadline: u64,
    /// The shared queue was full, and stayed so, when connections were to be handed off.
    queue_stayed_full: bool,
    /// The process ends: whatever comes in now [goes on](Self::hand_off_all) to others.
    handed_off: bool,
    /// Until when nobody is accepted, in milliseconds of the monotonic clock; 0 if there is no pause.
    accept_pause: u64,
    /// Why a connection could not be taken from the shared queue at the last try.
    queue_failure: Option<io::Error>,
    /// The application's thread has not heard of that yet.
    has_left_queued: bool,
    /// A descriptor of the poller or of the shared queue was closed, by the application.
    lost_descriptors: bool,
    /// Bytes of large bodies since the heap was trimmed.
    freed: usize,
    warnings: Vec<String>,
    /// The second in which the last warning of a failed call was logged.
    last_failure: u64,
    /// The second in which the last warning of a client that was turned away was logged.
    last_refusal: u64,
    /// Requests that had waited for too long, and that the log does not know of yet.
    shed: u64,
    /// There was no memory for a request or a response.
    lacks_memory: bool,
    /// The helper drives, so the application may fork meanwhile.
    app_is_running: bool,
    /// A request has lasted so long that the helper took over.
    long_request: bool,
}

impl Reactor {
    pub fn new(
        settings: Settings,
        control: Arc<Control>,
        table: Table,
        queue_handle: Option<QueueHandle>,
        lead: Lead,
    ) -> Self {
        Reactor {
            threads: Threads::new(Arc::clone(control.baton())),
            lead,
            settings,
            control,
            table,
            read_bufs: ReadBufPool::default(),
            ready: VecDeque::new(),
            queue_handle,
            backlog: Backlog::default(),
            backlog_failed: false,
            date: DateCache::default(),
            backlog_time: BacklogTime::default(),
            published: 0,
            access_log: None,
            capacity: own_descriptors(),
            stop_deadline: None,
            head_deadline: 0,
            queue_stayed_full: false,
            handed_off: false,
            accept_pause: 0,
            queue_failure: None,
            has_left_queued: false,
            lost_descriptors: false,
            freed: 0,
            warnings: Vec::new(),
            last_failure: 0,
            last_refusal: 0,
            shed: 0,
            lacks_memory: false,
            app_is_running: false,
            long_request: false,
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn queue_handle(&self) -> Option<&QueueHandle> {
        self.queue_handle.as_ref()
    }

    pub fn warn(&mut self, line: String) {
        self.warnings.push(line);
    }

    pub fn has_warnings(&self) -> bool {
        !self.warnings.is_empty()
    }

    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Keeps in mind whether a call failed because the application has closed a descriptor of the server's. If not, that is
    /// for the log.
    fn note_failure(&mut self, what: &str, error: &io::Error) {
        if fastrack_sys::is_lost_fd(error) {
            self.lost_descriptors = true;
        } else {
            self.warn_of_shortage(what, error);
        }
    }

    pub fn set_lost_descriptors(&mut self) {
        self.lost_descriptors = true;
    }

    pub fn take_lost_descriptors(&mut self) -> bool {
        std::mem::take(&mut self.lost_descriptors)
    }

    /// Whether memory has run out, and that is for the log. Frees what is not in use.
    pub fn take_memory_shortage(&mut self) -> bool {
        let lacks_memory = std::mem::take(&mut self.lacks_memory);
        if lacks_memory {
            self.read_bufs.release();
        }
        lacks_memory
    }

    /// A request or response has ended; `bytes` is its length if it was a large one.
    pub fn note_large(&mut self, bytes: usize) {
        self.freed = self.freed.saturating_add(bytes);
    }

    /// Whether enough has been freed to trim the heap. The C library would keep it: once it has freed a
    /// large buffer, it takes others of that size from the heap.
    pub fn has_heap_to_trim(&self) -> bool {
        self.freed >= TRIM
    }

    /// The heap is about to be trimmed: frees what is not in use.
    pub fn release_memory(&mut self) {
        self.freed = 0;
        self.read_bufs.release();
    }

    pub fn note_long_request(&mut self) {
        self.long_request = true;
    }

    pub fn take_long_request(&mut self) -> bool {
        std::mem::take(&mut self.long_request)
    }

    pub fn has_connections(&self) -> bool {
        self.table.len() > 0
    }

    /// The files of all connections.
    pub fn files(&self) -> impl Iterator<Item = RawFd> + '_ {
        let first = self.lead.schedule.first.as_ref();
        self.table.connections().chain(&self.ready).chain(first).flat_map(|connection| connection.files())
    }

    pub fn is_done(&self) -> bool {
        self.table.len() == 0 && self.ready.is_empty() && self.lead.schedule.first.is_none()
    }

    pub fn is_stopping(&self) -> bool {
        self.stop_deadline.is_some()
    }

    pub fn next_deadline(&self) -> Option<u64> {
        let log = self.access_log.as_ref().and_then(|log| log.due());
        let pause = (self.accept_pause > 0).then_some(self.accept_pause);
        self.table.next_deadline().into_iter().chain(log).chain(pause).min()
    }

    pub fn events(&self) -> usize {
        self.table.events()
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub fn has_pending(&self) -> bool {
        self.table.events() > 0 || !self.ready.is_empty()
    }

    /// Whether this worker has answered no request since it last waited for clients.
    pub fn set_idle(&mut self, is_idle: bool) {
        self.backlog_time.is_idle = is_idle;
    }

    /// Tells other threads and the master whether requests wait.
    #[inline]
    pub fn publish_pending(&mut self) {
        let waiting = self.table.events() + self.ready.len();
        if waiting != self.published {
            self.published = waiting;
            self.control.counters().set(Count::Waiting, waiting as u64);
        }
    }

    /// Tells the master how many connections there are.
    pub fn publish(&mut self) {
        self.table.publish(self.control.counters());
        self.publish_pending();
    }

    /// The helper's turn, while the application has the other thread: does all that can be done without it. Ready
    /// requests go to whichever worker is free first. When the other thread `is_back` the rest is left to it: it
    /// waits for a single connection at most, of which a megabyte is read.
    ///
    /// Ready requests are kept if `keeps` says so, which another thread takes then.
    pub fn drive(&mut self, is_back: &dyn Fn() -> bool, keeps: &dyn Fn(&Self) -> bool) {
        self.follow(is_back);
        self.app_is_running = true;
        self.take_slow_clients(is_back);
        if self.ready.is_empty() || !keeps(self) {
            self.give_ready(is_back);
        }
        if !keeps(self) {
            self.accept_for_others(is_back);
        }
        self.publish();
        self.tend_log();
        self.app_is_running = false;
    }

    /// Does what this worker's own connections need.
    fn follow(&mut self, is_back: &dyn Fn() -> bool) {
        self.app_is_running = true;
        if let Err(error) = self.poll() {
            self.note_failure("wait", &error);
        }
        for _ in 0..self.table.events() {
            if is_back() {
                break;
            }
            let next = self.handle_event();
            self.queue_if_ready(next);
        }
        self.expire(is_back);
        self.app_is_running = false;
    }
}
