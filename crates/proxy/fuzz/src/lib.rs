//! Shared by the targets.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

/// The fields of lines of a name, a colon and a value. Lines that are none are left out, as hyper refuses them.
pub fn fields<'a>(lines: impl Iterator<Item = &'a [u8]>) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(line[colon + 1..].trim_ascii()));
        if let (Ok(name), Ok(value)) = (name, value) {
            fields.append(name, value);
        }
    }
    fields
}
