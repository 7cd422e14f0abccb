//! HTTP of a client, of any version, by hyper.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::header::{HeaderValue, CONNECTION};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;

use super::streams::Streams;
use super::Server;
use crate::body::Outgoing;
use crate::connection::Connection;
use crate::handler::Handler;
use crate::settings::Settings;
use crate::stats;
use crate::watched::Watched;

/// Bytes of responses that an HTTP/2 stream may have in memory.
const STREAM_BUFFER: usize = 64 * 1024;

/// Bytes that a client may send on an HTTP/2 connection, and on one of its streams, before the app takes them. With many clients each one
/// gets a share of [`UPLOADS`], but no less than RFC 9113 §6.9.2 has.
const CONNECTION_WINDOW: u64 = 1024 * 1024;
const STREAM_WINDOW: u32 = 256 * 1024;
const LEAST_WINDOW: u64 = 65_535;
const UPLOADS: u64 = 32 * 1024 * 1024;

/// Bytes in memory for a client of HTTP/1.1, each way.
const BUFFER: usize = 64 * 1024;

/// Least size of hyper's buffer, in bytes. Where clients may choose their protocol, the buffer also limits a request's head.
const LEAST_BUFFER: usize = 8 * 1024;

/// How much longer a head may become for hyper, which does not take each byte of a target as it is.
const LONGER: usize = 3;

/// The protocols that a client may speak.
#[derive(Clone, Copy, Debug)]
pub(super) enum Protocol {
    Http1,
    Http2,
    /// By its first bytes.
    Either,
}

/// The HTTP of a connection, of any version.
pub(super) trait Http: Send {
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

impl Server {
    /// HTTP of this client by hyper.
    pub(super) fn http(
        &self,
        stream: Watched,
        protocol: Protocol,
        connection: &Arc<Connection>,
        settings: &Settings,
    ) -> Pin<Box<dyn Http>> {
        let service = Answers { handler: Arc::clone(&self.handler), connection: Arc::clone(connection) };
        let io = TokioIo::new(stream);
        let streams = Streams::new(connection, settings.times().write);
        match protocol {
            Protocol::Http1 => {
                Box::pin(http1_builder(settings).serve_connection(io, service).with_upgrades())
            }
            // HTTP/2 needs no upgrades. With the builder's upgrades, which are for HTTP/1.1, it would take either protocol.
            Protocol::Http2 => {
                connection.set_frames();
                let builder = auto_builder(settings, streams).http2_only();
                Box::pin(builder.serve_connection(io, service).into_owned())
            }
            Protocol::Either => {
                let builder = auto_builder(settings, streams);
                Box::pin(builder.serve_connection_with_upgrades(io, service).into_owned())
            }
        }
    }
}

fn http1_builder(settings: &Settings) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The time of a head is that of `drive`. With pipeline_flush, hyper would keep its own 400 back.
    builder
        .header_read_timeout(None)
        .max_headers(settings.max_header_fields)
        .max_header_size(settings.max_header_size.saturating_mul(LONGER))
        .max_buf_size(settings.max_header_size.max(BUFFER));
    builder
}

/// The window of an HTTP/2 connection that begins beside so many others.
fn connection_window(clients: u64) -> u32 {
    (UPLOADS / clients.max(1)).clamp(LEAST_WINDOW, CONNECTION_WINDOW) as u32
}

fn auto_builder(settings: &Settings, streams: Streams) -> auto::Builder<Streams> {
    let window = connection_window(stats::OPEN.load(Relaxed));
    let mut builder = auto::Builder::new(streams);
    builder
        .http1()
        .header_read_timeout(None)
        .max_headers(settings.max_header_fields)
        .max_buf_size(settings.max_header_size.max(LEAST_BUFFER));
    builder
        .http2()
        .max_concurrent_streams(settings.max_streams)
        .max_header_list_size(u32::try_from(settings.max_header_size).unwrap_or(u32::MAX))
        .max_send_buf_size(STREAM_BUFFER)
        .initial_connection_window_size(window)
        .initial_stream_window_size(STREAM_WINDOW.min(window))
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
        Box::pin(async move {
            let has_frames = request.version() == Version::HTTP_2;
            let mut response = handler.answer(&connection, request).await;
            let changes = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            if connection.is_last() && !has_frames && !changes {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
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
    auto::Connection<'static, TokioIo<Watched>, Answers, Streams> {}
    auto::UpgradeableConnection<'static, TokioIo<Watched>, Answers, Streams> {}
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_share_the_bytes_that_they_may_send_before_the_app_takes_them() {
        let all: u64 = (1..=1000).map(|clients| u64::from(connection_window(clients))).sum();
        assert!(all < 160 * 1024 * 1024, "{all}");
        assert_eq!([1, 32, 64, 100_000].map(connection_window), [1 << 20, 1 << 20, 1 << 19, 65_535]);
    }
}
