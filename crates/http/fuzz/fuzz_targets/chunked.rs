//! A chunked body gives the same data, status and end however it is cut.

#![no_main]

use fastrack_http::{ChunkedDecoder, Error, Status};
use libfuzzer_sys::fuzz_target;

fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, Status, usize), Error> {
    let mut decoder = ChunkedDecoder::default();
    let (mut data, mut status, mut taken) = (Vec::new(), Status::Partial, 0);
    for piece in pieces {
        let (now, used) = decoder.decode(piece, |run| {
            data.extend_from_slice(run);
            Ok::<_, Error>(())
        })?;
        status = now;
        taken += used;
    }
    Ok((data, status, taken))
}

fuzz_target!(|input: (usize, &[u8])| {
    let (cut, bytes) = input;
    let cut = cut % (bytes.len() + 1);
    assert_eq!(decode(&[bytes]), decode(&[&bytes[..cut], &bytes[cut..]]));
});
