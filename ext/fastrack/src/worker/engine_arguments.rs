//! Converts the arguments of Engine.new.

use std::path::PathBuf;
use std::sync::Arc;

use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::typed_data::Obj;
use magnus::value::{BoxValue, ReprValue};
use magnus::{Error, RArray, RHash, Ruby, TryConvert, Value};

use fastrack_engine::{
    AccessLogSettings, Listener, LogFormat, OrphanSettings, RequestSettings, Settings, Slot, ThreadDumper,
};
use fastrack_http::Limits;
use fastrack_sys::borrow_fd;

use crate::app::AppSettings;
use crate::env::{make_template, request_bound_keys, Offered};
use crate::ruby::{protect, system_error};
use crate::worker::scoreboard::RubyScoreboard;

/// The longest timeout, in milliseconds.
const MAX_TIMEOUT: u64 = 365 * 24 * 3600 * 1000;

/// The engine's listeners, and an Array with the env template of each listener in the same order. Closed listeners, which
/// have no descriptor, come last in `list` and have only a template.
pub(super) fn listeners(ruby: &Ruby, list: RArray) -> Result<(Vec<Listener>, RArray), Error> {
    let templates = ruby.ary_new();
    let mut listeners = Vec::new();
    for item in list {
        let hash = RHash::try_convert(item)?;
        let template: RHash = required(ruby, hash, "env")?;
        if let Some(fd) = optional(ruby, hash, "fd")? {
            let tcp = optional(ruby, hash, "tcp")?.unwrap_or(false);
            // SAFETY: Ruby's Socket keeps the descriptor open during this call.
            let listener = unsafe { borrow_fd(fd) }.and_then(|fd| Listener::from_fd(fd, tcp));
            let failed = |error| system_error(ruby, &format!("descriptor {fd}"), &error);
            listeners.push(listener.map_err(failed)?);
        }
        // SAFETY: under protect; the Hash is on the stack.
        let template = protect(|| unsafe { make_template(template.as_raw(), &[]) });
        // SAFETY: Ruby has just made the template.
        templates.push(unsafe { Value::from_raw(template.map_err(|raised| raised.into_error(ruby))?) })?;
    }
    Ok((listeners, templates))
}

