//! The response with a file: the whole file or a part, compressed where the client takes it, or only that it has not changed.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use hyper::ext::ReasonPhrase;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::response;
use hyper::{Method, Response, StatusCode};

use super::body::{Content, Piece};
use super::conditions::{self, Outcome};
use super::entry::{Entry, Variant};
use crate::compress::{forbids_transform, random, set_vary, Accepted, Coding};
use crate::ranges::{self, Ranges};
use crate::stats;

/// The response of this process's own to a GET or HEAD. `fields` are those of all such responses. `compresses`: files may be compressed here.
pub async fn with_file(
    entry: &Arc<Entry>,
    request: &Parts,
    fields: HeaderMap,
    compresses: bool,
) -> Response<Content> {
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.headers = fields;
    let compresses = compresses && entry.is_compressible() && !forbids_transform(&parts.headers);
    if entry.is_coded() || compresses {
        set_vary(&mut parts.headers);
    }
    let (mut coding, mut variant) = choose(entry, request);
    if let (None, true, Some(wanted)) = (coding, compresses, wanted(request)) {
        let known = entry.made(wanted);
        let etag = entry.file.form_etag(wanted);
        // A browser of yesterday has the form. It need not be made again for that.
        if known.is_none() && conditions::has(&request.headers, &etag) {
            parts.headers.insert(header::ETAG, etag);
            let content = without_content(&mut parts, StatusCode::NOT_MODIFIED);
            return Response::from_parts(parts, content);
        }
        let made = match known {
            Some(made) => made,
            None => entry.make(wanted).await,
        };
        if let Some(made) = made {
            (coding, variant) = (Some(wanted), made);
        }
    }
    if let Some(coding) = coding {
        parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    }
    describe(&mut parts.headers, entry, &variant);
    let content = fill(&mut parts, &variant, request);
    if parts.status == StatusCode::RANGE_NOT_SATISFIABLE {
        parts.headers.remove(header::CACHE_CONTROL);
    }
    if coding.is_some() && request.method == Method::GET && parts.status == StatusCode::OK {
        stats::BYTES_SAVED.fetch_add(entry.file.length.saturating_sub(variant.length), Relaxed);
    }
    Response::from_parts(parts, content)
}

/// The coding that the client likes best. Ranges are those of the file itself.
fn wanted(request: &Parts) -> Option<Coding> {
    if range_of(request).is_some() {
        return None;
    }
    Accepted::of(&request.headers).codings().next()
}

/// The app's response with a file instead of a body. Nothing of the app's head changes, except for what describes the bytes.
pub fn for_app(entry: &Entry, request: &Parts, mut app: response::Parts) -> Response<Content> {
    let fields = &mut app.headers;
    fields.remove(header::CONTENT_LENGTH);
    if is_without_body(app.status) {
        return Response::from_parts(app, Content::empty());
    }
    let is_get = matches!(request.method, Method::GET | Method::HEAD);
    if app.status != StatusCode::OK || !is_get {
        add(fields, header::CONTENT_TYPE, &entry.media_type);
        return Response::from_parts(app, whole(&entry.file));
    }
    describe(fields, entry, &entry.file);
    let content = fill(&mut app, &entry.file, request);
    Response::from_parts(app, content)
}

