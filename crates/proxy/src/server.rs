//! Accepting clients, and driving their connections.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{pin, Pin};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::{service_fn, HttpService};
use hyper::StatusCode;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use rustls::{HandshakeKind, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{watch, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::acme;
use crate::compress::Error;
use crate::connection::{Connection, Watched};
use crate::control;
use crate::handler::Handler;
use crate::settings::Settings;
use crate::stats;

/// Pause after a shortage of the system, such as that of descriptors: clients wait in the backlog meanwhile.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// How long a client gets to take the end of its idle connection.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// Bytes of responses that an HTTP/2 stream may have in memory.
const STREAM_BUFFER: usize = 64 * 1024;

/// Bytes that a client may send on an HTTP/2 connection, and on one of its streams, before the app takes them.
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const STREAM_WINDOW: u32 = 256 * 1024;

/// hyper wants as many bytes for its buffer, which also bounds a head.
const LEAST_BUFFER: usize = 8 * 1024;

/// Most fields of a request, as in the worker.
const MAX_FIELDS: usize = 128;

/// What a listener's clients get.
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

/// What a client may speak.
#[derive(Clone, Copy, Debug)]
enum Protocol {
    Http1,
    Http2,
    /// By its first bytes.
    Either,
}

/// What the clients of one thread have in common.
#[derive(Clone, Debug)]
pub struct Server {
    /// Answers their requests.
    pub handler: Arc<Handler>,
    /// Has a place for each client.
    pub places: Arc<Semaphore>,
    /// True when the process is to end.
    pub stop: watch::Receiver<bool>,
}

impl Server {
    /// Accepts clients until the process is to end.
    pub async fn accept(mut self, listener: TcpListener, endpoint: Arc<Endpoint>) {
        loop {
            // While there is no place, clients wait in the backlog.
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
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

    async fn serve(self, mut stream: TcpStream, mut peer: SocketAddr, endpoint: &Endpoint) {
        let settings = self.handler.site().settings.clone();
        // A response leaves when it is there (tcp(7)). This fails only if the client has gone.
        let _ = stream.set_nodelay(true);
        if endpoint.proxy_protocol {
            match timeout(settings.head_time(), crate::proxy_protocol::read(&mut stream)).await {
                Ok(Ok(named)) => peer = named.unwrap_or(peer),
                _ => return,
            }
        }
        let connection =
            Connection::new(peer, endpoint.tls.is_some(), Arc::clone(&endpoint.name), endpoint.redirect_to);
        let Some(tls) = &endpoint.tls else {
            let protocol = if settings.h2c { Protocol::Either } else { Protocol::Http1 };
            return self.serve_http(stream, protocol, connection, &settings).await;
        };
        let handshake = TlsAcceptor::from(Arc::clone(tls)).accept(stream);
        let Ok(Ok(stream)) = timeout(settings.head_time(), handshake).await else {
            stats::HANDSHAKE_ERRORS.fetch_add(1, Relaxed);
            return;
        };
        let session = stream.get_ref().1;
        stats::HANDSHAKES.fetch_add(1, Relaxed);
        if session.handshake_kind() == Some(HandshakeKind::Resumed) {
            stats::RESUMED.fetch_add(1, Relaxed);
        }
        if session.alpn_protocol() == Some(acme::ALPN) {
            // The handshake is the proof.
            return;
        }
        let protocol = if session.alpn_protocol() == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 };
        self.serve_http(stream, protocol, connection, &settings).await;
    }

    async fn serve_http<T>(
        self,
        stream: T,
        protocol: Protocol,
        connection: Arc<Connection>,
        settings: &Settings,
    ) where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let handler = Arc::clone(&self.handler);
        let client = Arc::clone(&connection);
        let service = service_fn(move |request| {
            let (handler, client) = (Arc::clone(&handler), Arc::clone(&client));
            async move { handler.answer(&client, request).await }
        });
        let io = TokioIo::new(Watched::new(stream, Arc::clone(&connection)));
        match protocol {
            Protocol::Http1 => {
                let http = http1_builder(settings).serve_connection(io, service);
                self.drive(http.with_upgrades(), &connection).await;
            }
            // auto's upgrades are those of HTTP/1.1, and with them it takes either protocol.
            Protocol::Http2 => {
                let builder = auto_builder(settings).http2_only();
                self.drive(builder.serve_connection(io, service), &connection).await;
            }
            Protocol::Either => {
                let builder = auto_builder(settings);
                self.drive(builder.serve_connection_with_upgrades(io, service), &connection).await;
            }
        }
    }

    /// Drives a connection to its end. Its errors are its client's.
    async fn drive<C: Graceful>(mut self, http: C, connection: &Connection) {
        let mut http = pin!(http);
        let mut is_stopping = false;
        loop {
            let site = self.handler.site();
            let Some(left) = connection.time_left(site.settings.head_time(), site.settings.idle_time())
            else {
                http.as_mut().end_gracefully();
                let _ = timeout(LAST_MOMENT, http).await;
                return;
            };
            tokio::select! {
                result = http.as_mut() => {
                    if let Some(status) = result.err().and_then(|error| refusal(&*error.into())) {
                        self.handler.log_refusal(connection, status);
                    }
                    return;
                }
                _ = self.stop.wait_for(|stop| *stop), if !is_stopping => {
                    http.as_mut().end_gracefully();
                    is_stopping = true;
                }
                () = sleep(left) => {}
            }
        }
    }
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

/// A connection that can be told to end after its requests. hyper-util has such a trait, but not for HTTP/1.1 with upgrades.
trait Graceful: Future<Output = Result<(), Self::Failure>> {
    type Failure: Into<Error>;

    fn end_gracefully(self: Pin<&mut Self>);
}

impl<I, B, S> Graceful for http1::UpgradeableConnection<I, S>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Error>,
    I: Read + Write + Unpin + Send + 'static,
    B: Body + 'static,
    B::Error: Into<Error>,
{
    type Failure = hyper::Error;

    fn end_gracefully(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, S> Graceful for auto::Connection<'_, I, S, TokioExecutor>
where
    Self: GracefulConnection<Error = Error>,
    S: HttpService<Incoming>,
{
    type Failure = Error;

    fn end_gracefully(self: Pin<&mut Self>) {
        GracefulConnection::graceful_shutdown(self);
    }
}

impl<I, S> Graceful for auto::UpgradeableConnection<'_, I, S, TokioExecutor>
where
    Self: GracefulConnection<Error = Error>,
    S: HttpService<Incoming>,
{
    type Failure = Error;

    fn end_gracefully(self: Pin<&mut Self>) {
        GracefulConnection::graceful_shutdown(self);
    }
}

/// Whether accept(2) has failed because of the client that was to be accepted.
fn is_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
