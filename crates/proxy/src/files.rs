//! Files that are answered without the app.
//!
//! tower-http's ServeDir follows links out of its folder, serves names with a dot in front, and has no ETag, no If-Range and one range
//! only. So the path, the conditions and the ranges are done here; dates and media types are libraries'.

mod cache;
mod conditions;
mod path;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::response::Builder;
use hyper::{Method, Response, StatusCode};
use rustix::buffer::spare_capacity;

use crate::compress::{set_vary, Accepted};
use crate::ranges::{self, Ranges};
use cache::{Cache, Entry, Variant};
use conditions::Outcome;

/// Bytes that are read at once. As in nginx without threads, a read of what is not in the page cache keeps other clients waiting.
const PART: usize = 64 * 1024;

/// A body that this process has itself.
#[derive(Debug)]
pub enum Content {
    /// Bytes; None: they have been sent, or there are none.
    Memory(Option<Bytes>),
    /// A file, or parts of it.
    File(Box<FileBody>),
}

impl Content {
    /// No body.
    pub fn empty() -> Self {
        Content::Memory(None)
    }

    /// The next bytes; None at the end.
    pub fn next_part(&mut self) -> Option<io::Result<Bytes>> {
        match self {
            Content::Memory(bytes) => bytes.take().map(Ok),
            Content::File(body) => body.next_part(),
        }
    }

    /// Bytes that have not been sent.
    pub fn left(&self) -> u64 {
        match self {
            Content::Memory(bytes) => bytes.as_ref().map_or(0, Bytes::len) as u64,
            Content::File(body) => body.left,
        }
    }
}

/// The files of one folder.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    /// Patterns of paths, and their Cache-Control.
    rules: Vec<(String, HeaderValue)>,
    cache: Cache,
}

impl Files {
    /// Opens a folder. Fails if there is none, or if a Cache-Control is none.
    pub fn new(root: &Path, rules: &[(String, String)]) -> io::Result<Self> {
        let value = |text: &String| HeaderValue::try_from(text).map_err(io::Error::other);
        let rules = rules.iter().map(|(pattern, text)| Ok((pattern.clone(), value(text)?)));
        let root = root.canonicalize()?;
        if !root.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Files { root, rules: rules.collect::<io::Result<_>>()?, cache: Cache::default() })
    }

    /// The response to a request for a file; None: the app answers the request.
    pub fn answer(&self, request: &Parts) -> Option<Response<Content>> {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return None;
        }
        let path = request.uri.path();
        let entry = self.cache.get(path, |known| {
            let names = path::candidates(path)?;
            let found = names.iter().find_map(|name| path::within(&self.root, &self.root.join(name)))?;
            Entry::load(&found, &self.root, known)
        })?;
        let mut response = respond(&entry, request);
        if let Some((_, value)) = self.rules.iter().find(|(pattern, _)| path::matches(pattern, path)) {
            if response.status() != StatusCode::RANGE_NOT_SATISFIABLE {
                response.headers_mut().insert(header::CACHE_CONTROL, value.clone());
            }
        }
        Some(response)
    }

    /// The response with a file whose whole path the app has named; None: the folder has no such file.
    pub fn send(&self, path: &Path, request: &Parts, app: &HeaderMap) -> Option<Response<Content>> {
        let found = path::within(&self.root, path)?;
        let entry = Entry::load(&found, &self.root, None)?;
        let mut response = respond(&entry, request);
        let is_multipart = response.headers().get(header::CONTENT_TYPE).is_some_and(is_multipart);
        for (name, value) in app {
            // The app's fields count, except those that describe the bytes.
            let is_ours = matches!(
                *name,
                header::CONTENT_LENGTH | header::CONTENT_ENCODING | header::TRANSFER_ENCODING
            );
            if !(is_ours || is_multipart && *name == header::CONTENT_TYPE) {
                response.headers_mut().insert(name, value.clone());
            }
        }
        Some(response)
    }
}

fn is_multipart(value: &HeaderValue) -> bool {
    value.as_bytes().starts_with(b"multipart/byteranges")
}

/// The response with a file: the whole file or a part, compressed where the client takes it, or only that it has not changed.
fn respond(entry: &Entry, request: &Parts) -> Response<Content> {
    let fields = &request.headers;
    let range = fields.get(header::RANGE).filter(|_| request.method == Method::GET);
    // Ranges are those of the file itself.
    let coded = if range.is_some() { None } else { entry.coded(Accepted::of(fields)) };
    let (coding, variant) = coded.map_or((None, &entry.file), |(coding, variant)| (Some(coding), variant));
    let mut builder = Response::builder()
        .header(header::ETAG, &variant.etag)
        .header(header::LAST_MODIFIED, &variant.last_modified)
        .header(header::ACCEPT_RANGES, "bytes");
    if let Some(coding) = coding {
        builder = builder.header(header::CONTENT_ENCODING, coding.name());
    }
    if let Some(fields) = builder.headers_mut().filter(|_| entry.is_coded()) {
        set_vary(fields);
    }
    let response = match conditions::check(fields, variant) {
        Outcome::NotModified => builder.status(StatusCode::NOT_MODIFIED).body(Content::empty()),
        Outcome::Failed => builder.status(StatusCode::PRECONDITION_FAILED).body(Content::empty()),
        Outcome::Send => {
            let range = range.filter(|_| conditions::if_range(fields, variant));
            let ranges =
                range.and_then(|range| range.to_str().ok()).map(|range| ranges::parse(range, variant.length));
            with_body(builder, entry, variant, ranges.unwrap_or(Ranges::Whole))
        }
    };
    // All fields are valid: the file's are made from numbers.
    response.unwrap_or_else(|_| Response::new(Content::empty()))
}

