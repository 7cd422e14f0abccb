//! A view as JSON.

use std::collections::BTreeMap;

use fastrack_engine::{Connections, Counts, Histogram, BUCKETS};
use serde_json::{json, Value};

use crate::master::{MoldState, Order, ProxyState};
use crate::process::Usage;
use crate::view::{states, View, Worker, STATUS_CLASSES};

/// For `/status.json`, the page and `fastrack status`.
pub fn json(view: &View) -> Value {
    let listeners = view
        .listeners
        .iter()
        .map(|(info, backlog)| json!({ "address": info.name, "backlog": backlog, "limit": info.limit }));
    let exits = view.exits.iter().map(|exit| {
        json!({ "worker": exit.nr, "pid": exit.pid, "cause": exit.cause, "text": exit.text, "at": exit.at })
    });
    json!({
        "server": "fastrack",
        "version": view.settings.version,
        "ruby": view.settings.ruby,
        "host": view.settings.host,
        "pid": std::process::id(),
        "phase": view.phase().name(),
        "serves": view.serves(),
        "generation": view.master.generation,
        "uptime": rounded(view.now - view.settings.started_at),
        "now": view.now,
        "threads": view.settings.threads,
        "requests": view.counts.requests(),
        "responses": responses(&view.counts),
        "request_time": histogram(&all_durations(&view.counts)),
        "queue_time": histogram(&view.counts.queue_times),
        "timed_out": view.counts.timed_out,
        "refused": view.counts.refused,
        "overloaded": view.counts.overloaded,
        "dropped": view.counts.dropped,
        "aborted": view.counts.aborted,
        "handed_over": view.counts.handed_over,
        "streams": view.counts.connections.streaming,
        "streams_begun": view.counts.streams,
        "connections": connections(&view.counts.connections),
        "workers_wanted": view.master.wanted,
        "workers_ready": view.ready(),
        "stop_seconds": view.master.stop_seconds,
        "other_master": view.master.other_master,
        "orders": view.master.orders.iter().map(order).collect::<Vec<_>>(),
        "listeners": listeners.collect::<Vec<_>>(),
        "listen_overflows": view.overflows,
        "proxy": view.master.proxy.as_ref().map(|one| proxy(one, view.proxy)),
        "master": usage(view.usage),
        "mold": view.master.mold.map(|one| mold(one, view.mold)),
        "generation_0": view.master.first.map(|one| mold(one, view.first)),
        "refork_saving": view.master.refork_saving,
        "workers": view.workers.iter().map(|one| worker(one, view.now)).collect::<Vec<_>>(),
        "restarts": view.restarts.iter().map(|(cause, count)| (cause.name(), *count)).collect::<BTreeMap<_, _>>(),
        "last_exits": exits.collect::<Vec<_>>(),
        "monitor": { "cpu_seconds": view.own_cpu_seconds },
    })
}

fn order(order: &Order) -> Value {
    json!({ "number": order.number, "signal": order.signal, "state": order.state, "reason": order.reason, "pid": order.pid })
}

/// What the proxy counts, and its process.
fn proxy(proxy: &ProxyState, used: Option<Usage>) -> Value {
    let process = with(usage(used), json!({ "pid": proxy.pid, "state": proxy.state }));
    with(json!(proxy.counts), process)
}

fn mold(mold: MoldState, used: Option<Usage>) -> Value {
    with(usage(used), json!({ "pid": mold.pid, "generation": mold.generation, "requests": mold.requests }))
}

fn worker(worker: &Worker, now: f64) -> Value {
    let request = worker.request(now);
    let more = json!({
        "nr": worker.master.nr,
        "pid": worker.master.pid,
        "generation": worker.master.generation,
        "state": worker.state(),
        "uptime": rounded(now - worker.master.spawned_at),
        "requests": worker.entry.as_ref().map(|entry| entry.requests),
        "slot_requests": worker.slot_requests,
        "busy_seconds": worker.busy.map(|millis| millis as f64 / 1000.0),
        "in_app": worker.in_app,
        "waiting": worker.waiting,
        "streams": worker.streams,
        "request": request.as_ref().map(|(text, _)| text),
        "request_seconds": request.as_ref().map(|(_, seconds)| rounded(*seconds)),
    });
    with(usage(worker.usage), more)
}

/// Merges two objects.
fn with(mut value: Value, more: Value) -> Value {
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}

/// The durations of all status classes together.
fn all_durations(counts: &Counts) -> Histogram {
    let mut all = Histogram::default();
    counts.durations.iter().for_each(|one| all.add(one));
    all
}

fn responses(counts: &Counts) -> Value {
    STATUS_CLASSES
        .into_iter()
        .zip(counts.responses())
        .map(|(class, count)| (class.to_owned(), Value::from(count)))
        .collect()
}

/// Each bucket has its upper bound in seconds (None for the last one) and the cumulative count.
fn histogram(histogram: &Histogram) -> Value {
    let bounds = BUCKETS.into_iter().map(|millis| Some(millis as f64 / 1000.0)).chain([None]);
    let counts = histogram.buckets.iter().scan(0, |up_to, count| {
        *up_to += count;
        Some(*up_to)
    });
    let buckets: Vec<_> = bounds.zip(counts).collect();
    json!({ "sum": histogram.sum as f64 / 1000.0, "count": histogram.count(), "buckets": buckets })
}

fn connections(connections: &Connections) -> Value {
    states(connections).into_iter().map(|(state, count)| (state.to_owned(), Value::from(count))).collect()
}

fn usage(usage: Option<Usage>) -> Value {
    let memory = usage.and_then(|usage| usage.memory);
    json!({
        "cpu_seconds": usage.map(|usage| usage.cpu_seconds),
        "rss": usage.map(|usage| usage.resident),
        "pss": memory.map(|memory| memory.proportional),
        "private": memory.map(|memory| memory.private),
    })
}

/// Rounds to milliseconds.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}
