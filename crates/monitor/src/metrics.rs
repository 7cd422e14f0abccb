//! A view as OpenMetrics.

use std::collections::HashSet;
use std::fmt::Error;
use std::sync::Arc;

use fastrack_engine::{Counts, Histogram, BUCKETS, FINE_BUCKETS};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{text, DescriptorEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::master::{ListenerInfo, ProxyState, ServerPhase};
use crate::process::Usage;
use crate::view::{states, View, Worker, STATUS_CLASSES};

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The older text format of Prometheus, for clients that accept only that format.
pub const PLAIN_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const WORKER_STATES: [&str; 6] = ["booting", "idle", "busy", "stopping", "lingering", "dead"];

/// The page that Prometheus scrapes.
pub fn page(view: Arc<View>) -> String {
    let mut registry = Registry::with_prefix("fastrack");
    registry.register_collector(Box::new(Page(view)));
    let mut page = String::new();
    // Writing to a String does not fail.
    let _ = text::encode(&mut page, &registry);
    page
}

/// Converts a page to the older text format. In that format the comments of a counter have the name of its series, and
/// the page has no end mark.
pub fn plain(page: &str) -> String {
    let counters: HashSet<_> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut plain = String::with_capacity(page.len() + 1024);
    for line in page.lines().filter(|line| *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(kind), Some(name), Some(rest)) if counters.contains(name) => {
                plain.extend(["# ", kind, " ", name, "_total ", rest]);
            }
            _ => plain.push_str(line),
        }
        plain.push('\n');
    }
    plain
}

#[derive(Debug)]
struct Page(Arc<View>);

impl Collector for Page {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), Error> {
        let mut writer = Writer(encoder);
        let view = &*self.0;
        server(&mut writer, view)?;
        requests(&mut writer, &view.counts)?;
        connections(&mut writer, &view.counts)?;
        workers(&mut writer, view)?;
        listeners(&mut writer, view)?;
        proxy(&mut writer, view)?;
        processes(&mut writer, view)
    }
}

/// The buckets of histograms.
struct Scale {
    bounds: [u64; BUCKETS.len()],
    /// Units of the bounds in a second.
    second: f64,
}

const MILLIS: Scale = Scale { bounds: BUCKETS, second: 1e3 };
const MICROS: Scale = Scale { bounds: FINE_BUCKETS, second: 1e6 };

impl Scale {
    /// Upper bounds of the buckets in seconds; the last one stands for no bound.
    fn bounds(&self) -> impl Iterator<Item = f64> + '_ {
        self.bounds.iter().map(|bound| *bound as f64 / self.second).chain([f64::MAX])
    }
}

type Labels = Vec<(&'static str, String)>;

struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels, f64)>,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in series {
            if labels.is_empty() {
                metric.encode_gauge(&value)?;
            } else {
                metric.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels, f64)>,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in series {
            if labels.is_empty() {
                metric.encode_counter::<Labels, f64, f64>(&value, None)?;
            } else {
                metric.encode_family(&labels)?.encode_counter::<Labels, f64, f64>(&value, None)?;
            }
        }
        Ok(())
    }
}

impl Writer<'_> {
    fn histograms<'h>(
        &mut self,
        name: &str,
        help: &str,
        scale: &Scale,
        series: impl IntoIterator<Item = (Labels, &'h Histogram)>,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, histogram) in series {
            let buckets: Vec<_> = scale.bounds().zip(histogram.buckets).collect();
            let (sum, count) = (histogram.sum as f64 / scale.second, histogram.count());
            if labels.is_empty() {
                metric.encode_histogram::<Labels>(sum, count, &buckets, None)?;
            } else {
                metric.encode_family(&labels)?.encode_histogram::<Labels>(sum, count, &buckets, None)?;
            }
        }
        Ok(())
    }
}

/// Escapes the value of a label, because the encoder does not.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn alone(value: f64) -> [(Labels, f64); 1] {
    [(Vec::new(), value)]
}

fn server(writer: &mut Writer, view: &View) -> Result<(), Error> {
    let version = vec![("version", escaped(&view.settings.version))];
    writer.gauges("build", "Always 1; the label has the version", [(version, 1.0)])?;
    let phases = ServerPhase::ALL.map(|phase| {
        let is = if phase == view.phase() { 1.0 } else { 0.0 };
        (vec![("phase", phase.name().to_owned())], is)
    });
    writer.gauges("phase", "1 for what the server is at", phases)?;
    writer.gauges(
        "generation",
        "1, and the rolling restarts (HUP, reforks)",
        alone(view.master.generation as f64),
    )?;
    let uptime = view.now - view.settings.started_at;
    writer.gauges("uptime_seconds", "Since the start of this master", alone(uptime))
}

