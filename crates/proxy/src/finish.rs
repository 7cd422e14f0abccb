//! The worker's response as one for the client.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Body;
use hyper::ext::ReasonPhrase;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::response;
use hyper::{Method, Request, Response, StatusCode};

use crate::body::Source;
use crate::compress::{self, Accepted, Coding, Compressed};
use crate::connection::Connection;
use crate::control;
use crate::fields;
use crate::files::{conditions, Content, Files};
use crate::memory;
use crate::site::Site;
use crate::upstream::WorkerBody;

static SENDFILE: HeaderName = HeaderName::from_static("x-sendfile");

/// Bytes of a page that is read although nobody gets it.
const MOST_UNSENT: u64 = 1024 * 1024;

/// A response of this process's own.
pub fn own(status: StatusCode) -> Response<Source> {
    let text = format!("{}\n", status.canonical_reason().unwrap_or_default());
    let mut response = Response::new(Source::Own(Content::Memory(Some(text.into()))));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// The worker's response without what is about the connection to the worker, with a file instead of its name, and compressed.
pub async fn for_client(
    site: &Site,
    connection: &Arc<Connection>,
    response: Response<WorkerBody>,
    asked: &Asked,
) -> Response<Source> {
    let (mut parts, body) = response.into_parts();
    if let Some(protocols) = fields::remove_hop_by_hop(&mut parts.headers) {
        // Protocols that the app offers, as in a 426 (RFC 9110 §7.8). HTTP/2 has no such fields: hyper leaves them out.
        parts.headers.insert(header::UPGRADE, protocols);
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    }
    if site.has_sendfile() {
        if let Some(path) = parts.headers.remove(&SENDFILE) {
            return sendfile(&site.sendfile, &path, parts, asked).await;
        }
    }
    if site.settings.compress {
        compressed(connection, parts, body, asked)
    } else {
        Response::from_parts(parts, Source::Worker(body))
    }
}

/// Facts of a request that its response needs.
#[derive(Debug)]
pub struct Asked {
    accepted: Accepted,
    /// Its method, and its conditions.
    conditions: Parts,
}

impl Asked {
    /// Takes them from the request, as the worker gets it.
    pub fn of(parts: &Parts) -> Self {
        let mut conditions = Request::new(()).into_parts().0;
        conditions.method = parts.method.clone();
        for name in [
            header::RANGE,
            header::IF_RANGE,
            header::IF_MATCH,
            header::IF_NONE_MATCH,
            header::IF_MODIFIED_SINCE,
            header::IF_UNMODIFIED_SINCE,
        ] {
            for value in parts.headers.get_all(&name) {
                conditions.headers.append(&name, value.clone());
            }
        }
        Asked { accepted: Accepted::of(&parts.headers), conditions }
    }
    fn is_head(&self) -> bool {
        self.conditions.method == Method::HEAD
    }

    /// Whether the client has this page of the app, by a strong tag that compression makes weak.
    fn has(&self, status: StatusCode, fields: &HeaderMap) -> bool {
        let is_get = matches!(self.conditions.method, Method::GET | Method::HEAD);
        let etag = fields.get(header::ETAG).filter(|etag| !etag.as_bytes().starts_with(b"W/"));
        is_get
            && status == StatusCode::OK
            && etag.is_some_and(|etag| conditions::has(&self.conditions.headers, etag))
    }
}

/// A page of the app, compressed if the client takes it; or 304 if the client has the page.
fn compressed(
    connection: &Arc<Connection>,
    mut parts: response::Parts,
    body: WorkerBody,
    asked: &Asked,
) -> Response<Source> {
    let fields = &mut parts.headers;
    if parts.status == StatusCode::NOT_MODIFIED && compress::may_be_page(fields) {
        // The same as of the page (RFC 9110 §15.4.5).
        compress::set_vary(fields);
    }
    let named = || fields.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    let length = if asked.is_head() { named() } else { body.size_hint().exact() };
    if !compress::is_eligible(parts.status, fields, length) {
        return Response::from_parts(parts, Source::Worker(body));
    }
    compress::set_vary(fields);
    let coding = asked.accepted.codings().next();
    if asked.has(parts.status, fields) {
        return unchanged(parts, body, coding);
    }
    if asked.is_head() {
        coding.into_iter().for_each(|coding| compress::set_fields(fields, coding));
        return Response::from_parts(parts, Source::Worker(body));
    }
    // Another coding of the client's may take less memory.
    let mut with_memory = asked
        .accepted
        .codings()
        .filter_map(|coding| Some((coding, memory::for_encoder(&connection.encoders, coding, length)?)));
    let Some((coding, memory)) = with_memory.next() else {
        return Response::from_parts(parts, Source::Worker(body));
    };
    let source = match Compressed::new(body, coding) {
        Ok(body) => Source::Compressed { body: Box::new(body), _memory: memory },
        Err(body) => return Response::from_parts(parts, Source::Worker(body)),
    };
    compress::set_fields(fields, coding);
    Response::from_parts(parts, source)
}

/// 304 instead of the page that the client has: it has got the page compressed, with a weak tag that the app does not know.
fn unchanged(mut parts: response::Parts, body: WorkerBody, coding: Option<Coding>) -> Response<Source> {
    if let Some(coding) = coding {
        compress::set_fields(&mut parts.headers, coding);
    }
    for name in [header::CONTENT_ENCODING, header::CONTENT_LENGTH, header::CONTENT_TYPE] {
        parts.headers.remove(name);
    }
    parts.status = StatusCode::NOT_MODIFIED;
    parts.extensions.remove::<ReasonPhrase>();
    if body.size_hint().upper().is_some_and(|length| length <= MOST_UNSENT) {
        tokio::spawn(read_to_end(body));
    }
    Response::from_parts(parts, Source::Own(Content::empty()))
}

/// Reads a page that nobody gets: the connection to the worker is used again, and the worker does not take its client for gone.
async fn read_to_end(mut body: WorkerBody) {
    while let Some(Ok(_)) = body.frame().await {}
}

/// The app's response with the file that it names.
async fn sendfile(
    folders: &[Files],
    path: &HeaderValue,
    mut app: response::Parts,
    asked: &Asked,
) -> Response<Source> {
    // Rack::Sendfile writes the path as it is, and others encode it.
    let decoded = percent_encoding::percent_decode(path.as_bytes()).collect::<Vec<u8>>();
    let mut names = vec![path.as_bytes()];
    if decoded != path.as_bytes() {
        names.push(&decoded);
    }
    for folder in folders {
        for name in &names {
            match folder.send(Path::new(OsStr::from_bytes(name)), &asked.conditions, app).await {
                Ok(response) => return response.map(Source::Own),
                Err(unused) => app = unused,
            }
        }
    }
    let path = String::from_utf8_lossy(path.as_bytes());
    control::warn(&format!("X-Sendfile: {path} is no file within sendfile_root"));
    own(StatusCode::NOT_FOUND)
}
