//! The results, in numbers.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

use crate::gaps::{Gap, Served};
use crate::options::Kind;

/// Why a request got no good answer.
#[derive(Debug, Clone, Copy)]
pub enum Failure {
    /// No connection could be made.
    Connect,
    /// It broke off, or what came is no response.
    Read,
    /// Another status than 200.
    Status,
    /// Nothing came in time.
    Timeout,
}

/// One request that was answered.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Its ticket's number.
    pub number: u64,
    /// Its kind, by index.
    pub kind: usize,
    /// Whether its client connects anew for each request.
    pub reconnects: bool,
    /// How long its client had waited before it.
    pub pause: Duration,
    /// From its beginning (connecting included, where that was needed) to the last byte of its answer.
    pub latency: Duration,
    /// The app's own time, in microseconds, as the app says it.
    pub service_us: Option<u64>,
}

/// The requests that have ended.
#[derive(Debug, Default)]
pub struct Tally {
    samples: Vec<Sample>,
    /// Answers that came while requests were still begun.
    in_time: usize,
    /// Answers of batches that were under way when the last request was begun.
    in_part: usize,
    /// The clients that keep their connections, and those that connect anew for each request.
    kept: Served,
    new: Served,
    /// By kind, in the order of [`Failure`].
    failures: [u64; 4],
}

impl Tally {
    /// Notes an answer, and whether requests are still begun.
    pub fn add(&mut self, sample: Sample, in_time: bool) {
        self.samples.push(sample);
        self.in_time += usize::from(in_time);
    }

    /// Notes how many answers of unfinished batches have come in time.
    pub fn add_parts(&mut self, answers: usize) {
        self.in_part += answers;
    }

    /// Notes that there was none.
    pub fn fail(&mut self, failure: Failure) {
        self.failures[failure as usize] += 1;
    }

    /// Notes how long a client has gone without an answer.
    pub fn add_client(&mut self, reconnects: bool, gap: &Gap) {
        let group = if reconnects { &mut self.new } else { &mut self.kept };
        group.add(gap);
    }

    /// Adds what came out for other clients of the same run.
    pub fn append(&mut self, mut other: Self) {
        self.samples.append(&mut other.samples);
        self.in_time += other.in_time;
        self.in_part += other.in_part;
        self.kept = self.kept.plus(other.kept);
        self.new = self.new.plus(other.new);
        (0..4).for_each(|kind| self.failures[kind] += other.failures[kind]);
    }

