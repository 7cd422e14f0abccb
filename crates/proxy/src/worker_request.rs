//! The request as a worker gets it.

use hyper::body::Body;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::{self, Uri};
use hyper::Version;

use crate::connection::Connection;
use crate::fields::{self, Told};
use crate::forwarded::Client;
use crate::requests::SentTarget;
use crate::site::Site;
use crate::uploaded::Uploaded;

/// Makes the request one of HTTP/1.1, names the client, and frames the body.
pub fn prepare(
    parts: &mut Parts,
    body: Option<&Uploaded>,
    site: &Site,
    connection: &Connection,
    client: Client,
) {
    let fields = &mut parts.headers;
    if let Some(host) =
        parts.uri.authority().and_then(|authority| HeaderValue::try_from(authority.as_str()).ok())
    {
        fields.insert(header::HOST, host);
    } else if parts.version == Version::HTTP_10 && !fields.contains_key(header::HOST) {
        // HTTP/1.1 needs a Host, and HTTP/1.0 does not.
        fields.extend(HeaderValue::try_from(&*connection.listener).ok().map(|host| (header::HOST, host)));
    }
    if parts.version == Version::HTTP_10 {
        // The worker would take the field for one of HTTP/1.1 (RFC 9110 §10.1.1).
        fields.remove(header::EXPECT);
    }
    if parts.version == Version::HTTP_2 {
        join_cookies(fields);
    }
    frame(fields, body);
    let is_from_proxy = site.settings.is_from_proxy(connection.peer.ip(), connection.is_tls);
    let target = parts.extensions.get::<SentTarget>().map(|target| &target.0[..]);
    let told =
        Told { target, client, version: parts.version, is_from_proxy, has_sendfile: site.has_sendfile() };
    fields::tell(fields, told);
    let target = uri::Parts::from(std::mem::take(&mut parts.uri)).path_and_query;
    let mut origin = uri::Parts::default();
    origin.path_and_query = target.or_else(|| Some(uri::PathAndQuery::from_static("/")));
    parts.uri = Uri::from_parts(origin).unwrap_or_default();
    parts.version = Version::HTTP_11;
}

/// Whether the client sends the body only once it is told to. hyper tells it as soon as the body is asked for, and knows this value only.
pub fn waits(parts: &Parts) -> bool {
    let is_expected = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    parts.version != Version::HTTP_10 && parts.headers.get(header::EXPECT).is_some_and(is_expected)
}

/// Joins the cookies of HTTP/2, which come as one field each (RFC 9113 §8.2.3).
fn join_cookies(fields: &mut HeaderMap) {
    let cookies: Vec<_> = fields.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1 {
        let joined = HeaderValue::from_bytes(&cookies.join(&b"; "[..]));
        joined.into_iter().for_each(|cookies| drop(fields.insert(header::COOKIE, cookies)));
    }
}

/// Names the body's own length, or has it sent in chunks.
fn frame(fields: &mut HeaderMap, body: Option<&Uploaded>) {
    let Some(body) = body else {
        fields.remove(header::TRANSFER_ENCODING);
        return;
    };
    match body.size_hint().exact() {
        Some(length) => drop(fields.insert(header::CONTENT_LENGTH, length.into())),
        None => {
            fields.remove(header::CONTENT_LENGTH);
            fields.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
    }
}
