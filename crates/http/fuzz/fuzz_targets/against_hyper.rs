//! hyper's server and this crate read a request and its body alike, except where a rule makes this crate stricter.

#![no_main]

use fastrack_http::Error;
use fastrack_http_fuzz::{hyper, lenient_chunks, ours, Reading, Refusal};
use libfuzzer_sys::fuzz_target;

fn values<'a>(reading: &'a Reading, name: &str) -> Vec<&'a [u8]> {
    let named = reading.fields.iter().filter(|field| field.0 == name.as_bytes());
    named.map(|field| &field.1[..]).collect()
}

/// Whether a rule explains why this crate rejects a request that hyper accepts.
fn is_explained(error: Error, theirs: &Reading, bytes: &[u8]) -> bool {
    let lengths = values(theirs, "content-length");
    let codings = values(theirs, "transfer-encoding");
    match error {
        // bare-lf, empty-line-first
        Error::Syntax => {
            bytes.starts_with(b"\r\n\r\n")
                || bytes.windows(2).any(|two| two[1] == b'\n' && two[0] != b'\r')
                || bytes[0] == b'\n'
        }
        // host-missing, host-repeated, host-form: hyper leaves Host to its user.
        Error::Host => values(theirs, "host") != [b"a"],
        // absolute-form-bad, authority-form, asterisk-form, target-form
        Error::Target => {
            let line = bytes.trim_ascii_start();
            !line[theirs.method.len() + 1..].starts_with(b"/")
        }
        // expectation-other
        Error::Expectation => {
            values(theirs, "expect").iter().any(|value| !value.eq_ignore_ascii_case(b"100-continue"))
        }
        // method-length, connect, coding-before
        Error::NotImplemented => {
            theirs.method.len() > 32
                || theirs.method == b"CONNECT"
                || codings.iter().any(|coding| coding.contains(&b','))
        }
        // length-form, length-repeated, length-and-chunked, coding-repeated, coding-last. hyper merges two equal lengths,
        // and drops a length beside a coding, so this counts the fields in the bytes.
        Error::Framing => {
            let head = bytes.to_ascii_lowercase();
            let sent = |name: &[u8]| head.windows(name.len()).filter(|word| *word == name).count();
            sent(b"content-length:") + sent(b"transfer-encoding:") > 1
                || lengths.iter().chain(&codings).any(|value| value.contains(&b','))
        }
        // chunk-size-form, chunk-extension-form, trailer-form
        Error::Chunk => {
            let body = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
            lenient_chunks(&bytes[body..], false).as_ref() == Some(&theirs.body)
        }
        // limit-fields, limit-name, limit-chunks
        Error::HeadTooLarge => bytes.len() > 1024,
        _ => false,
    }
}

/// Whether hyper is the stricter parser.
fn is_stricter(mine: &Reading, bytes: &[u8]) -> bool {
    // hyper's URIs allow only some ASCII characters: target-bytes, percent.
    let line = bytes.trim_ascii_start();
    let target = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let version = line.split(|byte| *byte == b'\r').next().and_then(|line| line.last());
    let ends_in_comma = |value: &&[u8]| value.trim_ascii_end().ends_with(b",");
    fastrack_http_fuzz::is_no_uri(target)
        || mine.path.len() > 60_000
        // version-minor
        || version.is_some_and(|minor| *minor > b'1')
        // coding-empty: hyper looks only at the text after the last comma.
        || values(mine, "transfer-encoding").iter().any(ends_in_comma)
}

fuzz_target!(|bytes: &[u8]| {
    match (ours(bytes), hyper(bytes)) {
        (Ok(mine), Some(theirs)) => assert_eq!(mine, theirs),
        (Ok(mine), None) => assert!(is_stricter(&mine, bytes), "only we take {mine:?}"),
        (Err(Refusal::Unfinished), Some(theirs)) => panic!("only we wait for more: {theirs:?}"),
        (Err(Refusal::Error(error)), Some(theirs)) => {
            assert!(is_explained(error, &theirs, bytes), "{error}: only hyper takes {theirs:?}");
        }
        (Err(_), None) => {}
    }
});
