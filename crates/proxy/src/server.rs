//! Accepting clients, and driving their connections.

use std::convert::Infallible;
use std::future::{poll_fn, Future};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::{HandshakeKind, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{watch, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;
use tokio_rustls::TlsAcceptor;

use crate::acme;
use crate::body::Outgoing;
use crate::connection::{Connection, Stream, Watched};
use crate::control;
use crate::handler::Handler;
use crate::rate::Rate;
use crate::settings::Settings;
use crate::stats;

/// Pause after a shortage of the system, such as that of descriptors: clients wait in the backlog meanwhile.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// How long a client gets to take the end of its idle connection.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// A client that has sent and taken nothing for this time counts as idle.
const QUIET_BEFORE_PARK: Duration = Duration::from_secs(1);

/// Bytes of responses that an HTTP/2 stream may have in memory.
const STREAM_BUFFER: usize = 64 * 1024;

/// Bytes that a client may send on an HTTP/2 connection, and on one of its streams, before the app takes them.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const STREAM_WINDOW: u32 = 256 * 1024;

/// Least size of hyper's buffer, in bytes. The buffer also limits a request's head.
const LEAST_BUFFER: usize = 8 * 1024;

/// Most fields of a request, as in the worker.
const MAX_FIELDS: usize = 128;

/// The protocols and settings of a listener.
#[derive(Debug)]
pub struct Endpoint {
    /// Its address.
    pub name: Arc<str>,
    /// None without TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// See [`crate::settings::Listener`].
    pub redirect_to: Option<u16>,
    /// See [`crate::settings::Listener`].
    pub proxy_protocol: bool,
}

/// The protocols that a client may speak.
#[derive(Clone, Copy, Debug)]
enum Protocol {
    Http1,
    Http2,
    /// By its first bytes.
    Either,
}

/// State that the clients of one thread share.
#[derive(Clone, Debug)]
pub struct Server {
    /// Answers their requests.
    pub handler: Arc<Handler>,
    /// Places for clients, one for each.
    pub places: Arc<Semaphore>,
    /// Limits the TLS handshakes of all threads.
    pub handshakes: Arc<Rate>,
    /// True when the process is to end.
    pub stop: watch::Receiver<bool>,
}

impl Server {
    /// Accepts clients until the process is to end.
    pub async fn accept(mut self, listener: TcpListener, endpoint: Arc<Endpoint>) {
        loop {
            // While there is no place, clients wait in the backlog.
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return };
            let wait = self.wait_for_handshakes(&endpoint);
            let accepted = tokio::select! {
                accepted = accept_after(wait, &listener) => accepted,
                _ = self.stop.wait_for(|stop| *stop) => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let (server, endpoint) = (self.clone(), Arc::clone(&endpoint));
                    tokio::spawn(async move {
                        stats::CONNECTIONS.fetch_add(1, Relaxed);
                        stats::OPEN.fetch_add(1, Relaxed);
                        server.serve(stream, peer, &endpoint).await;
                        stats::OPEN.fetch_sub(1, Relaxed);
                        drop(place);
                    });
                }
                Err(error) if is_clients(&error) => {}
                Err(error) => {
                    control::warn(&format!("cannot accept clients: {error}"));
                    sleep(SHORTAGE_PAUSE).await;
                }
            }
        }
    }

    /// How long the next client has to stay in the backlog.
    fn wait_for_handshakes(&self, endpoint: &Endpoint) -> Duration {
        let limit = endpoint.tls.as_ref().and_then(|_| self.handler.site().settings.max_ssl_rate);
        limit.map_or(Duration::ZERO, |per_second| self.handshakes.take(per_second))
    }

    async fn serve(self, mut stream: TcpStream, mut peer: SocketAddr, endpoint: &Endpoint) {
        let site = self.handler.site();
        // Sends a response as soon as it is there (tcp(7)). Fails only if the client has gone.
        let _ = stream.set_nodelay(true);
        if endpoint.proxy_protocol {
            match timeout(site.settings.times().head, crate::proxy_protocol::read(&mut stream)).await {
                Ok(Ok(named)) => peer = named.unwrap_or(peer),
                _ => return,
            }
        }
        let connection =
            Connection::new(peer, endpoint.tls.is_some(), Arc::clone(&endpoint.name), endpoint.redirect_to);
        // A connection's task is as large as its largest part. So the task has pointers to large parts: to the handshake first, then to the
        // client's HTTP.
        let http = if let Some(tls) = &endpoint.tls {
            let handshake = Box::pin(shake_hands(stream, Arc::clone(tls), site.settings.times().head));
            let Some((stream, protocol)) = handshake.await else { return };
            self.http(
                Watched::new(Stream::Tls(stream), Arc::clone(&connection)),
                protocol,
                &connection,
                &site.settings,
            )
        } else {
            let protocol = if site.settings.h2c { Protocol::Either } else { Protocol::Http1 };
            self.http(
                Watched::new(Stream::Plain(stream), Arc::clone(&connection)),
                protocol,
                &connection,
                &site.settings,
            )
        };
        drop(site);
        self.drive(http, &connection).await;
    }

    fn http(
        &self,
        stream: Watched,
        protocol: Protocol,
        connection: &Arc<Connection>,
        settings: &Settings,
    ) -> Pin<Box<dyn Http>> {
        let service = Answers { handler: Arc::clone(&self.handler), connection: Arc::clone(connection) };
        let io = TokioIo::new(stream);
        match protocol {
            Protocol::Http1 => {
                Box::pin(http1_builder(settings).serve_connection(io, service).with_upgrades())
            }
            // HTTP/2 needs no upgrades. With the builder's upgrades, which are for HTTP/1.1, it would take either protocol.
            Protocol::Http2 => {
                let builder = auto_builder(settings).http2_only();
                Box::pin(builder.serve_connection(io, service).into_owned())
            }
            Protocol::Either => {
                let builder = auto_builder(settings);
                Box::pin(builder.serve_connection_with_upgrades(io, service).into_owned())
            }
        }
    }

    /// Drives a connection to its end.
    async fn drive(mut self, mut http: Pin<Box<dyn Http>>, connection: &Arc<Connection>) {
        let mut is_stopping = false;
        loop {
            let times = self.handler.site().settings.times();
            let Some(left) = connection.time_left(times) else {
                http.as_mut().end_gracefully();
                let _ = timeout(LAST_MOMENT, poll_fn(|cx| http.as_mut().poll_end(cx))).await;
                return;
            };
            let pause = if http.can_park() { left.min(QUIET_BEFORE_PARK) } else { left };
            tokio::select! {
                // This branch comes first: if the connection has news when its time is over, the news counts.
                biased;
                refused = poll_fn(|cx| http.as_mut().poll_end(cx)) => {
                    if let Some(status) = refused {
                        self.handler.log_refusal(connection, status);
                    }
                    return;
                }
                _ = self.stop.wait_for(|stop| *stop), if !is_stopping => {
                    http.as_mut().end_gracefully();
                    is_stopping = true;
                }
                () = sleep(pause) => {}
            }
            if http.can_park() && !is_stopping && connection.is_quiet(QUIET_BEFORE_PARK) {
                let Some(parked) = self.park(http, connection, times.idle).await else { return };
                http = parked;
            }
        }
    }

    /// Waits for the next request without hyper's buffers, which take more than half of an idle client's memory.
    async fn park(
        &mut self,
        http: Pin<Box<dyn Http>>,
        connection: &Arc<Connection>,
        time: Duration,
    ) -> Option<Pin<Box<dyn Http>>> {
        let mut stream = http.park()?;
        tokio::select! {
            () = stream.wait() => {}
            _ = self.stop.wait_for(|stop| *stop) => {}
            () = sleep(time.saturating_sub(QUIET_BEFORE_PARK)) => {}
        }
        Some(self.http(stream, Protocol::Http1, connection, &self.handler.site().settings))
    }
}

