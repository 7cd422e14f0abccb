//! Whatever an application names, the head has one empty line, at its end, and no stray CR, LF or NUL.

#![no_main]

use fastrack_http::{ResponseHead, DATE_LEN};
use libfuzzer_sys::fuzz_target;

const DATE: &[u8; DATE_LEN] = b"Sun, 06 Nov 1994 08:49:37 GMT";

fuzz_target!(|fields: Vec<(&[u8], &[u8])>| {
    let mut head = ResponseHead::default();
    head.start(200);
    for (name, value) in fields {
        let _ = head.field(name, value);
    }
    let mut out = Vec::new();
    head.write(DATE, fastrack_http::Persistence::Close, &mut out);
    assert_eq!(out.windows(4).position(|four| four == b"\r\n\r\n"), Some(out.len() - 4));
    assert!(!out.contains(&0));
    for line in out.split(|byte| *byte == b'\n') {
        let inner = line.strip_suffix(b"\r").unwrap_or(line);
        assert!(!inner.contains(&b'\r'));
    }
});
