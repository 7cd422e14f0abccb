//! Connections that change their protocol: WebSockets, for one.

use hyper::ext::Protocol;
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::TokioIo;

use crate::body::{Outgoing, Source};
use crate::compress;
use crate::connection::InFlight;
use crate::fields;
use crate::files::Content;
use crate::tunnel;
use crate::upstream::WorkerBody;
use crate::work::Kind;

/// The client's side of a change of protocols.
#[derive(Debug)]
pub struct Change {
    client: OnUpgrade,
    /// An HTTP/2 stream (RFC 8441), whose client gets 200 for the worker's 101.
    is_stream: bool,
}

impl Change {
    /// Makes an upgrade of HTTP/1.1 of an extended CONNECT (RFC 8441 §5). Other CONNECTs are for proxies of another kind.
    ///
    /// A request of HTTP/1.1 with content stays one: a server may ignore Upgrade (RFC 9110 §7.8), but not the content. Java's client and
    /// `curl --http2` send `Upgrade: h2c` with each first request.
    pub fn of(parts: &mut Parts, has_content: bool) -> Result<Option<Self>, StatusCode> {
        let upgrade = fields::remove_hop_by_hop(&mut parts.headers);
        let protocol =
            parts.extensions.get::<Protocol>().map(|protocol| HeaderValue::try_from(protocol.as_str()));
        let is_stream = parts.method == Method::CONNECT;
        let upgrade = match (is_stream, protocol) {
            (true, Some(Ok(protocol))) => {
                parts.method = Method::GET;
                parts.headers.insert(header::SEC_WEBSOCKET_KEY, web_socket_key());
                Some(protocol)
            }
            (true, _) => return Err(StatusCode::NOT_IMPLEMENTED),
            (false, _) => upgrade.filter(|_| !has_content),
        };
        let (Some(upgrade), Some(client)) = (upgrade, parts.extensions.remove::<OnUpgrade>()) else {
            return Ok(None);
        };
        parts.headers.insert(header::UPGRADE, upgrade);
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        Ok(Some(Change { client, is_stream }))
    }

    /// Whether the client has asked by an extended CONNECT, and takes any 2xx for an open tunnel.
    pub fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// The response that changes the protocol. Bytes pass both ways until both sides have ended.
    pub fn make(self, response: Response<WorkerBody>, in_flight: InFlight) -> Response<Outgoing> {
        let (parts, worker) = response.into_parts();
        let mut answer = Response::new(());
        *answer.headers_mut() = parts.headers;
        if self.is_stream {
            fields::remove_hop_by_hop(answer.headers_mut());
            answer.headers_mut().remove(header::SEC_WEBSOCKET_ACCEPT);
        } else {
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        }
        // A connection with a tunnel is not idle.
        let mut request = in_flight.clone();
        if !self.is_stream {
            request.becomes_tunnel();
        }
        let tunnel = request.begin_lasting(Kind::Tunnel);
        tokio::spawn(async move {
            let (Ok(client), Some(worker)) = (self.client.await, worker.into_tunnel()) else { return };
            tunnel::pass(TokioIo::new(client), worker, &tunnel).await;
            drop(request);
        });
        answer.map(|()| Outgoing::new(Source::Own(Content::empty()), in_flight))
    }
}

/// A key of sixteen bytes in Base64 (RFC 6455 §4.1): hexadecimal digits are also digits of Base64. The client gets no proof (RFC 8441 §5).
fn web_socket_key() -> HeaderValue {
    let digits = format!("{:016x}{:016x}", compress::random(), compress::random());
    HeaderValue::try_from(format!("{}A==", &digits[..21])).unwrap_or(HeaderValue::from_static(""))
}
