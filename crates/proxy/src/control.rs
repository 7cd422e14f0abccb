//! Messages between the master and this process. The master writes settings to standard input, one set a line. This process writes lines to
//! standard output, each with a word and a text.

use std::io::{BufRead, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};

use serde::de::DeserializeOwned;

/// The master's word for the end. Signals are the master's: it has them ignored here.
const STOP: &str = "stop";

/// The master's word for log files that were rotated.
const REOPEN: &str = "reopen";

/// Bytes of a line. The master reads no longer one than PIPE_BUF, pipe(7).
const LONGEST_LINE: usize = 4000;

/// An order of the master.
#[derive(Debug)]
pub enum Order<T> {
    /// New settings, or why they cannot be read.
    Settings(Result<T, String>),
    /// Log files are to be opened anew.
    Reopen,
}

/// Says that clients are accepted.
pub fn ready() {
    say("ready", "");
}

/// Says what the process counts.
pub fn stats(json: &serde_json::Value) {
    say("stats", &json.to_string());
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

fn say(kind: &str, text: &str) {
    let mut line = format!("{kind} {}", text.replace(['\n', '\r'], " "));
    line.truncate(
        (0..=LONGEST_LINE.min(line.len())).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0),
    );
    line.push('\n');
    // Without a reader the master is gone, and standard input ends, too.
    let _ = std::io::stdout().write_all(line.as_bytes()).and_then(|()| std::io::stdout().flush());
}

/// The first settings from standard input; None at its end.
pub fn first_settings<T: DeserializeOwned>() -> Option<Result<T, String>> {
    match next_order()? {
        Order::Settings(settings) => Some(settings),
        Order::Reopen => first_settings(),
    }
}

/// The next order; None at the end of standard input, or when the process is to end.
fn next_order<T: DeserializeOwned>() -> Option<Order<T>> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => match line.trim_end() {
            STOP => None,
            REOPEN => Some(Order::Reopen),
            text => Some(Order::Settings(
                serde_json::from_str(text).map_err(|error| format!("the settings cannot be read: {error}")),
            )),
        },
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
