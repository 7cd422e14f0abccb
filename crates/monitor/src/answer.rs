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

const BAD_TOKEN: &str =
    "the token is missing or wrong: Authorization: Bearer TOKEN; on the server's machine also ?token=TOKEN\n";

const PAGE: &str = include_str!("page.html");

/// The page contains its styles and scripts, and loads nothing else.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// The source of all answers.
#[derive(Debug)]
pub struct Answers {
    viewer: Viewer,
    token: Option<String>,
}

/// The transport of a request, by which its rights are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The unix socket, for root and the user that the master runs as: may look and act.
    Unix,
    /// The unix socket, for another user: a root master may have the socket in a directory of the app's user. May do
    /// nothing.
    OtherUser,
    /// TCP from this machine: may look, with the token.
    Local,
    /// TCP from another machine: may look, with the token.
    Network,
}

impl Transport {
    /// For a client of the unix socket (unix(7), SO_PEERCRED).
    pub fn of_user(client: &UnixStream) -> Self {
        let own = client.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == effective_user());
        if own {
            Transport::Unix
        } else {
            Transport::OtherUser
        }
    }

    /// For a TCP client with this address.
    pub fn of(client: IpAddr) -> Self {
        if client.to_canonical().is_loopback() {
            Transport::Local
        } else {
            Transport::Network
        }
    }
}

impl Answers {
    pub fn new(viewer: Viewer, token: Option<String>) -> Self {
        Answers { viewer, token }
    }

    pub fn answer(&self, request: &Request<Incoming>, transport: Transport) -> Response<Content> {
        if transport == Transport::OtherUser {
            return text(StatusCode::FORBIDDEN, "ask as root or as the user that the master runs as\n");
        }
        if transport != Transport::Unix
            && !knows_token(self.token.as_deref(), request.headers(), request.uri(), transport)
        {
            let mut refusal = text(StatusCode::UNAUTHORIZED, BAD_TOKEN);
            // Required by RFC 9110 §15.5.2.
            refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return refusal;
        }
        if transport == Transport::Unix && has_foreign_host(request.headers()) {
            return text(StatusCode::MISDIRECTED_REQUEST, "ask for http://localhost\n");
        }
        let path = request.uri().path();
        match *request.method() {
            // Backtraces are for those who may act.
            Method::GET if path == "/profile.json" && transport == Transport::Unix => {
                content("application/json", self.viewer.published().read_profile().to_string())
            }
            Method::GET | Method::HEAD => self.show(path, request.headers()),
            Method::POST => self.act(path, request.headers(), transport),
            _ => text(StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD or POST\n"),
        }
    }

    fn show(&self, path: &str, headers: &HeaderMap) -> Response<Content> {
        match path {
            "/" => {
                let mut page = content("text/html; charset=utf-8", PAGE);
                page.headers_mut().insert("content-security-policy", HeaderValue::from_static(PAGE_POLICY));
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

    /// Sends the master the signal that an operator would send. The answer has the pid of the master and the number of
    /// its last order, so that the client can find the next order in the status.
    fn act(&self, path: &str, headers: &HeaderMap, transport: Transport) -> Response<Content> {
        let profile = profile_order(path);
        let wakes = fastrack_sys::signal_number("CHLD").map(|signal| ("profile", signal));
        let Some((name, signal)) = profile.and(wakes).or_else(|| signal(path)) else {
            return text(
                StatusCode::NOT_FOUND,
                "/phased-restart /restart /refork /stop /workers/+1 /workers/-1 /profile/WORKER/SECONDS\n",
            );
        };
        // A browser sends an Origin with a POST. If the socket is forwarded to a port, any page could send such a POST.
        if transport != Transport::Unix || headers.contains_key(ORIGIN) {
            return text(StatusCode::FORBIDDEN, "this is for the unix socket, and not for browsers\n");
        }
        let after = self.viewer.last_order();
        if let Some((nr, seconds)) = profile {
            if !self.viewer.published().ask_for_profile(nr, seconds) {
                return text(StatusCode::CONFLICT, "there is a profile in progress: one at a time\n");
            }
        }
        fastrack_sys::signal_self(signal);
        let sent = json!({ "sent": name, "pid": std::process::id(), "after": after });
        response(StatusCode::ACCEPTED, "application/json", Content(Some(format!("{sent}\n").into())))
    }
}

/// Whether the request has the token. The comparison takes the same time for all wrong tokens of the right length. A
/// token in the query counts only from this machine: proxies log queries, but a browser has no other place for the
/// token.
fn knows_token(token: Option<&str>, headers: &HeaderMap, uri: &Uri, transport: Transport) -> bool {
    let query = uri.query().filter(|_| transport == Transport::Local).unwrap_or_default();
    let in_query = || query.split('&').find_map(|pair| pair.strip_prefix("token="));
    let given = headers.get(AUTHORIZATION).and_then(bearer).or_else(in_query).unwrap_or_default();
    let Some(token) = token else { return false };
    let differences =
        given.bytes().zip(token.bytes()).fold(0, |differences, (one, other)| differences | (one ^ other));
    given.len() == token.len() && differences == 0
}

/// The token in an Authorization field. The scheme is case-insensitive (RFC 9110 §11.1).
fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then(|| token.trim_start_matches(' '))
}

/// Whether the client accepts plain text but not OpenMetrics. Prometheus accepts both, curl names neither.
fn wants_plain(headers: &HeaderMap) -> bool {
    let named = |kind: &str| {
        let values = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|one| one.trim_start().starts_with(kind))
    };
    named("text/plain") && !named("application/openmetrics-text")
}

/// Whether the Host is a domain name. If the socket is forwarded to a port, a page could resolve its own domain to that
/// port and read the answers (DNS rebinding).
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

/// The number of the worker, and the seconds, of `/profile/NR/SECONDS`.
fn profile_order(path: &str) -> Option<(usize, u32)> {
    let (nr, seconds) = path.strip_prefix("/profile/")?.split_once('/')?;
    let seconds = seconds.parse().ok().filter(|seconds| (1..=300).contains(seconds))?;
    Some((nr.parse().ok()?, seconds))
}

/// The name and the number of the signal for a path: see docs/signals.md.
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

/// A body that is sent at once.
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
    fn another_machine_sends_the_token_in_a_field_and_never_in_the_query() {
        let transport = |address: &str| Transport::of(address.parse().expect("an address"));
        assert_eq!(
            [transport("127.0.0.9"), transport("::1"), transport("::ffff:127.0.0.1")],
            [Transport::Local; 3]
        );
        assert_eq!([transport("10.0.0.1"), transport("fe80::1")], [Transport::Network; 2]);
        let knows = |field: Option<&str>, uri: &str, transport| {
            let fields = field.map(|text| (AUTHORIZATION, HeaderValue::from_str(text).expect("a value")));
            knows_token(
                Some("secret"),
                &fields.into_iter().collect(),
                &uri.parse().expect("a target"),
                transport,
            )
        };
        for transport in [Transport::Local, Transport::Network] {
            assert!(
                knows(Some("Bearer secret"), "/metrics", transport)
                    && knows(Some("bearer secret"), "/", transport)
            );
            assert!(!knows(None, "/metrics", transport) && !knows(Some("Basic secret"), "/", transport));
            assert!(
                !knows(Some("Bearer secreT"), "/", transport)
                    && !knows(Some("Bearer secret1"), "/", transport)
            );
            assert_eq!(knows(None, "/?a=b&token=secret", transport), transport == Transport::Local);
        }
    }
}
