//! With any limits, a head is rejected, incomplete or complete. A prefix never contradicts the whole, and the spans of a
//! complete head are inside the head.

#![no_main]

use fastrack_http::{percent_decode, Error, Head, Limits, Status};
use libfuzzer_sys::fuzz_target;

const SMALL: Limits = Limits { target: 12, head: 60, fields: 3 };

fn parse(bytes: &[u8], limits: Limits) -> Result<(Status, Head), Error> {
    let mut head = Head::default();
    head.parse(bytes, limits).map(|status| (status, head))
}

fn check_parts(head: &Head, bytes: &[u8]) {
    let whole = &bytes[..head.len];
    assert!(whole.ends_with(b"\r\n\r\n"));
    assert!(!head.method.of_buffer(whole).is_empty());
    assert!(!head.path(whole).is_empty());
    let _ = percent_decode(head.path(whole), &mut Vec::new());
    for field in &head.fields {
        let (name, value) = (field.name.of_buffer(whole), field.value.of_buffer(whole));
        assert!(!name.is_empty());
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | b'\0')));
        assert_eq!(value, value.trim_ascii());
    }
}

fuzz_target!(|bytes: &[u8]| {
    for limits in [Limits::default(), SMALL] {
        let whole = parse(bytes, limits);
        if let Ok((Status::Complete, head)) = &whole {
            assert!(head.fields.len() <= limits.fields && head.len <= limits.head);
            check_parts(head, bytes);
        }
        for cut in 0..bytes.len() {
            let part = parse(&bytes[..cut], limits);
            match (&part, &whole) {
                (Ok((Status::Partial, _)), Ok((Status::Complete, head))) => assert!(cut < head.len),
                (Ok((Status::Partial, _)), _) => {}
                (Ok((Status::Complete, early)), Ok((Status::Complete, head))) => {
                    assert_eq!(early.len, head.len)
                }
                (Err(early), Err(error)) => {
                    assert_eq!(early.status(), error.status(), "{early} after {cut} bytes")
                }
                _ => panic!("{part:?} after {cut} bytes, {whole:?} in the end"),
            }
        }
    }
});
