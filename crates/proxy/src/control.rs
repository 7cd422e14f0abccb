//! Lines for the master, on standard output, each with a word and a text.

use std::io::Write;
use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::work::Counts;

/// Bytes of a line. The master reads no longer one than PIPE_BUF, pipe(7).
const LONGEST_LINE: usize = 4000;

/// Lines that may wait for a master that does not read; beyond, lines are dropped.
const MOST_WAITING: usize = 1024;

/// How long the last lines may take when the process ends.
const LAST_TIME: Duration = Duration::from_secs(1);

/// Says that clients are accepted.
pub fn ready() {
    say("ready", "");
}

/// Gives a sign of life.
pub fn pong() {
    say("pong", "");
}

/// Says that new settings count.
pub fn applied(number: u64) {
    say("applied", &number.to_string());
}

/// Says why new settings do not count.
pub fn refused(number: u64, text: &str) {
    say("refused", &format!("{number} {text}"));
}

/// Says that the certificates of this reading of the master's are in use.
pub fn loaded(number: u64) {
    say("loaded", &number.to_string());
}

/// Says what the process counts.
pub fn stats(json: &serde_json::Value) {
    say("stats", &json.to_string());
}

/// Says that only streams and tunnels are left.
pub fn lingering(left: Counts) {
    say("lingering", &format!("{} {}", left.streams, left.tunnels));
}

/// A line for the log.
pub fn inform(text: &str) {
    say("info", text);
}

/// A warning for the log; the same one once in ten seconds: its cause may last, or be that of several listeners.
pub fn warn(text: &str) {
    say_seldom("warn", text);
}

/// As [`inform`], the same line once in ten seconds.
pub fn inform_seldom(text: &str) {
    say_seldom("info", text);
}

fn say_seldom(kind: &str, text: &str) {
    static LAST: Mutex<Option<(Instant, String)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !last.as_ref().is_some_and(|(at, before)| before == text && at.elapsed() < Duration::from_secs(10)) {
        say(kind, text);
        *last = Some((Instant::now(), text.to_owned()));
    }
}

/// Logs an error that ends the process, or that leaves everything as it was.
pub fn error(text: &str) {
    say("error", text);
}

/// Returns when all lines are written, or time is over.
pub fn finish() {
    let (done, is_done) = sync_channel(1);
    if writer().is_some_and(|lines| lines.try_send(Line::Tell(done)).is_ok()) {
        let _ = is_done.recv_timeout(LAST_TIME);
    }
}

/// What the thread that writes gets.
enum Line {
    Write(String),
    Tell(SyncSender<()>),
}

/// Hands a line to the thread that writes: clients never wait for a master that does not read. The line is dropped if too many wait.
fn say(kind: &str, text: &str) {
    let mut line = format!("{kind} {}", text.replace(['\n', '\r'], " "));
    line.truncate(
        (0..=LONGEST_LINE.min(line.len())).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0),
    );
    line.push('\n');
    match writer() {
        Some(lines) => drop(lines.try_send(Line::Write(line))),
        None => write(&line),
    }
}

/// The thread that writes; None if the system has no thread for it.
fn writer() -> Option<&'static SyncSender<Line>> {
    static WRITER: OnceLock<Option<SyncSender<Line>>> = OnceLock::new();
    let start = || {
        let (lines, waiting) = sync_channel::<Line>(MOST_WAITING);
        let run = move || {
            for line in waiting {
                match line {
                    Line::Write(line) => write(&line),
                    Line::Tell(done) => drop(done.send(())),
                }
            }
        };
        std::thread::Builder::new().name("lines".into()).stack_size(64 * 1024).spawn(run).ok().map(|_| lines)
    };
    WRITER.get_or_init(start).as_ref()
}

fn write(line: &str) {
    // Without a reader the master is gone, and standard input ends, too.
    let _ = std::io::stdout().write_all(line.as_bytes()).and_then(|()| std::io::stdout().flush());
}
