//! With any fields of an application, a response head has one empty line, at its end, no stray CR, LF or NUL, and does not
//! depend on earlier responses.

#![no_main]

use fastrack_http::{Date, FieldError, Persistence, ResponseHead};
use libfuzzer_sys::fuzz_target;

const DATE: &Date = b"Sun, 06 Nov 1994 08:49:37 GMT";

/// The head of a response with these fields, and the result for each field.
fn encode(
    head: &mut ResponseHead,
    code: u16,
    fields: &[(&[u8], &[u8])],
) -> (Vec<u8>, Vec<Result<(), FieldError>>) {
    head.start(code);
    let said = fields.iter().map(|(name, value)| head.field(name, value)).collect();
    let mut out = Vec::new();
    head.write(DATE, Persistence::Close, &mut out);
    (out, said)
}

fuzz_target!(|responses: Vec<Vec<(&[u8], &[u8])>>| {
    let mut kept = ResponseHead::default();
    for fields in &responses {
        // The second time, a 200 or 304 can reuse all lines, and a 204 none.
        for code in [200, [200, 204, 304][fields.len() % 3]] {
            let encoded = encode(&mut kept, code, fields);
            assert_eq!(encoded, encode(&mut ResponseHead::default(), code, fields));
            let out = encoded.0;
            assert_eq!(out.windows(4).position(|four| four == b"\r\n\r\n"), Some(out.len() - 4));
            assert!(!out.contains(&0));
            for line in out.split(|byte| *byte == b'\n') {
                let inner = line.strip_suffix(b"\r").unwrap_or(line);
                assert!(!inner.contains(&b'\r'));
            }
        }
    }
});
