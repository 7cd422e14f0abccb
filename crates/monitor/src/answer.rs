//! One request to the monitor.

use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use fastrack_sys::effective_user;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderValue, ACCEPT, AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode, Uri};
use serde_json::json;
use tokio::net::UnixStream;

use crate::metrics;
use crate::status;
use crate::view::Viewer;

const UNKNOWN: &str =
    "the token is missing or wrong: Authorization: Bearer TOKEN; on the server's machine also ?token=TOKEN\n";

const PAGE: &str = include_str!("page.html");

/// The page's styles and scripts are in it, and nothing comes from elsewhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// What requests are answered from.
#[derive(Debug)]
pub struct Answers {
    viewer: Viewer,
    token: Option<String>,
}

/// Where a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The unix socket, from root or from the user that the master runs as.
    Unix,
    /// The unix socket, from another user: a master of root's may have it in a folder of its app's user.
    OtherUser,
    /// TCP, from this machine, for whoever has the token: to look, not to touch.
    Local,
    /// TCP, from another machine: the same.
    Network,
}

impl Door {
    /// That of a client of the unix socket (unix(7), SO_PEERCRED).
    pub fn of_user(client: &UnixStream) -> Self {
        let own = client.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == effective_user());
        if own {
            Door::Unix
        } else {
            Door::OtherUser
        }
    }

    /// That of a TCP client with this address.
    pub fn of(client: IpAddr) -> Self {
        if client.to_canonical().is_loopback() {
            Door::Local
        } else {
            Door::Network
        }
    }
}

impl Answers {
    pub fn new(viewer: Viewer, token: Option<String>) -> Self {
        Answers { viewer, token }
    }

    pub fn answer(&self, request: &Request<Incoming>, door: Door) -> Response<Content> {
        if door == Door::OtherUser {
            return text(StatusCode::FORBIDDEN, "ask as root or as the user that the master runs as\n");
        }
        if door != Door::Unix && !knows_token(self.token.as_deref(), request.headers(), request.uri(), door) {
            let mut refusal = text(StatusCode::UNAUTHORIZED, UNKNOWN);
            // RFC 9110 section 15.5.2 demands it.
            refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return refusal;
        }
        if door == Door::Unix && has_foreign_host(request.headers()) {
            return text(StatusCode::MISDIRECTED_REQUEST, "ask for http://localhost\n");
        }
        let path = request.uri().path();
        match *request.method() {
            Method::GET | Method::HEAD => self.show(path, request.headers()),
            Method::POST => self.act(path, request.headers(), door),
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD or POST\n"),
        }
    }

    fn show(&self, path: &str, headers: &HeaderMap) -> Response<Content> {
        match path {
            "/" => {
                let mut page = content("text/html; charset=utf-8", PAGE);
                page.headers_mut().insert("content-security-policy", HeaderValue::from_static(POLICY));
                page
            }
            "/status.json" => content("application/json", format!("{}\n", status::json(&self.viewer.view()))),
            "/metrics" => {
                let page = metrics::page(self.viewer.view());
                if wants_plain(headers) {
                    content(metrics::PLAIN_TYPE, metrics::plain(&page))
                } else {
                    content(metrics::CONTENT_TYPE, page)
                }
            }
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" => self.readiness(),
            _ => text(StatusCode::NOT_FOUND, "/ /status.json /metrics /healthz /readyz\n"),
        }
    }

    fn readiness(&self) -> Response<Content> {
        let view = self.viewer.view();
        let status = if view.serves() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let (phase, ready) = (view.phase().name(), view.ready());
        text(status, format!("{phase}, {ready} of {} workers ready\n", view.master.wanted))
    }

    /// By the signals that an operator would send: the master handles them when it gets to it. The answer says which master has got
    /// the signal, and the number of the last order before it. So the client finds the order that follows in the status.
    fn act(&self, path: &str, headers: &HeaderMap, door: Door) -> Response<Content> {
        let Some((name, signal)) = signal(path) else {
            return text(
                StatusCode::NOT_FOUND,
                "/phased-restart /restart /refork /stop /workers/+1 /workers/-1\n",
            );
        };
        // A browser names the page that sends a POST: any page that its user looks at, if the socket is forwarded to a port.
        if door != Door::Unix || headers.contains_key(ORIGIN) {
            return text(StatusCode::FORBIDDEN, "this is for the unix socket, and not for browsers\n");
        }
        let after = self.viewer.last_order();
        fastrack_sys::signal_self(signal);
        let sent = json!({ "sent": name, "pid": std::process::id(), "after": after });
        response(StatusCode::ACCEPTED, "application/json", Content(Some(format!("{sent}\n").into())))
    }
}