    /// Writes a line for each answer, in the order of the tickets: number, kind, pause, latency and service
    /// time (`-` when the app said none), all times in microseconds.
    ///
    /// # Errors
    /// The errors of writing the file.
    pub fn write_trace(&self, path: &str) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        let mut samples: Vec<&Sample> = self.samples.iter().collect();
        samples.sort_by_key(|sample| sample.number);
        for sample in samples {
            let service = sample.service_us.map_or("-".into(), |us| us.to_string());
            let (pause, latency) = (sample.pause.as_micros(), sample.latency.as_micros());
            writeln!(file, "{} {} {pause} {latency} {service}", sample.number, sample.kind)?;
        }
        file.flush()
    }

    /// Everything as one line of JSON; `duration` is how long requests were begun. `kept` and `new` stand apart where clients connect anew for
    /// each request.
    pub fn json(&self, kinds: &[Kind], duration: Duration) -> String {
        let each: Vec<_> =
            kinds.iter().enumerate().map(|(kind, one)| self.kind_json(kind, &one.path)).collect();
        let all: Vec<&Sample> = self.samples.iter().collect();
        let [connect, read, status, timeout] = self.failures;
        format!(
            r#"{{"requests":{},"in_time":{},"in_part":{},"duration_us":{},{},{},"errors":{{"connect":{connect},"read":{read},"status":{status},"timeout":{timeout}}},"kinds":{{{}}}{}}}"#,
            all.len(),
            self.in_time,
            self.in_part,
            duration.as_micros().max(1),
            latencies(&all),
            self.kept.plus(self.new).json(),
            each.join(","),
            self.groups_json()
        )
    }

    fn groups_json(&self) -> String {
        if self.new.clients == 0 {
            return String::new();
        }
        let group = |name: &str, reconnects: bool, served: &Served| {
            let own = self.samples.iter().filter(|sample| sample.reconnects == reconnects);
            let own: Vec<&Sample> = own.collect();
            format!(r#","{name}":{{"requests":{},{},{}}}"#, own.len(), latencies(&own), served.json())
        };
        group("kept", false, &self.kept) + &group("new", true, &self.new)
    }

    fn kind_json(&self, kind: usize, path: &str) -> String {
        let samples: Vec<&Sample> = self.samples.iter().filter(|sample| sample.kind == kind).collect();
        let mut service: Vec<u64> = samples.iter().filter_map(|sample| sample.service_us).collect();
        service.sort_unstable();
        let mut json = format!(r#""{path}":{{"requests":{},{}"#, samples.len(), latencies(&samples));
        if !service.is_empty() {
            let mean = service.iter().sum::<u64>() / service.len() as u64;
            let median = percentile(&service, 50);
            let _ = write!(json, r#","service_mean_us":{mean},"service_p50_us":{median}"#);
        }
        json + "}"
    }
}

fn latencies(samples: &[&Sample]) -> String {
    let mut latencies: Vec<u64> = samples.iter().map(|sample| sample.latency.as_micros() as u64).collect();
    latencies.sort_unstable();
    format!(
        r#""p50_us":{},"p95_us":{},"p99_us":{},"max_us":{}"#,
        percentile(&latencies, 50),
        percentile(&latencies, 95),
        percentile(&latencies, 99),
        latencies.last().unwrap_or(&0)
    )
}

/// The nearest rank: the least value that so many per cent of the values do not exceed; 0 of none.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_nearest_rank() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!([50, 95, 99, 100].map(|percent| percentile(&hundred, percent)), [50, 95, 99, 100]);
        assert_eq!(percentile(&[7], 50), 7);
        assert_eq!(percentile(&[1, 2, 3], 50), 2);
        assert_eq!(percentile(&[], 99), 0);
    }

    #[test]
    fn tells_kinds_and_clients_apart_and_counts_failures() {
        let (mut one, mut other) = (Tally::default(), Tally::default());
        for (number, reconnects) in [(0, false), (1, true), (2, false)] {
            let latency = Duration::from_micros(10 * (number + 1));
            let service_us = (number != 2).then_some(number);
            let sample = Sample {
                number,
                kind: (number % 2) as usize,
                reconnects,
                pause: Duration::ZERO,
                latency,
                service_us,
            };
            if number == 2 { &mut other } else { &mut one }.add(sample, number < 2);
        }
        other.add_parts(5);
        other.fail(Failure::Status);
        one.add_client(false, &Gap::default());
        other.add_client(true, &Gap::default());
        one.append(other);
        let kinds = ["/a", "/b"].map(|path| Kind { path: path.into(), weight: 1 });
        let expected = concat!(
            r#"{"requests":3,"in_time":2,"in_part":5,"duration_us":9,"p50_us":20,"p95_us":30,"p99_us":30,"max_us":30,"#,
            r#""clients":2,"served_every_second":2,"longest_gap_us":0,"#,
            r#""errors":{"connect":0,"read":0,"status":1,"timeout":0},"kinds":{"#,
            r#""/a":{"requests":2,"p50_us":10,"p95_us":30,"p99_us":30,"max_us":30,"service_mean_us":0,"service_p50_us":0},"#,
            r#""/b":{"requests":1,"p50_us":20,"p95_us":20,"p99_us":20,"max_us":20,"service_mean_us":1,"service_p50_us":1}},"#,
            r#""kept":{"requests":2,"p50_us":10,"p95_us":30,"p99_us":30,"max_us":30,"clients":1,"served_every_second":1,"longest_gap_us":0},"#,
            r#""new":{"requests":1,"p50_us":20,"p95_us":20,"p99_us":20,"max_us":20,"clients":1,"served_every_second":1,"longest_gap_us":0}}"#
        );
        assert_eq!(one.json(&kinds, Duration::from_micros(9)), expected);
    }
}
