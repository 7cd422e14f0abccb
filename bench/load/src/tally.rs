//! The results.

use std::io::{self, Write};
use std::time::Duration;

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
    pub samples: Vec<Sample>,
    /// Answers that came while requests were still begun.
    pub in_time: usize,
    /// Answers of batches that were under way when the last request was begun.
    pub in_part: usize,
    /// By kind, in the order of [`Failure`].
    pub failures: [u64; 4],
    /// For each client the longest time in microseconds that it went without an answer while it was asking, less what the app took. A
    /// client that sits in the accept queue has no latency, and shows here. First the clients that keep their connections.
    pub waits_us: [Vec<u128>; 2],
}

impl Tally {
    /// Adds the results of other clients of the same run.
    pub fn append(&mut self, mut other: Self) {
        self.samples.append(&mut other.samples);
        self.in_time += other.in_time;
        self.in_part += other.in_part;
        (0..4).for_each(|kind| self.failures[kind] += other.failures[kind]);
        (0..2).for_each(|group| self.waits_us[group].append(&mut other.waits_us[group]));
    }

    /// Writes a line of JSON; `duration` is how long requests were begun. Then, for each answer in the order of the tickets, five
    /// numbers of four bytes, the low one first: kind, 1 for a client that connects anew, and pause, latency and service time in
    /// microseconds (the largest number when the app said none).
    ///
    /// # Errors
    /// The errors of the output.
    pub fn write(mut self, duration: Duration, output: &mut impl Write) -> io::Result<()> {
        let (duration, in_time, in_part) = (duration.as_micros().max(1), self.in_time, self.in_part);
        let ([connect, read, status, timeout], waits) = (self.failures, &self.waits_us);
        writeln!(
            output,
            r#"{{"duration_us":{duration},"in_time":{in_time},"in_part":{in_part},"waits_us":{waits:?},"errors":{{"connect":{connect},"read":{read},"status":{status},"timeout":{timeout}}}}}"#
        )?;
        self.samples.sort_by_key(|sample| sample.number);
        for sample in &self.samples {
            let (pause, latency) = (sample.pause.as_micros() as u32, sample.latency.as_micros() as u32);
            let service = sample.service_us.map_or(u32::MAX, |us| us as u32);
            for number in [sample.kind as u32, u32::from(sample.reconnects), pause, latency, service] {
                output.write_all(&number.to_le_bytes())?;
            }
        }
        output.flush()
    }
}
