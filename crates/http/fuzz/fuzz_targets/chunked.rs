//! The data, status and end of a chunked body do not depend on the cuts between its bytes.

#![no_main]

use fastrack_http::{ChunkedDecoder, Error, Status};
use libfuzzer_sys::fuzz_target;

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<(Vec<u8>, Status, usize), Error> {
    let mut decoder = ChunkedDecoder::default();
    let (mut data, mut status, mut taken) = (Vec::new(), Status::Partial, 0);
    for piece in pieces {
        let (now, used) = decoder.decode(piece, |run| {
            data.extend_from_slice(run);
            Ok::<_, Error>(())
        })?;
        assert!(used == piece.len() || now == Status::Complete);
        status = now;
        taken += used;
    }
    Ok((data, status, taken))
}

fuzz_target!(|bytes: &[u8]| {
    let whole = decode([bytes]);
    for cut in 0..=bytes.len() {
        assert_eq!(decode([&bytes[..cut], &bytes[cut..]]), whole, "cut after {cut} bytes");
    }
    if !bytes.is_empty() {
        assert_eq!(decode(bytes.chunks(1)), whole);
    }
});
