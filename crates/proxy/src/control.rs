//! Messages between the master and this process. The master writes settings to standard input, one set a line. This process writes lines to
//! standard output, each with a word and a text.

use std::io::{BufRead, Write};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};

use serde::de::DeserializeOwned;

use crate::ending::End;
use crate::work::Counts;

/// The master's word for the end, with its times in JSON. Signals are the master's: it has them ignored here.
const END: &str = "end ";

/// The master's word for log files that were rotated.
const REOPEN: &str = "reopen";

/// The master's question whether the process still works.
const PING: &str = "ping";

/// Bytes of a line. The master reads no longer one than PIPE_BUF, pipe(7).
const LONGEST_LINE: usize = 4000;

/// An order of the master.
#[derive(Debug)]
pub enum Order<T> {
    /// New settings, or why they cannot be read.
    Settings(Result<T, String>),
    /// The process is to end.
    End(End),
    /// Log files are to be opened anew.
    Reopen,
    /// An answer is expected.
    Ping,
}

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

/// A warning for the log; the same one once in ten seconds: its cause may last.
pub fn warn(text: &str) {
    static LAST: Mutex<Option<(Instant, String)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !last.as_ref().is_some_and(|(at, before)| before == text && at.elapsed() < Duration::from_secs(10)) {
        say("warn", text);
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

/// The first settings from standard input; None at its end.
pub fn first_settings<T: DeserializeOwned>() -> Option<Result<T, String>> {
    match next_order()? {
        Order::Settings(settings) => Some(settings),
        Order::End(_) => None,
        Order::Reopen | Order::Ping => first_settings(),
    }
}

/// The next order; None at the end of standard input: the master has ended.
fn next_order<T: DeserializeOwned>() -> Option<Order<T>> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(order(line.trim_end())),
    }
}

fn order<T: DeserializeOwned>(line: &str) -> Order<T> {
    let unread = |error: serde_json::Error| format!("an order cannot be read: {error}");
    match line.strip_prefix(END) {
        Some(end) => {
            serde_json::from_str(end).map_or_else(|error| Order::Settings(Err(unread(error))), Order::End)
        }
        None if line == REOPEN => Order::Reopen,
        None if line == PING => Order::Ping,
        None => Order::Settings(serde_json::from_str(line).map_err(unread)),
    }
}

/// A channel of all further orders, which closes when the master has ended.
pub fn all_orders<T: DeserializeOwned + Send + 'static>() -> std::io::Result<UnboundedReceiver<Order<T>>> {
    let (sender, receiver) = unbounded_channel();
    let read = move || {
        while let Some(order) = next_order() {
            if sender.send(order).is_err() {
                break;
            }
        }
    };
    std::thread::Builder::new().name("orders".into()).stack_size(64 * 1024).spawn(read)?;
    Ok(receiver)
}
