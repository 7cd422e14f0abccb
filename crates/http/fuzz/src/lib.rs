//! Shared by the differential targets: this crate's parser, and other parsers for comparison.
//!
//! If two parsers differ, the reason must be a rule of the table (`fastrack_http::rules`). Each target names the rule.

mod hyper_reader;
mod ours;
mod pico;

pub use hyper_reader::{hyper, is_no_uri};
pub use ours::{ours, Refusal};
pub use pico::{pico_chunks, pico_head, PicoHead};

/// A request as a parser understood it.
#[derive(Debug, PartialEq, Eq)]
pub struct Reading {
    pub method: Vec<u8>,
    pub path: Vec<u8>,
    pub query: Vec<u8>,
    pub minor_version: u8,
    /// Names in lower case, with their values, sorted by name. Values of one name stay in order.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub body: Vec<u8>,
}

impl Reading {
    fn sort(mut self) -> Self {
        self.fields.sort_by(|one, other| one.0.cmp(&other.0));
        self
    }
}

/// The data of a chunked body by a lenient parser. The parser reads the hexadecimal digits at the start of a size line,
/// and ignores the remaining line and the trailers. The rules `chunk-size-form`, `chunk-extension-form` and
/// `trailer-form` reject such bodies. With `lone_lf`, LF alone ends a line, which `chunk-line-end` and `chunk-data-end`
/// reject. None if the lenient parser fails too.
pub fn lenient_chunks(mut bytes: &[u8], lone_lf: bool) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    loop {
        let end = bytes
            .iter()
            .enumerate()
            .position(|(at, byte)| *byte == b'\n' && (lone_lf || bytes[..at].ends_with(b"\r")))?;
        let digits = bytes.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..digits]).ok()?, 16).ok()?;
        bytes = &bytes[end + 1..];
        if size == 0 {
            return Some(data);
        }
        data.extend_from_slice(bytes.get(..size)?);
        bytes = &bytes[size..];
        if lone_lf {
            let crs = bytes.iter().take_while(|byte| **byte == b'\r').count();
            bytes = bytes[crs..].strip_prefix(b"\n")?;
        } else {
            bytes = bytes.strip_prefix(b"\r\n")?;
        }
    }
}
