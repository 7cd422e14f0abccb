//! Answers a request: by a redirect, a file, or the app.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use fastrack_http::{error_body, Error};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri;
use hyper::{Method, Request, Response, StatusCode, Version};

use crate::access_log::Logged;
use crate::acme::Challenges;
use crate::body::{Outgoing, Source};
use crate::change::Change;
use crate::connection::{Connection, InFlight, Note};
use crate::fields;
use crate::files::{self, Content};
use crate::finish::{self, own, Asked};
use crate::forwarded::{self, Client};
use crate::progress::Progress;
use crate::requests::{self, SentTarget};
use crate::site::{CurrentSite, Site};
use crate::stats;
use crate::uploaded::Uploaded;
use crate::upstream::{self, Failure, Upstream, WorkerBody};
use crate::worker_request;

/// Answers the requests of one thread's clients.
#[derive(Debug)]
pub struct Handler {
    site: Arc<CurrentSite>,
    challenges: Arc<Challenges>,
    upstream: Upstream,
}

impl Handler {
    /// Asks the workers behind `upstream`.
    pub fn new(site: Arc<CurrentSite>, challenges: Arc<Challenges>, upstream: Upstream) -> Self {
        Handler { site, challenges, upstream }
    }

    /// Logs that hyper has refused bytes that are no request.
    pub fn log_refusal(&self, connection: &Connection, status: StatusCode) {
        if let Some(log) = &self.site.get().log {
            drop(Logged::unread(log, connection.peer.ip().to_canonical()).answer(status.as_u16()));
        }
    }

    /// The present site.
    pub fn site(&self) -> Arc<Site> {
        self.site.get()
    }

    /// The response to a request. Failures are responses, too, so this never fails.
    pub async fn answer(
        &self,
        connection: &Arc<Connection>,
        request: Request<Incoming>,
    ) -> Response<Outgoing> {
        let is_head = request.method() == Method::HEAD;
        let version = request.version();
        let stays = version != Version::HTTP_10 || fields::stays(request.headers());
        let site = self.site.get();
        let mut response = self.respond(&site, connection, request).await;
        // Only HTTP/1 has connections that end with a response.
        if version == Version::HTTP_2 {
            response.headers_mut().remove(header::CONNECTION);
        } else if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let has_no_length = response.body().size_hint().exact().is_none();
            let is_last = !stays || version == Version::HTTP_10 && has_no_length;
            if is_last || connection.is_used_up(site.settings.keep_alive_requests) {
                end_connection(&mut response);
            }
            if version == Version::HTTP_10 {
                for_http10(&mut response);
            }
        }
        // hyper would send the body by HTTP/2.
        if let Some(length) =
            is_head.then(|| response.body_mut().leave_out()).flatten().filter(|length| *length > 0)
        {
            response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        }
        response
    }

    async fn respond(
        &self,
        site: &Site,
        connection: &Arc<Connection>,
        request: Request<Incoming>,
    ) -> Response<Outgoing> {
        let in_flight = connection.begin_request(request.version());
        if request.version() == Version::HTTP_2 {
            stats::H2_REQUESTS.fetch_add(1, Relaxed);
        }
        let (mut parts, body) = request.into_parts();
        let is_h2 = parts.version == Version::HTTP_2;
        let error = if is_h2 {
            requests::judge(&parts, site.settings.limits())
        } else {
            match connection.notes.take() {
                Some(Note::Refused(error)) => Some(error),
                Some(Note::Target(target)) => {
                    parts.extensions.insert(SentTarget(target));
                    None
                }
                None => None,
            }
        };
        if let Some(error) = error {
            let address = connection.peer.ip().to_canonical();
            let logged = site.log.as_ref().map(|log| match is_h2 {
                true => Logged::new(log, &parts, address),
                false => Logged::unread(log, address),
            });
            return answered(refused(error), in_flight, logged);
        }
        let client = forwarded::client(connection.peer, connection.is_tls, &parts.headers, |ip| {
            site.settings.is_trusted(ip)
        });
        let logged =
            site.log.as_ref().map(|log| Logged::new(log, &parts, client.address.ip().to_canonical()));
        if let Some(text) = site.settings.acme.as_ref().and_then(|_| self.challenges.text(parts.uri.path())) {
            let response = Response::new(Source::Own(Content::Memory(Some(text.into()))));
            return answered(response, in_flight, logged);
        }
        let is_kept = site.settings.force_ssl_except.iter().any(|one| files::matches(one, parts.uri.path()));
        if let Some(mut response) = redirect(connection, &parts, client).filter(|_| !is_kept) {
            if !body.is_end_stream() {
                end_connection(&mut response);
            }
            return answered(response, in_flight, logged);
        }
        for files in &site.files {
            if let Some(response) = files.answer(&parts).await {
                stats::FILES.fetch_add(1, Relaxed);
                return answered(response.map(Source::Own), in_flight, logged);
            }
        }
        Exchange { site, upstream: &self.upstream, connection, client }
            .run(parts, body, in_flight, logged)
            .await
    }
}

fn with(response: Response<Source>, request: InFlight) -> Response<Outgoing> {
    response.map(|source| Outgoing::new(source, request))
}

/// An answer of this process, which has its line in the access log.
fn answered(response: Response<Source>, request: InFlight, logged: Option<Logged>) -> Response<Outgoing> {
    let line = logged.map(|logged| logged.answer(response.status().as_u16()));
    response.map(|source| Outgoing::new(source, request).with_line(line))
}

/// The answer to a request that reaches no app, as of a worker (crates/http/src/error_response.rs).
fn refused(error: Error) -> Response<Source> {
    let mut response = own(StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST));
    *response.body_mut() = Source::Own(Content::Memory(Some(error_body(error).into())));
    end_connection(&mut response);
    response
}