/// The proxy's counters, by their names in crates/proxy/src/stats.rs.
fn proxy(writer: &mut Writer, view: &View) -> Result<(), Error> {
    let Some(ProxyState { counts, .. }) = &view.master.proxy else { return Ok(()) };
    let count = |name: &str| counts.get(name).and_then(serde_json::Value::as_f64);
    for (name, help) in [
        ("connections", "Clients that have connected to the proxy"),
        ("handshakes", "TLS handshakes that were completed"),
        ("resumed", "Those of them that resumed a session"),
        ("handshake_errors", "TLS handshakes that have failed"),
        ("requests", "Requests that the proxy got"),
        ("h2_requests", "Those of them that came by HTTP/2"),
        ("files", "Those of them that were answered with a file"),
        ("bad_gateway", "Those of them that got 502"),
        ("broken_uploads", "Those of them whose client left in its upload"),
        ("retried", "Those of them that were tried once more, because their worker died"),
        ("bytes_saved", "Bytes that compression has saved"),
    ] {
        writer.counters(&format!("proxy_{name}"), help, count(name).map(|value| (Vec::new(), value)))?;
    }
    let causes = ["worker_died", "no_worker", "bad_response", "shortage"];
    let failed = causes.map(|cause| Some((vec![("cause", cause.to_owned())], count(cause)?)));
    let help = "Requests that got 502 or, in a shortage, 503";
    writer.counters("proxy_failed_requests", help, failed.into_iter().flatten())?;
    for (name, key, help) in [
        ("proxy_open_connections", "open", "Clients that are connected to the proxy"),
        ("proxy_streams", "streams", "Responses that are streams, as of event sources"),
        ("proxy_tunnels", "tunnels", "Connections that have changed protocols, as WebSockets do"),
    ] {
        writer.gauges(name, help, count(key).map(|value| (Vec::new(), value)))?;
    }
    let end = count("certificate_not_after").map(|value| (Vec::new(), value));
    writer.gauges("proxy_certificate_end_seconds", "When the first certificate ends, since 1970", end)
}

fn requests(writer: &mut Writer, counts: &Counts) -> Result<(), Error> {
    let status = |class: &str| vec![("status", class.to_owned())];
    let responses = STATUS_CLASSES
        .into_iter()
        .zip(counts.responses())
        .map(|(class, count)| (status(class), count as f64));
    writer.counters(
        "requests",
        "Requests that the app got, by the class of their status; none: no response",
        responses,
    )?;
    let durations =
        STATUS_CLASSES.into_iter().zip(&counts.durations).map(|(class, one)| (status(class), one));
    writer.histograms("request_seconds", "Time in the app", &MILLIS, durations)?;
    writer.histograms(
        "queue_seconds",
        "Time that requests waited for the app",
        &MILLIS,
        [(Vec::new(), &counts.queue_times)],
    )?;
    for (name, help, histogram) in [
        ("app_seconds", "Time in the app, without waits for slow clients", &counts.app_times),
        ("gvl_wait_seconds", "Time that requests waited for Ruby's GVL", &counts.gvl_waits),
    ] {
        // Only with Timings.
        if histogram.count() > 0 {
            writer.histograms(name, help, &MICROS, [(Vec::new(), histogram)])?;
        }
    }
    for (name, help, count) in [
        ("timeouts", "Requests that exceeded RequestTimeout", counts.timed_out),
        (
            "refused_requests",
            "Requests that never reached the app: malformed, too large or late",
            counts.refused,
        ),
        (
            "overloaded_requests",
            "Those of them that had waited for longer than MaxQueueTime",
            counts.overloaded,
        ),
        ("dropped_requests", "Requests whose client had left before their turn", counts.dropped),
        ("aborted_responses", "Responses that were cut off", counts.aborted),
        ("access_log_lines", "Lines written to the access log", counts.log_lines),
        (
            "access_log_lines_dropped",
            "Lines that the access log did not take in time",
            counts.log_lines_dropped,
        ),
    ] {
        writer.counters(name, help, alone(count as f64))?;
    }
    let gc = [("in_requests", counts.gc_in_requests), ("outside", counts.gc_outside)];
    let gc = gc.map(|(place, nanos)| (vec![("place", place.to_owned())], nanos as f64 / 1e9));
    writer.counters("gc_seconds", "Time of the garbage collector, in requests and outside of them", gc)
}

fn connections(writer: &mut Writer, counts: &Counts) -> Result<(), Error> {
    let states =
        states(&counts.connections).map(|(state, count)| (vec![("state", state.to_owned())], count as f64));
    writer.gauges("connections", "Clients' connections, those in the shared queue included", states)?;
    for (name, help, count) in [
        ("connections_accepted", "Connections accepted", counts.accepted),
        (
            "connections_handed_over",
            "Connections that a busy worker has put into the shared queue",
            counts.handed_over,
        ),
        ("connections_taken_over", "Connections that a worker has taken from it", counts.taken_over),
        ("connections_hijacked", "Connections that the app has taken over", counts.hijacked),
        ("streams_begun", "Responses that have become streams", counts.streams),
        ("received_bytes", "Bytes received from clients", counts.bytes_in),
        ("sent_bytes", "Bytes sent to clients", counts.bytes_out),
    ] {
        writer.counters(name, help, alone(count as f64))?;
    }
    Ok(())
}