/// Takes the same time for each wrong one of that length. In the query, where proxies log it, only from this machine: a browser has
/// no other place for it.
fn knows_token(token: Option<&str>, headers: &HeaderMap, uri: &Uri, door: Door) -> bool {
    let query = uri.query().filter(|_| door == Door::Local).unwrap_or_default();
    let in_query = || query.split('&').find_map(|pair| pair.strip_prefix("token="));
    let given = headers.get(AUTHORIZATION).and_then(bearer).or_else(in_query).unwrap_or_default();
    let Some(token) = token else { return false };
    let differences =
        given.bytes().zip(token.bytes()).fold(0, |differences, (one, other)| differences | (one ^ other));
    given.len() == token.len() && differences == 0
}

/// The token in an Authorization field. The name of the scheme has no case (RFC 9110 section 11.1).
fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then(|| token.trim_start_matches(' '))
}

/// Whether who asks for metrics names plain text, and not OpenMetrics. Prometheus names both, curl neither.
fn wants_plain(headers: &HeaderMap) -> bool {
    let named = |kind: &str| {
        let values = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|one| one.trim_start().starts_with(kind))
    };
    named("text/plain") && !named("application/openmetrics-text")
}

/// Whether the Host is a name that somebody may own. Where the socket is forwarded to a port, a page could have its own name
/// lead there, and read what is here (DNS rebinding).
fn has_foreign_host(headers: &HeaderMap) -> bool {
    headers.get_all(HOST).iter().any(|host| {
        let host = host.to_str().unwrap_or(".");
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        name.contains('.') && name.parse::<IpAddr>().is_err()
    })
}

/// See docs/signals.md.
fn signal(path: &str) -> Option<(&'static str, i32)> {
    let name = match path {
        "/phased-restart" => "HUP",
        "/restart" => "USR2",
        "/refork" => "URG",
        "/stop" => "TERM",
        "/workers/+1" => "TTIN",
        "/workers/-1" => "TTOU",
        _ => return None,
    };
    Some((name, fastrack_sys::signal_number(name)?))
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Content> {
    response(status, "text/plain; charset=utf-8", Content(Some(text.into())))
}

fn content(kind: &'static str, body: impl Into<Bytes>) -> Response<Content> {
    response(StatusCode::OK, kind, Content(Some(body.into())))
}

fn response(status: StatusCode, kind: &'static str, content: Content) -> Response<Content> {
    let mut response = Response::new(content);
    *response.status_mut() = status;
    let fields = [
        ("content-type", kind),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
    ];
    for (name, value) in fields {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// What is sent, all at once.
#[derive(Debug)]
pub struct Content(Option<Bytes>);

impl Body for Content {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.0.as_ref().map_or(0, Bytes::len) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_machine_gives_the_token_in_a_field_and_never_in_the_query() {
        let door = |address: &str| Door::of(address.parse().expect("an address"));
        assert_eq!([door("127.0.0.9"), door("::1"), door("::ffff:127.0.0.1")], [Door::Local; 3]);
        assert_eq!([door("10.0.0.1"), door("fe80::1")], [Door::Network; 2]);
        let knows = |field: Option<&str>, uri: &str, door| {
            let fields = field.map(|text| (AUTHORIZATION, HeaderValue::from_str(text).expect("a value")));
            knows_token(Some("secret"), &fields.into_iter().collect(), &uri.parse().expect("a target"), door)
        };
        for door in [Door::Local, Door::Network] {
            assert!(
                knows(Some("Bearer secret"), "/metrics", door) && knows(Some("bearer secret"), "/", door)
            );
            assert!(!knows(None, "/metrics", door) && !knows(Some("Basic secret"), "/", door));
            assert!(!knows(Some("Bearer secreT"), "/", door) && !knows(Some("Bearer secret1"), "/", door));
            assert_eq!(knows(None, "/?a=b&token=secret", door), door == Door::Local);
        }
    }
}
