//! Talking to the master: it writes settings to standard input, a line each, and reads lines of a word and a text from standard output.

use std::io::{BufRead, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};

use serde::de::DeserializeOwned;

/// The master's word for the end. Signals are the master's: it has them ignored here.
const STOP: &str = "stop";

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

/// An error that ends the process, or changes nothing.
pub fn error(text: &str) {
    say("error", text);
}

fn say(kind: &str, text: &str) {
    let line = format!("{kind} {}\n", text.replace(['\n', '\r'], " "));
    // Without a reader the master is gone, and standard input ends, too.
    let _ = std::io::stdout().write_all(line.as_bytes()).and_then(|()| std::io::stdout().flush());
}

/// The next settings from standard input; None at its end, or when the process is to end.
pub fn next_settings<T: DeserializeOwned>() -> Option<Result<T, String>> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) if line.trim_end() == STOP => None,
        Ok(_) => {
            Some(serde_json::from_str(&line).map_err(|error| format!("the settings cannot be read: {error}")))
        }
    }
}

/// All further settings. The channel ends with the master.
pub fn all_settings<T: DeserializeOwned + Send + 'static>(
) -> std::io::Result<UnboundedReceiver<Result<T, String>>> {
    let (sender, receiver) = unbounded_channel();
    let read = move || {
        while let Some(settings) = next_settings() {
            if sender.send(settings).is_err() {
                break;
            }
        }
    };
    std::thread::Builder::new().name("settings".into()).stack_size(64 * 1024).spawn(read)?;
    Ok(receiver)
}
