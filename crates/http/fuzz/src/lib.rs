//! What the differential targets share: our reading of a request, and readers to hold it against.
//!
//! Where two readers differ, the reason must be a rule of the table (`fastrack_http::rules`); each target names it.

mod hyper_reader;
mod ours;
mod pico;

pub use hyper_reader::{hyper, is_no_uri};
pub use ours::{ours, Refusal};
pub use pico::{pico_chunks, pico_head, PicoHead};

/// A request as some reader understood it.
#[derive(Debug, PartialEq, Eq)]
pub struct Reading {
    pub method: Vec<u8>,
    pub path: Vec<u8>,
    pub query: Vec<u8>,
    pub minor_version: u8,
    /// Names in lower case, and values; sorted by name, so that fields of one name keep their order.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub body: Vec<u8>,
}

impl Reading {
    fn sort(mut self) -> Self {
        self.fields.sort_by(|one, other| one.0.cmp(&other.0));
        self
    }
}

/// The data of a chunked body for a reader who looks at nothing but the hexadecimal digits that a size line begins
/// with, and passes over the rest of it and over trailers: what lenient readers make of what we refuse by
/// `chunk-size-form`, `chunk-extension-form` and `trailer-form`. With `lone_lf`, a line ends with LF whatever stands
/// before it, as we refuse by `chunk-line-end` and `chunk-data-end`. None when not even that works.
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
