//! TLS handshakes with clients.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;

use rustls::{HandshakeKind, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_rustls::TlsAcceptor;

use super::http::Protocol;
use crate::acme;
use crate::stats;

/// The stream after the handshake, and the client's protocol; None: the connection has no use after the handshake.
pub(super) async fn shake_hands(
    stream: TcpStream,
    tls: Arc<ServerConfig>,
    time: Duration,
) -> Option<(Box<TlsStream<TcpStream>>, Protocol)> {
    let Ok(Ok(stream)) = timeout(time, TlsAcceptor::from(tls).accept(stream)).await else {
        stats::HANDSHAKE_ERRORS.fetch_add(1, Relaxed);
        return None;
    };
    let session = stream.get_ref().1;
    stats::HANDSHAKES.fetch_add(1, Relaxed);
    if session.handshake_kind() == Some(HandshakeKind::Resumed) {
        stats::RESUMED.fetch_add(1, Relaxed);
    }
    let protocol = match session.alpn_protocol() {
        // The authority asked for the handshake only.
        Some(acme::ALPN) => return None,
        Some(b"h2") => Protocol::Http2,
        _ => Protocol::Http1,
    };
    Some((Box::new(stream), protocol))
}