async fn accept_after(wait: Duration, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    if !wait.is_zero() {
        sleep(wait).await;
    }
    listener.accept().await
}

/// The stream after the handshake, and the client's protocol; None: the connection has no use after the handshake.
async fn shake_hands(
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

fn http1_builder(settings: &Settings) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The time of a head is that of `drive`. With pipeline_flush, hyper would keep its own 400 back.
    builder.header_read_timeout(None).max_headers(MAX_FIELDS).max_header_size(settings.max_header_size);
    builder
}

fn auto_builder(settings: &Settings) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .header_read_timeout(None)
        .max_headers(MAX_FIELDS)
        .max_buf_size(settings.max_header_size.max(LEAST_BUFFER));
    builder
        .http2()
        .max_concurrent_streams(settings.max_streams)
        .max_header_list_size(u32::try_from(settings.max_header_size).unwrap_or(u32::MAX))
        .max_send_buf_size(STREAM_BUFFER)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .enable_connect_protocol();
    builder
}

/// The status with which hyper has refused a request of HTTP/1.1.
fn refusal(error: &(dyn std::error::Error + 'static)) -> Option<StatusCode> {
    let error = error.downcast_ref::<hyper::Error>().filter(|error| error.is_parse())?;
    Some(if error.is_parse_too_large() {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    } else {
        StatusCode::BAD_REQUEST
    })
}

/// Answers the requests of one client.
struct Answers {
    handler: Arc<Handler>,
    connection: Arc<Connection>,
}

impl Service<Request<Incoming>> for Answers {
    type Response = Response<Outgoing>;
    type Error = Infallible;
    /// On the heap while there is a request: hyper has room for it in each connection.
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (handler, connection) = (Arc::clone(&self.handler), Arc::clone(&self.connection));
        Box::pin(async move { Ok(handler.answer(&connection, request).await) })
    }
}