fn workers(writer: &mut Writer, view: &View) -> Result<(), Error> {
    writer.gauges("workers_wanted", "How many workers there should be", alone(view.master.wanted as f64))?;
    let states = WORKER_STATES.map(|state| {
        let count = view.workers.iter().filter(|worker| worker.state() == state).count();
        (vec![("state", state.to_owned())], count as f64)
    });
    writer.gauges("workers", "Workers by what they do", states)?;
    let oldest = view.workers.iter().filter_map(|worker| Some(worker.request(view.now)?.1));
    let oldest = oldest.fold(0.0, f64::max);
    writer.gauges(
        "oldest_request_seconds",
        "How long the oldest request in the app has lasted",
        alone(oldest),
    )?;
    let restarts =
        view.restarts.iter().map(|(cause, count)| (vec![("cause", cause.name().to_owned())], *count as f64));
    writer.counters("worker_restarts", "Workers that were replaced, by cause", restarts)?;
    let series = |value: fn(&Worker) -> Option<u64>| {
        let found = named(view)
            .filter_map(move |(name, worker)| Some((vec![("process", name)], value(worker)? as f64)));
        found.collect::<Vec<_>>()
    };
    writer.gauges("worker_streams", "Streams of this worker", series(|worker| worker.streams))?;
    let own = series(|worker| Some(worker.entry.as_ref()?.requests));
    writer.gauges("worker_requests", "Requests of this worker, which began at 0", own)?;
    let all = series(|worker| worker.slot_requests);
    writer.counters(
        "slot_requests",
        "Requests of this worker and of those that had its number before it",
        all,
    )?;
    let mold = view.master.mold;
    let generation = mold.map_or(0, |mold| mold.generation);
    writer.gauges(
        "mold_generation",
        "That of the worker that workers are forked from; 0: none",
        alone(generation as f64),
    )?;
    let requests = mold.map_or(0, |mold| mold.requests);
    writer.gauges("mold_requests", "How many requests it had answered", alone(requests as f64))
}

/// The newest worker of each number. While one worker replaces another, the newer one comes later in the view.
fn named(view: &View) -> impl Iterator<Item = (String, &Worker)> {
    let newer = |nr, at: usize| view.workers[at + 1..].iter().any(|other| other.master.nr == nr);
    let newest = view.workers.iter().enumerate().filter(move |(at, worker)| !newer(worker.master.nr, *at));
    newest.map(|(_, worker)| (format!("worker[{}]", worker.master.nr), worker))
}

fn listeners(writer: &mut Writer, view: &View) -> Result<(), Error> {
    let series = |value: fn(&(ListenerInfo, Option<u32>)) -> Option<u32>| {
        let found = view.listeners.iter().filter_map(move |listener| {
            Some((vec![("listener", escaped(&listener.0.name))], f64::from(value(listener)?)))
        });
        found.collect::<Vec<_>>()
    };
    let lengths = series(|(_, backlog)| *backlog);
    writer.gauges("listen_backlog", "Connections that no worker has accepted yet", lengths)?;
    let limits = series(|(info, _)| info.limit);
    writer.gauges("listen_backlog_limit", "How many the kernel lets wait at a TCP listener", limits)?;
    let overflows = view.overflows.map(|count| (Vec::new(), count as f64));
    writer.counters(
        "listen_overflows",
        "Connections that found a full backlog, of any server in this network namespace",
        overflows,
    )
}

fn processes(writer: &mut Writer, view: &View) -> Result<(), Error> {
    let master = view.usage.map(|usage| ("master".to_owned(), usage));
    let mold = view.mold.map(|usage| ("mold".to_owned(), usage));
    let first = view.first.map(|usage| ("generation_0".to_owned(), usage));
    let proxy = view.proxy.map(|usage| ("proxy".to_owned(), usage));
    let workers = named(view).filter_map(|(name, worker)| Some((name, worker.usage?)));
    let all: Vec<(String, Usage)> =
        master.into_iter().chain(mold).chain(first).chain(proxy).chain(workers).collect();
    let series = |value: fn(&Usage) -> Option<f64>| {
        let found = all
            .iter()
            .filter_map(move |(name, usage)| Some((vec![("process", name.clone())], value(usage)?)));
        found.collect::<Vec<_>>()
    };
    writer.gauges("resident_memory_bytes", "RSS", series(|usage| Some(usage.resident as f64)))?;
    let proportional = series(|usage| Some(usage.memory?.proportional as f64));
    writer.gauges("proportional_memory_bytes", "PSS: shared memory counts by its share", proportional)?;
    writer.gauges(
        "private_memory_bytes",
        "Memory that no other process has",
        series(|usage| Some(usage.memory?.private as f64)),
    )?;
    writer.counters("cpu_seconds", "CPU time, user and system", series(|usage| Some(usage.cpu_seconds)))?;
    let own = view.own_cpu_seconds.map(|seconds| (Vec::new(), seconds));
    writer.counters("monitor_cpu_seconds", "CPU time of the monitor, which is part of the master's", own)
}
