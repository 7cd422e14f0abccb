//! Fastrack::Scoreboard: the master's view of each worker's state and counts.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

use magnus::{function, method, prelude::*, typed_data::Obj, Error, RHash, RModule, Ruby};

use fastrack_engine::{
    Cause, Counts, Entry, Histogram, Memory, Scoreboard, State, WorkerId, BUCKETS, MAX_STREAMS, MAX_WORKERS,
    TIMEOUT_STATUS,
};
use fastrack_monitor::STATUS_CLASSES;

use crate::ruby::system_error;
use crate::worker::shared_queue::RubySharedQueue;

/// The Ruby object. The master makes the object before forking, with the file of the memory.
#[magnus::wrap(class = "Fastrack::Scoreboard", free_immediately)]
pub(super) struct RubyScoreboard(pub Scoreboard, RefCell<Option<File>>);

pub(super) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    let class = module.define_class("Scoreboard", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.const_set("TIMEOUT_STATUS", TIMEOUT_STATUS)?;
    class.const_set("MAX_WORKERS", MAX_WORKERS)?;
    class.const_set("MAX_STREAMS", MAX_STREAMS)?;
    class.define_singleton_method("new", function!(RubyScoreboard::new, 1))?;
    class.define_singleton_method("from_fd", function!(RubyScoreboard::from_fd, 1))?;
    class.define_method("fd", method!(RubyScoreboard::fd, 0))?;
    class.define_method("close", method!(RubyScoreboard::close, 0))?;
    class.define_method("reserve", method!(RubyScoreboard::reserve, 0))?;
    class.define_method("assign", method!(RubyScoreboard::assign, 4))?;
    class.define_method("note_memory", method!(RubyScoreboard::note_memory, 3))?;
    class.define_method("used", method!(|this: &RubyScoreboard| this.0.used(), 0))?;
    class.define_method("release", method!(RubyScoreboard::release, 1))?;
    class.define_method("read", method!(RubyScoreboard::read, 1))?;
    class.define_method("counts", method!(RubyScoreboard::counts, 1))?;
    class.define_method("totals", method!(RubyScoreboard::totals, 0))?;
    class.define_method(
        "requests_by_number",
        method!(|this: &RubyScoreboard| this.0.requests_by_number(), 0),
    )?;
    class.define_method("count_restart", method!(RubyScoreboard::count_restart, 1))?;
    class.define_method("restarts", method!(RubyScoreboard::restarts, 0))?;
    Ok(())
}

impl RubyScoreboard {
    /// `Scoreboard.new(queue)`: a scoreboard in memory shared with future workers. `queue` is the workers' SharedQueue or nil.
    fn new(ruby: &Ruby, queue: Option<Obj<RubySharedQueue>>) -> Result<Self, Error> {
        let (board, file) =
            Scoreboard::with_file().map_err(|error| system_error(ruby, "the scoreboard", &error))?;
        let file = RefCell::new(file);
        let Some(queue) = queue else { return Ok(RubyScoreboard(board, file)) };
        let length = queue.borrow(ruby)?.length();
        Ok(RubyScoreboard(board.with_queue(length), file))
    }

    /// `from_fd(fd)`: the master's scoreboard, in a process that has inherited its descriptor.
    fn from_fd(ruby: &Ruby, fd: i32) -> Result<Self, Error> {
        // SAFETY: this process has inherited the descriptor for this scoreboard, and closes it later.
        let board = unsafe { Scoreboard::from_raw_fd(fd) };
        let board = board.map_err(|error| system_error(ruby, "the scoreboard", &error))?;
        Ok(RubyScoreboard(board, RefCell::new(None)))
    }

    /// `fd`: the descriptor of the memory; nil if it has none, or is closed.
    fn fd(&self) -> Option<RawFd> {
        self.1.borrow().as_ref().map(File::as_raw_fd)
    }

    /// `close`: closes the descriptor. The memory stays.
    fn close(&self) {
        drop(self.1.take());
    }

    /// `reserve`: a slot for the next worker; nil if all slots are in use.
    fn reserve(&self) -> Option<usize> {
        self.0.reserve()
    }

    /// `assign(slot, nr, pid, generation)`: records the worker forked for the slot.
    fn assign(&self, slot: usize, nr: u64, pid: u32, generation: u64) {
        self.0.assign(slot, WorkerId { nr, pid, generation });
    }

    /// `note_memory(slot, pss, private)`: records the memory of the slot's worker, in bytes.
    fn note_memory(&self, slot: usize, proportional: u64, private: u64) {
        self.0.note_memory(slot, Memory { proportional, private });
    }

    /// `release(slot)`: frees the slot of an ended worker.
    fn release(&self, slot: usize) {
        self.0.release(slot);
    }

    /// `read(slot)`: a Hash, or nil for a slot without a worker.
    ///
    /// - `state`: :waiting, :serving or :ending
    /// - `requests`: number of answered requests
    /// - `started` and `deadline` of the last request, in monotonic seconds; a nil deadline is no limit
    /// - `callbacks`: whether the last request's callbacks are running
    /// - `line` (method and target, escaped) and `id` of the last request; nil if unknown
    /// - `nr`, `pid` and `generation` of the worker; nil before the fork
    /// - `memory` of the worker, in bytes: [pss, private]; nil before the worker's first report
    fn read(ruby: &Ruby, this: &Self, slot: usize) -> Result<Option<RHash>, Error> {
        this.0.read(slot).map(|entry| hash(ruby, &entry)).transpose()
    }

    /// `counts(slot)`: a Hash with the counts of all workers of the slot so far, and the present worker's connections. See
    /// docs/logs-and-stats.md.
    fn counts(ruby: &Ruby, this: &Self, slot: usize) -> Result<Option<RHash>, Error> {
        this.0.counts(slot).map(|counts| counts_hash(ruby, &counts)).transpose()
    }

