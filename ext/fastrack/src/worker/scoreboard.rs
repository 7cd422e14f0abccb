//! Fastrack::Scoreboard: what each worker is doing, for the master.

use magnus::{function, method, prelude::*, Error, RHash, RModule, Ruby};

use fastrack_engine::{Entry, Scoreboard, State, EXIT_STATUS};

use crate::ruby::system_error;

/// The Ruby object. The master makes it before it forks.
#[magnus::wrap(class = "Fastrack::Scoreboard", free_immediately)]
pub(super) struct RubyScoreboard(pub Scoreboard);

pub(super) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    let class = module.define_class("Scoreboard", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.const_set("TIMEOUT_STATUS", EXIT_STATUS)?;
    class.define_singleton_method("new", function!(RubyScoreboard::new, 0))?;
    class.define_method("reserve", method!(RubyScoreboard::reserve, 0))?;
    class.define_method("release", method!(RubyScoreboard::release, 1))?;
    class.define_method("read", method!(RubyScoreboard::read, 1))?;
    Ok(())
}

impl RubyScoreboard {
    /// `Scoreboard.new`: in memory shared with the workers that will be forked.
    fn new(ruby: &Ruby) -> Result<Self, Error> {
        Scoreboard::new().map(RubyScoreboard).map_err(|error| system_error(ruby, "the scoreboard", &error))
    }

    /// `reserve`: a slot for the next worker; nil if all are taken.
    fn reserve(&self) -> Option<usize> {
        self.0.reserve()
    }

    /// `release(slot)`: its worker has ended.
    fn release(&self, slot: usize) {
        self.0.release(slot);
    }

    /// `read(slot)`: nil for a slot without a worker, else a Hash: `state` (:waiting, :serving, :ending), `requests`
    /// (how many were answered); and of the last request `started` and `deadline` in monotonic seconds (nil: no limit),
    /// `callbacks` (whether it is at those), `line` (method and target, escaped) and `id`, both nil if there is none.
    fn read(ruby: &Ruby, this: &Self, slot: usize) -> Result<Option<RHash>, Error> {
        this.0.read(slot).map(|entry| hash(ruby, &entry)).transpose()
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
    Ok(hash)
}
