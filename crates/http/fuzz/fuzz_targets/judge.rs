//! The judge finds the same requests however their bytes are cut, and the same ends as the parsers that it is made of.

#![no_main]

use fastrack_http::{Error, Judge, Judged, Limits};
use libfuzzer_sys::fuzz_target;

/// The lengths of heads and bodies, and the error that has ended the connection. Each request for another protocol is answered as if it had
/// asked for none.
fn judged<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<(bool, usize)>, Option<Error>) {
    let mut judge = Judge::new(Limits::default());
    let (mut parts, mut held): (Vec<(bool, usize)>, Vec<u8>) = Default::default();
    for piece in pieces {
        held.extend_from_slice(piece);
        while !held.is_empty() {
            let (is_head, count) = match judge.judge(&held) {
                Ok(Judged::Head(count)) => (true, count),
                Ok(Judged::Body(count)) => (false, count),
                Ok(Judged::Partial) => break,
                Ok(Judged::Undecided) => {
                    judge.decide(false);
                    continue;
                }
                Err(error) => return (parts, Some(error)),
            };
            assert!(count > 0 && count <= held.len());
            assert!(!is_head || judge.head().len == count);
            held.drain(..count);
            match parts.last_mut() {
                Some((false, total)) if !is_head => *total += count,
                _ => parts.push((is_head, count)),
            }
        }
    }
    (parts, None)
}

fuzz_target!(|bytes: &[u8]| {
    let (parts, error) = judged([bytes]);
    for cut in 0..=bytes.len() {
        let (cut_parts, cut_error) = judged([&bytes[..cut], &bytes[cut..]]);
        assert_eq!(cut_error, error, "cut after {cut} bytes");
        // A body that is broken later may have been passed up to the cut.
        if error.is_none() {
            assert_eq!(cut_parts, parts, "cut after {cut} bytes");
        }
    }
});