/// The app's settings, and boxes that protect their objects from the GC until the engine's object marks them.
pub(super) fn app_settings(
    ruby: &Ruby,
    hash: RHash,
    templates: RArray,
) -> Result<(AppSettings, [BoxValue<Value>; 3]), Error> {
    let callable = |key: &str| -> Result<_, Error> {
        Ok(BoxValue::new(hash.lookup2::<_, _, Value>(ruby.to_symbol(key), ())?))
    };
    let kept = [BoxValue::new(templates.as_value()), callable("after_response")?, callable("error_page")?];
    let callbacks = callback_arrays(ruby, templates)?;
    let offered = offered(templates)?;
    let release: Option<String> = ruby.eval("::Rack.release if defined?(::Rack.release)")?;
    // An app without Rack has what Rack 3.1 allows, as its env says (EngineBuilder).
    let rack = release.map_or((3, 1), |text| {
        let mut numbers = text.split('.').map(|number| number.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    });
    let [templates, after_response, error_page] = kept.each_ref().map(|value| value.as_raw());
    let settings = AppSettings {
        templates,
        callbacks,
        offered,
        proxy_listener: optional(ruby, hash, "proxy_listener")?,
        server_timing: optional(ruby, hash, "server_timing")?.unwrap_or(false),
        request_start: optional(ruby, hash, "request_start")?.unwrap_or(false),
        after_response,
        error_page,
        chunked: optional(ruby, hash, "chunked")?.unwrap_or(false),
        rack_3: rack >= (3, 0),
        rack_3_1: rack >= (3, 1),
    };
    Ok((settings, kept))
}

/// Number of callback Arrays at the start of each template. All templates are for the same version of Rack.
fn callback_arrays(ruby: &Ruby, templates: RArray) -> Result<usize, Error> {
    let keys = ["rack.after_reply", "rack.response_finished"];
    let count = |template: RHash| keys.iter().filter(|key| template.get(**key).is_some()).count();
    let templates = templates.into_iter().map(RHash::try_convert);
    let counts: Vec<usize> = templates.map(|template| template.map(count)).collect::<Result<_, _>>()?;
    match counts.first() {
        Some(first) if counts.iter().all(|count| count == first) => Ok(*first),
        None => Ok(0),
        _ => Err(Error::new(ruby.exception_arg_error(), "the listeners' envs have different callbacks")),
    }
}

/// The request-bound objects that the templates offer: true stands for an object. All templates offer the same objects.
fn offered(templates: RArray) -> Result<Offered, Error> {
    // SAFETY: the keys are Strings that are never freed.
    let keys = request_bound_keys().map(|key| unsafe { Value::from_raw(key) });
    let first: Option<RHash> = templates.entry(0)?;
    let is_true = |value: Value| value.as_raw() == rb_sys::Qtrue as rb_sys::VALUE;
    Ok(keys.map(|key| first.and_then(|hash| hash.get(key)).is_some_and(is_true)))
}

/// The settings of the engine.
pub(super) fn engine_settings(
    ruby: &Ruby,
    hash: RHash,
    dumper: Arc<dyn ThreadDumper>,
) -> Result<Settings, Error> {
    let defaults = Settings::default();
    let millis = |key: &str, default: u64| -> Result<u64, Error> {
        let seconds: Option<f64> = optional(ruby, hash, key)?;
        // A cast to u64 saturates, and turns NaN into 0.
        Ok(seconds.map_or(default, |seconds| ((seconds * 1000.0) as u64).clamp(1, MAX_TIMEOUT)))
    };
    let timeout = millis("timeout", defaults.header_timeout)?;
    let tmpdir: Option<PathBuf> = optional(ruby, hash, "tmpdir")?;
    Ok(Settings {
        header_timeout: millis("header_timeout", timeout)?,
        body_timeout: millis("body_timeout", timeout)?,
        write_timeout: millis("write_timeout", timeout)?,
        keep_alive: optional(ruby, hash, "keep_alive")?.unwrap_or(defaults.keep_alive),
        keep_alive_timeout: millis("keep_alive_timeout", defaults.keep_alive_timeout)?,
        idle_time_on_stop: millis("idle_time_on_stop", defaults.idle_time_on_stop)?,
        keep_alive_requests: optional(ruby, hash, "keep_alive_requests")?.unwrap_or(0),
        response_buffer: optional(ruby, hash, "response_buffer")?.unwrap_or(defaults.response_buffer),
        max_response_spool: optional(ruby, hash, "max_response_spool")?
            .unwrap_or(defaults.max_response_spool),
        max_queue_time: limit(optional(ruby, hash, "max_queue_time")?.unwrap_or(0.0)),
        max_body: optional(ruby, hash, "max_body")?,
        stream_body: optional(ruby, hash, "stream_body")?.unwrap_or(false),
        tmpdir: tmpdir.unwrap_or(defaults.tmpdir),
        decode_path: optional(ruby, hash, "decode_path")?.unwrap_or(false),
        listeners: optional(ruby, hash, "listeners")?.unwrap_or_default(),
        proxy_listener: optional(ruby, hash, "proxy_listener")?,
        limits: limits(ruby, hash, defaults.limits)?,
        access_log: access_log(ruby, hash)?,
        requests: request_settings(ruby, hash, dumper)?,
        orphan: orphan_settings(ruby, hash)?,
    })
}

fn orphan_settings(ruby: &Ruby, hash: RHash) -> Result<Option<OrphanSettings>, Error> {
    let time: Option<f64> = optional(ruby, hash, "orphan_time")?;
    let line: Option<String> = optional(ruby, hash, "orphan_line")?;
    Ok(time.zip(line).map(|(time, line)| OrphanSettings { time: limit(time), line }))
}

fn access_log(ruby: &Ruby, hash: RHash) -> Result<Option<AccessLogSettings>, Error> {
    let Some(fd) = optional(ruby, hash, "access_log")? else { return Ok(None) };
    let name: Option<String> = optional(ruby, hash, "access_log_format")?;
    let format = if name.as_deref() == Some("json") { LogFormat::Json } else { LogFormat::Combined };
    Ok(Some(AccessLogSettings { fd, format, worker: optional(ruby, hash, "nr")?.unwrap_or(0) }))
}

fn request_settings(
    ruby: &Ruby,
    hash: RHash,
    dumper: Arc<dyn ThreadDumper>,
) -> Result<RequestSettings, Error> {
    let seconds: Option<f64> = optional(ruby, hash, "request_timeout")?;
    let stuck: Option<f64> = optional(ruby, hash, "worker_timeout")?;
    let assigned: Option<(Obj<RubyScoreboard>, usize)> = optional(ruby, hash, "slot")?;
    let slot: Option<Slot> = assigned.and_then(|(board, index)| board.0.slot(index));
    let threads = optional(ruby, hash, "threads")?.unwrap_or(1);
    let streams = optional(ruby, hash, "streams")?.unwrap_or(0);
    let stream_seconds: Option<f64> = optional(ruby, hash, "stream_timeout")?;
    let (timeout, stuck) = (limit(seconds.unwrap_or(0.0)), limit(stuck.unwrap_or(0.0)));
    let stream_timeout = limit(stream_seconds.unwrap_or(0.0));
    let timings = optional(ruby, hash, "timings")?.unwrap_or(false);
    let slow: Option<f64> = optional(ruby, hash, "log_slow")?;
    let (log_slow, dumper) = (limit(slow.unwrap_or(0.0)), Some(dumper));
    Ok(RequestSettings { threads, streams, stream_timeout, timeout, stuck, timings, log_slow, slot, dumper })
}

/// Converts a limit from seconds to milliseconds. 0 is no limit; the smallest limit is 1 ms.
pub(super) fn limit(seconds: f64) -> u64 {
    match seconds {
        seconds if seconds > 0.0 => ((seconds * 1000.0) as u64).clamp(1, MAX_TIMEOUT),
        _ => 0,
    }
}

fn limits(ruby: &Ruby, hash: RHash, defaults: Limits) -> Result<Limits, Error> {
    let head = optional(ruby, hash, "max_head")?.unwrap_or(defaults.head);
    let target: usize = optional(ruby, hash, "max_target")?.unwrap_or(defaults.target);
    let fields = optional(ruby, hash, "max_fields")?.unwrap_or(defaults.fields);
    // A target is never longer than the whole head.
    Ok(Limits { target: target.min(head), head, fields })
}

fn required<T: TryConvert>(ruby: &Ruby, hash: RHash, key: &str) -> Result<T, Error> {
    let missing = || Error::new(ruby.exception_key_error(), format!("{key} is missing"));
    optional(ruby, hash, key)?.ok_or_else(missing)
}

/// The value of a Symbol key; None if the value is nil or missing.
pub(super) fn optional<T: TryConvert>(ruby: &Ruby, hash: RHash, key: &str) -> Result<Option<T>, Error> {
    let value: Option<Value> = hash.lookup(ruby.to_symbol(key))?;
    value.map(T::try_convert).transpose()
}
