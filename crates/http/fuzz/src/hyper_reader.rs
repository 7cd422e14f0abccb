//! Reads a request with hyper's server, over a connection in memory.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};

use crate::Reading;

/// Limit of the polls of a connection, which is always ready.
const MAX_POLLS: usize = 1000;

/// The first request, if hyper accepts it and its whole body.
pub fn hyper(bytes: &[u8]) -> Option<Reading> {
    let seen = Rc::new(RefCell::new(None));
    let service = service_fn(|request: Request<Incoming>| {
        let seen = Rc::clone(&seen);
        async move {
            let reading = read(request).await;
            // Only the first request counts.
            let mut seen = seen.borrow_mut();
            if seen.is_none() {
                *seen = Some(reading);
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let mut server = http1::Builder::new();
    server.keep_alive(false).half_close(true).header_read_timeout(None).max_headers(128);
    let mut connection = pin!(server.serve_connection(Wire(bytes.to_vec()), service));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..MAX_POLLS {
        if connection.as_mut().poll(&mut context).is_ready() {
            break;
        }
    }
    seen.take().flatten()
}

async fn read(request: Request<Incoming>) -> Option<Reading> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.ok()?.to_bytes().to_vec();
    let fields = head.headers.iter().map(|(name, value)| (name.as_str().into(), value.as_bytes().to_vec()));
    let reading = Reading {
        method: head.method.as_str().into(),
        path: head.uri.path().into(),
        query: head.uri.query().unwrap_or_default().into(),
        minor_version: u8::from(head.version == Version::HTTP_11),
        fields: fields.collect(),
        body,
    };
    Some(reading.sort())
}

/// The bytes that hyper has not read yet.
struct Wire(Vec<u8>);

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let some = buffer.remaining().min(self.0.len());
        buffer.put_slice(&self.0[..some]);
        self.0.drain(..some);
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Whether hyper rejects a target as a URI.
pub fn is_no_uri(target: &[u8]) -> bool {
    hyper::Uri::try_from(target).is_err()
}
