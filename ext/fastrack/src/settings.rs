//! What Ruby passes to Engine.new, taken apart.

use std::path::PathBuf;
use std::sync::Arc;

use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::{Error, RArray, RHash, Ruby, TryConvert, Value};

use fastrack_engine::{Listener, Settings, Slot, ThreadDumper, WatchSettings};
use fastrack_http::Limits;
use fastrack_sys::borrow_fd;

use crate::protect::protect;
use crate::scoreboard::RubyScoreboard;
use crate::shapes;

/// The longest timeout, in milliseconds.
const YEAR: u64 = 365 * 24 * 3600 * 1000;

/// The templates of the environments, and the engine's listeners, in the same order. Those without a descriptor are
/// gone, and come last.
pub(crate) fn listeners(ruby: &Ruby, list: RArray) -> Result<(Vec<Listener>, RArray), Error> {
    let templates = ruby.ary_new();
    let mut listeners = Vec::new();
    for item in list {
        let hash = RHash::try_convert(item)?;
        let template: RHash = required(ruby, hash, "env")?;
        if let Some(fd) = optional(ruby, hash, "fd")? {
            let tcp = optional(ruby, hash, "tcp")?.unwrap_or(false);
            // SAFETY: Ruby's Socket closes it after this call at the earliest.
            let listener = unsafe { borrow_fd(fd) }.and_then(|fd| Listener::from_fd(fd, tcp));
            let failed = |error| system_error(ruby, &format!("descriptor {fd}"), &error);
            listeners.push(listener.map_err(failed)?);
        }
        // SAFETY: under protect; a Hash, which is on the stack.
        let template = protect(|| unsafe { shapes::make(template.as_raw(), &[]) });
        // SAFETY: it was made by Ruby a moment ago.
        templates.push(unsafe { Value::from_raw(template.map_err(|raised| raised.into_error(ruby))?) })?;
    }
    Ok((listeners, templates))
}

/// The settings that are the engine's own.
pub(crate) fn settings(ruby: &Ruby, hash: RHash, dumper: Arc<dyn ThreadDumper>) -> Result<Settings, Error> {
    let defaults = Settings::default();
    let millis = |key: &str, default: u64| -> Result<u64, Error> {
        let seconds: Option<f64> = optional(ruby, hash, key)?;
        // A cast to u64 saturates, and makes 0 of a NaN.
        Ok(seconds.map_or(default, |seconds| ((seconds * 1000.0) as u64).clamp(1, YEAR)))
    };
    let timeout = millis("timeout", defaults.header_timeout)?;
    let tmpdir: Option<PathBuf> = optional(ruby, hash, "tmpdir")?;
    Ok(Settings {
        header_timeout: millis("header_timeout", timeout)?,
        body_timeout: millis("body_timeout", timeout)?,
        write_timeout: millis("write_timeout", timeout)?,
        keep_alive: optional(ruby, hash, "keep_alive")?.unwrap_or(defaults.keep_alive),
        keep_alive_timeout: millis("keep_alive_timeout", defaults.keep_alive_timeout)?,
        parting_time: millis("parting_time", defaults.parting_time)?,
        keep_alive_requests: optional(ruby, hash, "keep_alive_requests")?.unwrap_or(0),
        response_buffer: optional(ruby, hash, "response_buffer")?.unwrap_or(defaults.response_buffer),
        max_body: optional(ruby, hash, "max_body")?,
        stream_body: optional(ruby, hash, "stream_body")?.unwrap_or(false),
        tmpdir: tmpdir.unwrap_or(defaults.tmpdir),
        decode_path: optional(ruby, hash, "decode_path")?.unwrap_or(false),
        listeners: optional(ruby, hash, "listeners")?.unwrap_or_default(),
        limits: limits(ruby, hash, defaults.limits)?,
        watch: watch(ruby, hash, dumper)?,
    })
}

fn watch(ruby: &Ruby, hash: RHash, dumper: Arc<dyn ThreadDumper>) -> Result<WatchSettings, Error> {
    let seconds: Option<f64> = optional(ruby, hash, "request_timeout")?;
    let place: Option<(magnus::typed_data::Obj<RubyScoreboard>, usize)> = optional(ruby, hash, "slot")?;
    let slot: Option<Slot> = place.and_then(|(board, index)| board.0.slot(index));
    Ok(WatchSettings { timeout: limit(seconds.unwrap_or(0.0)), slot, dumper: Some(dumper) })
}

/// Seconds of the application's in milliseconds; 0 is no limit, and anything else is one.
pub(crate) fn limit(seconds: f64) -> u64 {
    match seconds {
        seconds if seconds > 0.0 => ((seconds * 1000.0) as u64).clamp(1, YEAR),
        _ => 0,
    }
}

fn limits(ruby: &Ruby, hash: RHash, defaults: Limits) -> Result<Limits, Error> {
    let head = optional(ruby, hash, "max_head")?.unwrap_or(defaults.head);
    let target: usize = optional(ruby, hash, "max_target")?.unwrap_or(defaults.target);
    let fields = optional(ruby, hash, "max_fields")?.unwrap_or(defaults.fields);
    // A target longer than the head that it is in may be would never be reached.
    Ok(Limits { target: target.min(head), head, fields })
}

fn required<T: TryConvert>(ruby: &Ruby, hash: RHash, key: &str) -> Result<T, Error> {
    let missing = || Error::new(ruby.exception_key_error(), format!("{key} is missing"));
    optional(ruby, hash, key)?.ok_or_else(missing)
}

/// The value of a Symbol key; None when it is nil or absent.
pub(crate) fn optional<T: TryConvert>(ruby: &Ruby, hash: RHash, key: &str) -> Result<Option<T>, Error> {
    let value: Option<Value> = hash.lookup(ruby.to_symbol(key))?;
    value.map(T::try_convert).transpose()
}

/// An IOError that says what failed, and why.
pub(crate) fn system_error(ruby: &Ruby, what: &str, error: &std::io::Error) -> Error {
    Error::new(ruby.exception_io_error(), format!("{what}: {error}"))
}
