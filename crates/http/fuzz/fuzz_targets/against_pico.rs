//! picohttpparser and this crate read heads and chunks alike, except where a rule makes this crate stricter.

#![no_main]

use fastrack_http::{ChunkedDecoder, Error, Head, Limits, Status};
use fastrack_http_fuzz::{lenient_chunks, pico_chunks, pico_head, PicoHead};
use libfuzzer_sys::fuzz_target;

fn check_same(head: &Head, bytes: &[u8], pico: &PicoHead) {
    assert_eq!(head.len, pico.len);
    assert_eq!(head.method.of_buffer(bytes), pico.method);
    // picohttpparser does not drop the fragment: fragment.
    let without_fragment = pico.target.split(|byte| *byte == b'#').next();
    assert_eq!(Some(head.target.of_buffer(bytes)), without_fragment);
    assert_eq!(head.fields.len(), pico.fields.len());
    for (field, (name, value)) in head.fields.iter().zip(&pico.fields) {
        assert_eq!(Some(field.name.of_buffer(bytes)), name.as_deref());
        // picohttpparser does not trim the end of a value: space-around-value.
        assert_eq!(field.value.of_buffer(bytes), value.trim_ascii_end());
    }
}

/// Whether a rule explains why this crate rejects a head that picohttpparser accepts.
fn is_explained(pico: &PicoHead, bytes: &[u8]) -> bool {
    let head = &bytes[..pico.len];
    let has_bare_lf = (0..head.len()).any(|at| head[at] == b'\n' && (at == 0 || head[at - 1] != b'\r'));
    let has_fold = pico.fields.iter().any(|(name, _)| name.is_none());
    let is_no_token = |byte: &u8| !byte.is_ascii_graphic() || b"\"(),/:;<=>?@[\\]{}".contains(byte);
    has_bare_lf // bare-lf
        || has_fold // obs-fold
        || pico.method.is_empty() || pico.method.iter().any(is_no_token) // method-form
        || pico.target.is_empty() // one-space
        || std::str::from_utf8(&pico.target).is_err() // target-bytes
        || !version_is_one_digit(head) // version-form
}

fn version_is_one_digit(head: &[u8]) -> bool {
    let line = head.trim_ascii_start().split(|byte| *byte == b'\r').next().unwrap_or_default();
    line.len() > 9 && matches!(&line[line.len() - 9..], [b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', _])
}

fn check_chunks(bytes: &[u8]) {
    let mut data = Vec::new();
    let decoded = ChunkedDecoder::default().decode(bytes, |run| {
        data.extend_from_slice(run);
        Ok::<_, Error>(())
    });
    let pico = pico_chunks(bytes);
    match (decoded, pico) {
        (Ok((Status::Complete, used)), Some((pico_data, rest))) => {
            assert_eq!((used, &data), (bytes.len() - rest, &pico_data));
        }
        // picohttpparser rejects sizes of more than 16 digits, even zeros.
        (Ok((Status::Complete, _)), None) => {
            let digits = bytes.split(|byte| !byte.is_ascii_hexdigit()).map(<[u8]>::len).max();
            assert!(digits > Some(16));
        }
        // chunk-size-form, chunk-extension-form, chunk-line-end, chunk-data-end, trailer-form
        (Err(Error::Chunk), Some((pico_data, _))) => assert_eq!(lenient_chunks(bytes, true), Some(pico_data)),
        _ => {}
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut head = Head::default();
    match (head.parse(bytes, Limits::default()), pico_head(bytes)) {
        (Ok(Status::Complete), Some(pico)) => {
            check_same(&head, bytes, &pico);
            check_chunks(&bytes[head.len..]);
        }
        (Ok(Status::Complete), None) => panic!("only we take it"),
        (Ok(Status::Partial), Some(_)) => panic!("only we wait for more"),
        (Err(Error::Syntax), Some(pico)) => assert!(is_explained(&pico, bytes)),
        // picohttpparser does not check for the other errors.
        _ => {}
    }
});
