//! Parses requests as a server does.

use std::collections::BTreeMap;

use fastrack_http::{ChunkedDecoder, Error, Framing, Head, Limits, Status};

/// The result for a request.
#[derive(Debug, PartialEq, Eq, Clone)]
pub enum Answer {
    Partial,
    Refused(u16),
    Taken(BTreeMap<String, Vec<u8>>),
}

/// Parses a request that arrives in pieces.
pub fn answer<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Answer {
    let (mut head, mut body, mut decoder) = (Head::default(), Vec::new(), ChunkedDecoder::default());
    let (mut buffer, mut is_in_body, mut taken) = (Vec::new(), false, 0);
    for piece in pieces {
        buffer.extend_from_slice(piece);
        if !is_in_body {
            match head.parse(&buffer, Limits::default()) {
                Err(error) => return Answer::Refused(error.status()),
                Ok(Status::Partial) => continue,
                Ok(Status::Complete) => (is_in_body, taken) = (true, head.len),
            }
        }
        let rest = &buffer[taken..];
        let status = match head.framing {
            Framing::None => Ok((Status::Complete, 0)),
            Framing::Length(length) if rest.len() as u64 >= length => {
                body = rest[..length as usize].to_vec();
                Ok((Status::Complete, rest.len()))
            }
            Framing::Length(_) => Ok((Status::Partial, 0)),
            Framing::Chunked => decoder.decode(rest, |data| {
                body.extend_from_slice(data);
                Ok::<_, Error>(())
            }),
        };
        match status {
            Err(error) => return Answer::Refused(error.status()),
            Ok((Status::Complete, _)) => return Answer::Taken(seen(&head, &buffer, body)),
            Ok((Status::Partial, used)) => taken += used,
        }
    }
    Answer::Partial
}

/// The parts that the application gets.
fn seen(head: &Head, buffer: &[u8], body: Vec<u8>) -> BTreeMap<String, Vec<u8>> {
    let values = |name: &[u8]| {
        let fields =
            head.fields.iter().filter(|field| field.name.of_buffer(buffer).eq_ignore_ascii_case(name));
        fields.map(|field| field.value.of_buffer(buffer)).collect::<Vec<_>>().join(&b", "[..])
    };
    let host = head.authority.map_or_else(|| values(b"host"), |place| place.of_buffer(buffer).to_vec());
    BTreeMap::from([
        ("method".into(), head.method.of_buffer(buffer).to_vec()),
        ("uri".into(), head.target.of_buffer(buffer).to_vec()),
        ("path".into(), head.path(buffer).to_vec()),
        ("query".into(), head.query.of_buffer(buffer).to_vec()),
        ("host".into(), host),
        ("x".into(), values(b"x")),
        ("body".into(), body),
    ])
}
