//! A worker's connections, driven by the application's leading thread or, while that is busy, by the helper.
//!
//! Nothing here waits or calls the application. Each step of a connection has one verb:
//!
//! ```text
//!             listener
//!                |
//!             accept            next_action.rs; accept_for_others.rs while all workers are busy
//!                v
//!   +---------> read            incoming.rs; receives bytes: a request, a part of one, or an error
//!   |            v
//!   |         settle            incoming.rs; does what was read
//!   |    ready /    \ the rest is to come, or to be sent
//!   |         v      v
//!   |      queue    park        parking.rs; until an event or a deadline, then read or send again
//!   |       | |      |
//!   |       | +------+--> give  give_and_take.rs; into the shared queue
//!   |       v               v
//!   |     serve           take  by any worker, which settles it
//!   |       v
//!   +--- finish             finish.rs; keeps the connection for its next request
//!           v
//!         close             close.rs; also from any other step: refuse, reset, time out, linger
//! ```
//!
//! `next_action.rs` says in which order the leader takes turns. Parts with state of their own: `stop_state.rs`, `shortage.rs`,
//! `logging.rs`, `gc_pause.rs`, `table.rs`.

mod accept_for_others;
mod backlog_time;
mod close;
mod finish;
mod gc_pause;
mod give_and_take;
mod incoming;
mod lead;
mod linger;
mod logging;
mod next_action;
mod parking;
mod polling;
mod queue_limit;
mod room;
mod run_end;
mod schedule;
mod shortage;
mod stop;
mod stop_state;
mod table;
#[cfg(test)]
mod tests;
mod watch_retry;

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use fastrack_http::DateCache;

use crate::accept::Backlog;
use crate::admission::{Room, Threads};
use crate::claim::{ActiveRequest, Claim};
use crate::conn::{Connection, ReadBufPool};
use crate::control::Control;
use crate::handoff::QueueHandle;
use crate::scoreboard::Count;
use crate::settings::Settings;

use backlog_time::BacklogTime;
use logging::Logging;
use shortage::Shortage;
use stop_state::Stopping;

pub use lead::Finish;
pub(crate) use lead::Lead;
pub(crate) use next_action::Action;
pub(crate) use table::Table;

/// Bytes of large bodies that must have been freed before an idle worker trims the heap, which takes milliseconds.
const TRIM_AFTER: usize = 16 * 1024 * 1024;

/// The next step of a connection.
#[must_use]
pub(crate) enum Next {
    Ready(Box<Connection>),
    /// Nothing: the connection waits for an event, belongs to another worker, or was closed.
    Kept,
}

#[derive(Debug)]
pub(crate) struct Reactor {
    /// Which thread leads. The driver has the reactor's lock.
    pub threads: Threads,
    pub lead: Lead,
    settings: Settings,
    control: Arc<Control>,
    /// Connections that are parked.
    table: Table,
    read_bufs: ReadBufPool,
    /// Requests that are ready, in the order in which they became so.
    ready: VecDeque<Box<Connection>>,
    queue_handle: Option<QueueHandle>,
    /// The listeners, for clients that have not been accepted.
    backlog: Backlog,
    backlog_time: BacklogTime,
    stopping: Stopping,
    shortage: Shortage,
    logging: Logging,
    date: DateCache,
    /// The number of waiting requests that other threads and the master know of.
    published: usize,
    /// Bytes of large bodies since the heap was last trimmed.
    freed: usize,
    /// Whether the helper drives, so that the application may fork meanwhile.
    app_is_running: bool,
    /// Whether a request has lasted so long that the helper took over.
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
            threads: Threads::new(
                Arc::clone(control.baton()),
                Room::new(settings.requests.threads, settings.requests.streams),
            ),
            lead,
            settings,
            control,
            table,
            read_bufs: ReadBufPool::default(),
            ready: VecDeque::new(),
            queue_handle,
            backlog: Backlog::default(),
            backlog_time: BacklogTime::default(),
            stopping: Stopping::default(),
            shortage: Shortage::new(),
            logging: Logging::default(),
            date: DateCache::default(),
            published: 0,
            freed: 0,
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

    /// Starts the access log's thread, if there is an access log.
    pub fn start_log(&mut self) -> io::Result<()> {
        self.logging.start(&self.settings, self.control.counters())
    }

    #[inline]
    pub fn is_logging(&self) -> bool {
        self.logging.has_access_log()
    }

    /// Logs a request that the end of the process has cut.
    pub fn log_overdue(&mut self, request: &ActiveRequest, claim: Claim) {
        self.logging.log_overdue(request, claim, self.control.counters());
    }

    /// Writes the lines that are old enough, and warns of lost lines.
    pub fn flush_log_if_due(&mut self) {
        self.logging.flush_if_due(self.control.counters());
    }

    /// Writes all waiting lines, for `millis` milliseconds at most.
    pub fn flush_log(&mut self, millis: u64) {
        self.logging.flush_within(millis, self.control.counters());
    }

    pub fn warn(&mut self, line: String) {
        self.logging.warn(line);
    }

    /// Takes the warnings that wait to be logged.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.logging.take_warnings()
    }

    /// A request or response has ended. `bytes` is its length if it was a large one.
    pub fn note_large(&mut self, bytes: usize) {
        self.freed = self.freed.saturating_add(bytes);
    }

    /// Whether so much was freed that the heap is to be trimmed. The C library would keep the memory: once it has freed a large buffer, it
    /// takes other buffers of that size from the heap.
    pub fn has_heap_to_trim(&self) -> bool {
        self.freed >= TRIM_AFTER
    }

    /// Called before the heap is trimmed: frees unused buffers.
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
        let next = self.lead.schedule.next.as_ref();
        self.table.connections().chain(&self.ready).chain(next).flat_map(|connection| connection.files())
    }

    pub fn is_done(&self) -> bool {
        self.table.len() == 0 && self.ready.is_empty() && self.lead.schedule.next.is_none()
    }

    /// Whether every connection has a request or a stream in progress.
    pub fn has_nothing_here(&self) -> bool {
        self.table.parked() == 0 && self.ready.is_empty() && self.lead.schedule.next.is_none()
    }

    /// The time at which this worker's connections, its log or a pause need another look, in milliseconds of the monotonic clock.
    pub fn next_deadline(&self) -> Option<u64> {
        let others = self.logging.due().into_iter().chain(self.shortage.pause_end());
        others.chain(self.table.next_deadline()).min()
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

    /// Notes whether this worker has answered no request since it last waited for clients.
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

    /// Tells the master the number of connections.
    pub fn publish(&mut self) {
        self.table.publish(self.control.counters());
        self.publish_pending();
    }

    /// The helper's turn while the application has the other thread: does all work that needs no application. Ready requests go to the
    /// first free worker of the server. When the other thread `is_back`, the rest is left to that thread, which waits for a single
    /// connection at most, of which a megabyte is read.
    ///
    /// If `keeps` says so, ready requests stay here for another thread.
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
        self.flush_log_if_due();
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