type Built = hyper::http::Result<Response<Content>>;

fn with_body(builder: Builder, entry: &Entry, variant: &Variant, ranges: Ranges) -> Built {
    let length = variant.length;
    let builder = match &ranges {
        Ranges::Some(ranges) if ranges.len() > 1 => builder,
        Ranges::Unsatisfiable => builder,
        _ => builder.header(header::CONTENT_TYPE, &entry.media_type),
    };
    let opened = |pieces| match FileBody::open(variant, pieces) {
        Ok(body) => (StatusCode::OK, Content::File(Box::new(body))),
        Err(error) if fastrack_sys::is_out_of_fds(&error) => {
            (StatusCode::SERVICE_UNAVAILABLE, Content::empty())
        }
        // It was removed, or may not be read.
        Err(_) => (StatusCode::NOT_FOUND, Content::empty()),
    };
    let partial = |status| if status == StatusCode::OK { StatusCode::PARTIAL_CONTENT } else { status };
    match ranges {
        Ranges::Unsatisfiable => {
            let builder = builder.status(StatusCode::RANGE_NOT_SATISFIABLE);
            builder.header(header::CONTENT_RANGE, format!("bytes */{length}")).body(Content::empty())
        }
        Ranges::Whole => {
            let (status, source) = match &variant.content {
                Some(content) => (StatusCode::OK, Content::Memory((length > 0).then(|| content.clone()))),
                None => opened(vec![Piece::File(0..length)]),
            };
            builder.status(status).body(source)
        }
        Ranges::Some(ranges) => match &ranges[..] {
            [range] => {
                let (status, source) = opened(vec![Piece::File(range.clone())]);
                builder
                    .status(partial(status))
                    .header(header::CONTENT_RANGE, content_range(range, length))
                    .body(source)
            }
            ranges => {
                let boundary = format!("fastrack{:016x}", crate::compress::random());
                let (status, source) = opened(multipart(entry, ranges, length, &boundary));
                let media_type = format!("multipart/byteranges; boundary={boundary}");
                builder.status(partial(status)).header(header::CONTENT_TYPE, media_type).body(source)
            }
        },
    }
}

fn content_range(range: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end - 1)
}

/// The parts of a response with several ranges (RFC 9110 §14.6).
fn multipart(entry: &Entry, ranges: &[Range<u64>], length: u64, boundary: &str) -> Vec<Piece> {
    let media_type = entry.media_type.to_str().unwrap_or_default();
    let mut pieces = Vec::with_capacity(ranges.len() * 2 + 1);
    for range in ranges {
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: {}\r\n\r\n",
            content_range(range, length)
        );
        pieces.push(Piece::Memory(head.into()));
        pieces.push(Piece::File(range.clone()));
    }
    pieces.push(Piece::Memory(format!("\r\n--{boundary}--\r\n").into()));
    pieces
}

/// A piece of a body.
#[derive(Debug)]
enum Piece {
    Memory(Bytes),
    File(Range<u64>),
}

/// A body that is read from a file.
#[derive(Debug)]
pub struct FileBody {
    file: File,
    /// The next one is the last.
    pieces: Vec<Piece>,
    left: u64,
}

impl FileBody {
    fn open(variant: &Variant, mut pieces: Vec<Piece>) -> io::Result<Self> {
        let length = |piece: &Piece| match piece {
            Piece::Memory(bytes) => bytes.len() as u64,
            Piece::File(range) => range.end - range.start,
        };
        let left = pieces.iter().map(length).sum();
        pieces.reverse();
        Ok(FileBody { file: File::open(&variant.path)?, pieces, left })
    }

    /// The next bytes; None at the end. Fails if the file has become shorter: the connection ends, so that the client sees it.
    fn next_part(&mut self) -> Option<io::Result<Bytes>> {
        if self.left == 0 {
            return None;
        }
        let bytes = match self.pieces.pop()? {
            Piece::Memory(bytes) => bytes,
            Piece::File(range) => {
                let count = (range.end - range.start).min(PART as u64);
                let part = match read(&self.file, range.start, count as usize) {
                    Ok(part) => part,
                    Err(error) => {
                        self.left = 0;
                        return Some(Err(error));
                    }
                };
                let rest = range.start + count..range.end;
                if !rest.is_empty() {
                    self.pieces.push(Piece::File(rest));
                }
                part.into()
            }
        };
        self.left -= bytes.len() as u64;
        Some(Ok(bytes))
    }
}

/// So many bytes of a file. Fails if the file has fewer.
fn read(file: &File, start: u64, count: usize) -> io::Result<Vec<u8>> {
    let mut part = Vec::with_capacity(count);
    while part.len() < count {
        let offset = start + part.len() as u64;
        if rustix::io::retry_on_intr(|| rustix::io::pread(file, spare_capacity(&mut part), offset))? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    part.truncate(count);
    Ok(part)
}

#[cfg(test)]
mod tests;
