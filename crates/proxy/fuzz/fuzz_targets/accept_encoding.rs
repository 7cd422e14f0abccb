//! A client gets no coding that it has not named, or has refused.

#![no_main]

use fastrack_proxy::compress::{Accepted, Coding};
use hyper::header::{HeaderMap, HeaderValue, ACCEPT_ENCODING};
use libfuzzer_sys::fuzz_target;

// Each line is a field.
fuzz_target!(|bytes: &[u8]| {
    let mut fields = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            fields.append(ACCEPT_ENCODING, value);
        }
    }
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let codings: Vec<Coding> = Accepted::of(&fields).codings().collect();
    for (index, coding) in codings.iter().enumerate() {
        assert!(!codings[..index].contains(coding));
        assert!(text.contains(coding.name()) || text.contains('*'), "{coding:?}");
    }
    // A refusal of all counts for each, in a field that is well-formed.
    let mut refused = HeaderMap::new();
    refused.append(ACCEPT_ENCODING, HeaderValue::from_static("zstd;q=0, br;q=0.000, gzip;q=0"));
    refused.append(ACCEPT_ENCODING, HeaderValue::from_static("*"));
    assert_eq!(Accepted::of(&refused).codings().count(), 0);
});
