//! The Server-Timing field of a response (W3C Server Timing): where the time has gone until the response's head was made.

use std::io::Write;

use fastrack_engine::Timings;

/// The end of a head.
const END: &[u8] = b"\r\n";

/// Adds the field to an encoded head, in milliseconds.
#[cold]
pub(super) fn add(encoded: &mut Vec<u8>, timings: Option<Timings>) {
    let Some(timings) = timings else { return };
    encoded.truncate(encoded.len() - END.len());
    encoded.extend_from_slice(b"Server-Timing: ");
    for (name, micros) in timings.named() {
        // No response has been sent before its head was made.
        if name != "send" {
            let comma = if name == "queue" { "" } else { ", " };
            // Writing to memory does not fail.
            let _ = write!(encoded, "{comma}{name};dur={}.{:03}", micros / 1000, micros % 1000);
        }
    }
    encoded.extend_from_slice(END);
    encoded.extend_from_slice(END);
}
