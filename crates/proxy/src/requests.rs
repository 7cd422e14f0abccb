//! What a request names, and whether a request of HTTP/2 may reach the app. Those of HTTP/1 are judged as bytes
//! (crates/proxy/src/connection/inbound.rs).

use fastrack_http::{is_authority, Error, Limits, Target};
use hyper::body::Bytes;
use hyper::header;
use hyper::http::request::Parts;

/// The target of a request of HTTP/1 as it was sent, if hyper has got another one.
#[derive(Clone, Debug)]
pub struct SentTarget(pub Bytes);

/// The host that the request is for, with its port.
pub fn host(request: &Parts) -> Option<&str> {
    let sent = request.extensions.get::<SentTarget>();
    let of_target = sent.and_then(|target| Target::parse(&target.0).ok()?.authority);
    let named = request.uri.authority().map(|authority| authority.as_str().as_bytes());
    let field = || request.headers.get(header::HOST).map(|host| host.as_bytes());
    std::str::from_utf8(of_target.or(named).or_else(field)?).ok()
}

/// Why a request of HTTP/2 is refused, as a worker would refuse it by HTTP/1.1.
pub fn judge(request: &Parts, limits: Limits) -> Option<Error> {
    if !host(request).is_some_and(|host| is_authority(host.as_bytes())) {
        return Some(Error::Host);
    }
    // Cookies are one field (RFC 9113 §8.2.3).
    let cookies = request.headers.get_all(header::COOKIE).iter().count().saturating_sub(1);
    if request.headers.len() - cookies > limits.fields {
        return Some(Error::HeadTooLarge);
    }
    let target = request.uri.path_and_query().map_or(0, |target| target.as_str().len());
    (target > limits.target).then_some(Error::TargetTooLong)
}