/// The HTTP of a connection, of any version.
trait Http: Send {
    /// Drives it to its end. The status with which hyper has refused a request of HTTP/1.1; other errors are the client's.
    fn poll_end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<StatusCode>>;

    /// Has it end after its requests.
    fn end_gracefully(self: Pin<&mut Self>);

    /// Whether [`park`](Self::park) gives the stream.
    fn can_park(&self) -> bool {
        false
    }

    /// The stream of a connection whose requests have ended; None if this kind of connection does not give it.
    fn park(self: Pin<Box<Self>>) -> Option<Watched> {
        None
    }
}

/// hyper-util has a trait for the end, but not for HTTP/1.1 with upgrades.
macro_rules! impl_http {
    ($($connection:ty { $($park:item)* })*) => {
        $(impl Http for $connection {
            fn poll_end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<StatusCode>> {
                self.poll(cx).map(|end| end.err().and_then(|error| refusal(&*Box::<dyn std::error::Error + Send + Sync>::from(error))))
            }

            fn end_gracefully(self: Pin<&mut Self>) {
                self.graceful_shutdown();
            }

            $($park)*
        })*
    };
}

impl_http!(
    http1::UpgradeableConnection<TokioIo<Watched>, Answers> {
        fn can_park(&self) -> bool {
            true
        }

        fn park(self: Pin<Box<Self>>) -> Option<Watched> {
            let parts = Pin::into_inner(self).into_parts()?;
            Some(parts.io.into_inner().give_back(parts.read_buf))
        }
    }
    auto::Connection<'static, TokioIo<Watched>, Answers, TokioExecutor> {}
    auto::UpgradeableConnection<'static, TokioIo<Watched>, Answers, TokioExecutor> {}
);

/// Whether accept(2) has failed because of the client that was to be accepted.
fn is_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<F>(_: impl FnOnce(Server, TcpStream, SocketAddr, &'static Endpoint) -> F) -> usize {
        size_of::<F>()
    }

    /// Ten thousand idle clients have such a task each.
    #[test]
    fn a_clients_task_has_no_room_for_tls_and_http() {
        assert!(size(Server::serve) < 1536, "{}", size(Server::serve));
        assert!(size_of::<Watched>() < 128, "{}", size_of::<Watched>());
    }
}