/// Has the connection of HTTP/1 end with this response.
fn end_connection<T>(response: &mut Response<T>) {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
}

/// Says to a client of HTTP/1.0 whether the connection goes on. hyper says that it does, unless the response is one of HTTP/1.0, too.
fn for_http10<T>(response: &mut Response<T>) {
    *response.version_mut() = Version::HTTP_10;
    let fields = response.headers_mut();
    let is_last = fields.get(header::CONNECTION).is_some_and(|value| value == "close");
    if !is_last {
        fields.append(header::CONNECTION, HeaderValue::from_static("keep-alive"));
    }
}

/// The redirect to https where the listener has one. A client that came to a trusted proxy by https is there already.
fn redirect(connection: &Connection, request: &Parts, client: Client) -> Option<Response<Source>> {
    let port = connection.redirect_to.filter(|_| !client.is_https)?;
    let host = requests::host(request).unwrap_or(&connection.listener);
    let name = host.parse::<uri::Authority>().ok()?.host().to_owned();
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    // 307 keeps method and body (RFC 9110 §15.4.8); 301 is what caches know.
    let is_safe = matches!(request.method, Method::GET | Method::HEAD);
    let mut response =
        own(if is_safe { StatusCode::MOVED_PERMANENTLY } else { StatusCode::TEMPORARY_REDIRECT });
    response
        .headers_mut()
        .insert(header::LOCATION, HeaderValue::try_from(format!("https://{name}{port}{path}")).ok()?);
    Some(response)
}

/// A request on its way to a worker, and back.
struct Exchange<'a> {
    site: &'a Site,
    upstream: &'a Upstream,
    connection: &'a Arc<Connection>,
    client: Client,
}

impl Exchange<'_> {
    async fn run(
        &self,
        mut parts: Parts,
        body: Incoming,
        mut in_flight: InFlight,
        logged: Option<Logged>,
    ) -> Response<Outgoing> {
        let change = match Change::of(&mut parts, !body.is_end_stream()) {
            Ok(change) => change,
            Err(status) => return answered(own(status), in_flight, logged),
        };
        // The stream of an extended CONNECT is no body.
        let has_body = change.is_none() && !body.is_end_stream();
        let progress = has_body.then(|| Progress::new(worker_request::waits(&parts)));
        let body =
            progress.as_ref().map(|progress| Uploaded::new(body, Arc::clone(progress), in_flight.clone()));
        worker_request::prepare(&mut parts, body.as_ref(), self.site, self.connection, self.client);
        let asked = Asked::of(&parts);
        // After the request's time was noted: this wait is time in the queue.
        match self.upstream.place(self.connection).await {
            Ok(place) => in_flight.keep(place),
            Err(failure) => {
                let mut response = failed(&failure);
                if body.is_some() {
                    end_connection(&mut response);
                }
                return answered(response, in_flight, logged);
            }
        }
        let mut answer = match self.send(parts, body).await {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => match change {
                Some(change) => change.make(response, in_flight),
                None => answered(own(StatusCode::BAD_GATEWAY), in_flight, logged),
            },
            // The client would take it for an open tunnel (RFC 8441 §5).
            Ok(response)
                if response.status().is_success() && change.is_some_and(|change| change.is_stream()) =>
            {
                answered(own(StatusCode::BAD_GATEWAY), in_flight, logged)
            }
            Ok(response) => {
                with(finish::for_client(self.site, self.connection, response, &asked).await, in_flight)
            }
            Err(failure) => answered(failed(&failure), in_flight, logged),
        };
        // The rest of the body is no request.
        if progress.is_some_and(|progress| !progress.is_whole()) {
            end_connection(&mut answer);
        }
        answer
    }

    /// Sends the request. A GET or HEAD without a body is sent again if its worker dies.
    async fn send(&self, parts: Parts, body: Option<Uploaded>) -> Result<Response<WorkerBody>, Failure> {
        let is_repeatable = matches!(parts.method, Method::GET | Method::HEAD) && body.is_none();
        let (request, upload) = upstream::Request::new(&parts, body);
        drop(parts);
        let kept_for = self.site.settings.times().idle;
        let result = self.upstream.send(&request, upload, kept_for, self.connection).await;
        if is_repeatable && matches!(result, Err(Failure::Lost)) {
            stats::RETRIED.fetch_add(1, Relaxed);
            return self.upstream.send_anew(&request, self.connection).await;
        }
        result
    }
}

fn failed(failure: &Failure) -> Response<Source> {
    let (status, count) = match failure {
        // A shortage that may pass: of the workers, or of this process.
        Failure::Unreachable(error) if upstream::may_pass(error) => {
            (StatusCode::SERVICE_UNAVAILABLE, &stats::SHORTAGE)
        }
        Failure::Unreachable(error) => {
            crate::control::warn(&format!("no worker can be reached: {error}"));
            (StatusCode::BAD_GATEWAY, &stats::NO_WORKER)
        }
        Failure::Lost => (StatusCode::BAD_GATEWAY, &stats::WORKER_DIED),
        Failure::Upload(Some(error)) => {
            stats::BROKEN_UPLOADS.fetch_add(1, Relaxed);
            return refused(*error);
        }
        Failure::Upload(None) => (StatusCode::BAD_REQUEST, &stats::BROKEN_UPLOADS),
        Failure::Other(error) => {
            crate::control::warn(&format!("no response of a worker can be used: {error}"));
            (StatusCode::BAD_GATEWAY, &stats::BAD_RESPONSE)
        }
    };
    count.fetch_add(1, Relaxed);
    if status == StatusCode::BAD_GATEWAY {
        stats::BAD_GATEWAY.fetch_add(1, Relaxed);
    }
    own(status)
}