    /// `totals`: the counts of all present and past workers.
    fn totals(ruby: &Ruby, this: &Self) -> Result<RHash, Error> {
        counts_hash(ruby, &this.0.totals())
    }

    /// `count_restart("memory")`: counts a replaced worker by cause. For the master only. Raises ArgumentError for an unknown
    /// cause.
    fn count_restart(ruby: &Ruby, this: &Self, name: String) -> Result<(), Error> {
        let cause = Cause::ALL.into_iter().find(|cause| cause.name() == name);
        let unknown = || Error::new(ruby.exception_arg_error(), format!("unknown cause {name}"));
        this.0.count_restart(cause.ok_or_else(unknown)?);
        Ok(())
    }

    /// `restarts`: a Hash with the number of replaced workers, by cause.
    fn restarts(ruby: &Ruby, this: &Self) -> Result<RHash, Error> {
        let hash = ruby.hash_new();
        for (cause, count) in this.0.restarts() {
            hash.aset(ruby.to_symbol(cause.name()), count)?;
        }
        Ok(hash)
    }
}

fn hash(ruby: &Ruby, entry: &Entry) -> Result<RHash, Error> {
    let state = match entry.state {
        State::Serving => "serving",
        State::Ending => "ending",
        State::Free | State::Waiting => "waiting",
    };
    let seconds = |millis: u64| millis as f64 / 1000.0;
    let text = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes.escape_ascii().to_string());
    let hash = ruby.hash_new();
    hash.aset(ruby.to_symbol("state"), ruby.to_symbol(state))?;
    hash.aset(ruby.to_symbol("requests"), entry.requests)?;
    hash.aset(ruby.to_symbol("started"), seconds(entry.started))?;
    hash.aset(ruby.to_symbol("deadline"), entry.deadline.map(seconds))?;
    hash.aset(ruby.to_symbol("callbacks"), entry.in_callbacks)?;
    hash.aset(ruby.to_symbol("line"), text(&entry.line))?;
    hash.aset(ruby.to_symbol("id"), text(&entry.id))?;
    hash.aset(ruby.to_symbol("nr"), entry.worker.map(|worker| worker.nr))?;
    hash.aset(ruby.to_symbol("pid"), entry.worker.map(|worker| worker.pid))?;
    hash.aset(ruby.to_symbol("generation"), entry.worker.map(|worker| worker.generation))?;
    let memory = entry.memory.map(|memory| (memory.proportional, memory.private));
    hash.aset(ruby.to_symbol("memory"), memory)?;
    Ok(hash)
}

fn counts_hash(ruby: &Ruby, counts: &Counts) -> Result<RHash, Error> {
    let connections = &counts.connections;
    let responses = ruby.hash_new();
    for (class, count) in STATUS_CLASSES.into_iter().zip(counts.responses()) {
        responses.aset(ruby.to_symbol(class), count)?;
    }
    let mut durations = Histogram::default();
    counts.durations.iter().for_each(|one| durations.add(one));
    let hash = symbols(
        ruby,
        &[
            ("requests", counts.requests()),
            ("bytes_in", counts.bytes_in),
            ("bytes_out", counts.bytes_out),
            ("accepted", counts.accepted),
            ("handed_over", counts.handed_over),
            ("taken_over", counts.taken_over),
            ("timed_out", counts.timed_out),
            ("refused", counts.refused),
            ("overloaded", counts.overloaded),
            ("dropped", counts.dropped),
            ("aborted", counts.aborted),
            ("hijacked", counts.hijacked),
            ("streams", counts.streams),
            ("log_lines", counts.log_lines),
            ("log_lines_dropped", counts.log_lines_dropped),
        ],
    )?;
    hash.aset(ruby.to_symbol("responses"), responses)?;
    hash.aset(ruby.to_symbol("duration"), histogram_hash(ruby, &durations)?)?;
    hash.aset(ruby.to_symbol("queue_time"), histogram_hash(ruby, &counts.queue_times)?)?;
    hash.aset(ruby.to_symbol("gc_time_in_requests"), counts.gc_in_requests as f64 / 1e9)?;
    hash.aset(ruby.to_symbol("gc_time_outside"), counts.gc_outside as f64 / 1e9)?;
    let states = [
        ("idle", connections.idle),
        ("reading", connections.reading),
        ("waiting", connections.waiting),
        ("in_app", connections.in_app),
        ("streaming", connections.streaming),
        ("writing", connections.writing),
    ];
    hash.aset(ruby.to_symbol("connections"), symbols(ruby, &states)?)?;
    Ok(hash)
}

/// A Hash with `count`, `sum` in seconds, and `buckets`: the cumulative count for each upper bound in seconds, as in
/// Prometheus.
fn histogram_hash(ruby: &Ruby, histogram: &Histogram) -> Result<RHash, Error> {
    let hash = symbols(ruby, &[("count", histogram.count())])?;
    hash.aset(ruby.to_symbol("sum"), histogram.sum as f64 / 1000.0)?;
    let buckets = ruby.hash_new();
    let mut up_to = 0;
    for (bound, count) in BUCKETS.into_iter().zip(histogram.buckets) {
        up_to += count;
        buckets.aset(bound as f64 / 1000.0, up_to)?;
    }
    hash.aset(ruby.to_symbol("buckets"), buckets)?;
    Ok(hash)
}

fn symbols(ruby: &Ruby, pairs: &[(&str, u64)]) -> Result<RHash, Error> {
    let hash = ruby.hash_new();
    for (name, number) in pairs {
        hash.aset(ruby.to_symbol(*name), *number)?;
    }
    Ok(hash)
}
