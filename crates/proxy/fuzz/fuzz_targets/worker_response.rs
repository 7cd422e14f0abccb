//! A worker's response means the same however it arrives, and no bytes of it stop this process.

#![no_main]

use fastrack_proxy::{Framing, Head, Part};
use hyper::body::Bytes;
use libfuzzer_sys::fuzz_target;

/// The body that these bytes have, read in pieces of this size. The second value is whether it has ended.
fn body(mut framing: Framing, bytes: &Bytes, piece: usize) -> Option<(Vec<u8>, bool)> {
    let (mut read, mut data) = (Bytes::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        read = [&read[..], piece].concat().into();
        while let Some(part) = framing.decode(&mut read).ok()? {
            if let Part::Data(bytes) = part {
                data.extend_from_slice(&bytes);
            }
        }
    }
    Some((data, framing.is_done()))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let response = Bytes::copy_from_slice(rest);
    let Ok(Some((head, length))) = Head::parse(&response, first & 1 == 1) else { return };
    // The same head, and no earlier than with its last byte.
    assert!(
        matches!(Head::parse(&response.slice(..length), first & 1 == 1), Ok(Some((_, same))) if same == length)
    );
    assert!(!matches!(Head::parse(&response.slice(..length - 1), first & 1 == 1), Ok(Some(_))));
    let rest = response.slice(length..);
    let whole = body(head.framing, &rest, rest.len().max(1));
    assert_eq!(whole, body(head.framing, &rest, usize::from(first >> 1).max(1)));
    if let Some((data, _)) = whole {
        assert!(data.len() <= rest.len());
    }
});
