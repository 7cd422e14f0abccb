//! A head is refused, unfinished or complete; what was complete stays so whatever follows, and its places lie in it.

#![no_main]

use fastrack_http::{percent_decode, Head, Limits, Status};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut head = Head::default();
    let Ok(Status::Complete) = head.parse(bytes, Limits::default()) else { return };
    assert!(head.len <= bytes.len());
    let whole = &bytes[..head.len];
    assert!(!head.method.of_buffer(whole).is_empty());
    assert!(!head.path(whole).is_empty());
    let _ = percent_decode(head.path(whole), &mut Vec::new());
    for field in &head.fields {
        assert!(!field.name.of_buffer(whole).is_empty());
        assert!(!field.value.of_buffer(whole).iter().any(|byte| matches!(byte, b'\r' | b'\n' | b'\0')));
    }

    // No prefix of it is an error or complete, or a slow client would be treated otherwise than a quick one.
    for cut in 0..head.len {
        assert_eq!(Head::default().parse(&bytes[..cut], Limits::default()), Ok(Status::Partial));
    }
});