fn is_without_body(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// Adds a field that is not there.
fn add(fields: &mut HeaderMap, name: HeaderName, value: &HeaderValue) {
    fields.entry(name).or_insert_with(|| value.clone());
}

/// The form beside the file that the client likes best, or the file itself. Ranges are those of the file itself.
fn choose(entry: &Entry, request: &Parts) -> (Option<Coding>, Arc<Variant>) {
    let has_range = range_of(request).is_some();
    let coded = if has_range { None } else { entry.coded(Accepted::of(&request.headers)) };
    coded.map_or_else(
        || (None, Arc::clone(&entry.file)),
        |(coding, variant)| (Some(coding), Arc::clone(variant)),
    )
}

fn range_of(request: &Parts) -> Option<&HeaderValue> {
    request.headers.get(header::RANGE).filter(|_| request.method == Method::GET)
}

/// Sets the fields that describe the bytes, except those that the response has.
fn describe(fields: &mut HeaderMap, entry: &Entry, variant: &Variant) {
    add(fields, header::ETAG, &variant.etag);
    add(fields, header::LAST_MODIFIED, &variant.last_modified);
    add(fields, header::CONTENT_TYPE, &entry.media_type);
    fields.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
}

/// Answers the conditions and the ranges of a GET or HEAD, by the tag and the date that the response has.
fn fill(parts: &mut response::Parts, variant: &Variant, request: &Parts) -> Content {
    match conditions::check(&request.headers, &parts.headers) {
        Outcome::NotModified => without_content(parts, StatusCode::NOT_MODIFIED),
        Outcome::Failed => without_content(parts, StatusCode::PRECONDITION_FAILED),
        Outcome::Send => {
            let range = range_of(request).filter(|_| conditions::if_range(&request.headers, &parts.headers));
            let ranges = range.and_then(|range| range.to_str().ok());
            match ranges.map_or(Ranges::Whole, |ranges| ranges::parse(ranges, variant.length)) {
                Ranges::Whole => whole(variant),
                Ranges::Some(ranges) => partial(parts, variant, ranges),
                Ranges::Unsatisfiable => {
                    let content = without_content(parts, StatusCode::RANGE_NOT_SATISFIABLE);
                    set(parts, header::CONTENT_RANGE, format!("bytes */{}", variant.length));
                    content
                }
            }
        }
    }
}

fn whole(variant: &Variant) -> Content {
    Content::pieces(&variant.store, vec![Piece::Stored(0..variant.length)])
}

fn without_content(parts: &mut response::Parts, status: StatusCode) -> Content {
    set_status(parts, status);
    parts.headers.remove(header::CONTENT_TYPE);
    parts.headers.remove(header::CONTENT_ENCODING);
    Content::empty()
}

/// The app's own reason phrase belongs to the app's status.
fn set_status(parts: &mut response::Parts, status: StatusCode) {
    parts.status = status;
    parts.extensions.remove::<ReasonPhrase>();
}

/// Sets a field to text that this process has made.
fn set(parts: &mut response::Parts, name: HeaderName, text: String) {
    if let Ok(value) = HeaderValue::try_from(text) {
        parts.headers.insert(name, value);
    }
}

fn partial(parts: &mut response::Parts, variant: &Variant, ranges: Vec<Range<u64>>) -> Content {
    set_status(parts, StatusCode::PARTIAL_CONTENT);
    if let [range] = &ranges[..] {
        set(parts, header::CONTENT_RANGE, content_range(range, variant.length));
        return Content::pieces(&variant.store, vec![Piece::Stored(range.clone())]);
    }
    let boundary = format!("fastrack{:016x}", random());
    let pieces = multipart(parts.headers.get(header::CONTENT_TYPE), &ranges, variant.length, &boundary);
    set(parts, header::CONTENT_TYPE, format!("multipart/byteranges; boundary={boundary}"));
    Content::pieces(&variant.store, pieces)
}

fn content_range(range: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end - 1)
}

/// The parts of a response with several ranges (RFC 9110 §14.6).
fn multipart(
    media_type: Option<&HeaderValue>,
    ranges: &[Range<u64>],
    length: u64,
    boundary: &str,
) -> Vec<Piece> {
    let media_type = media_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut pieces = Vec::with_capacity(ranges.len() * 2 + 1);
    for range in ranges {
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: {}\r\n\r\n",
            content_range(range, length)
        );
        pieces.push(Piece::Own(head.into()));
        pieces.push(Piece::Stored(range.clone()));
    }
    pieces.push(Piece::Own(format!("\r\n--{boundary}--\r\n").into()));
    pieces
}
