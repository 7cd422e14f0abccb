//! Reads a request with this crate's parser.

use fastrack_http::{ChunkedDecoder, Error, Framing, Head, Limits, Status, Version};

use crate::Reading;

/// Why a request was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request is incomplete.
    Unfinished,
    Error(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal::Error(error)
    }
}

/// Reads the first request and its body.
pub fn ours(bytes: &[u8]) -> Result<Reading, Refusal> {
    let mut head = Head::default();
    if head.parse(bytes, Limits::default())? == Status::Partial {
        return Err(Refusal::Unfinished);
    }
    let body = body(&head, &bytes[head.len..])?;
    let field = |field: &fastrack_http::Field| {
        (field.name.of_buffer(bytes).to_ascii_lowercase(), field.value.of_buffer(bytes).to_vec())
    };
    let reading = Reading {
        method: head.method.of_buffer(bytes).to_vec(),
        path: head.path(bytes).to_vec(),
        query: head.query.of_buffer(bytes).to_vec(),
        minor_version: u8::from(head.version == Version::Http11),
        fields: head.fields.iter().map(field).collect(),
        body,
    };
    Ok(reading.sort())
}

fn body(head: &Head, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    match head.framing {
        Framing::None => Ok(Vec::new()),
        Framing::Length(length) => {
            let length = usize::try_from(length).map_err(|_| Refusal::Unfinished)?;
            bytes.get(..length).map(<[u8]>::to_vec).ok_or(Refusal::Unfinished)
        }
        Framing::Chunked => {
            let mut data = Vec::new();
            let (status, _) = ChunkedDecoder::default().decode(bytes, |run| {
                data.extend_from_slice(run);
                Ok::<_, Error>(())
            })?;
            if status == Status::Complete {
                Ok(data)
            } else {
                Err(Refusal::Unfinished)
            }
        }
    }
}
