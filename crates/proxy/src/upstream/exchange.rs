//! A request and its response, by one connection to a worker.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use hyper::body::Bytes;
use hyper::StatusCode;

use super::head::{Head, Malformed};
use super::sending::{Sending, Unsent};
use crate::worker_socket::WorkerSocket;

/// Bytes that are read at once before the body.
const READ: usize = 8 * 1024;

/// Bytes of a response's head, at most.
const MOST_HEAD: usize = 512 * 1024;

/// Why an exchange has no response.
#[derive(Debug)]
pub enum Ended {
    /// The worker has not received anything of the request.
    Unsent,
    /// The connection has ended before the response. The worker may have received the request.
    Lost,
    /// The request's body has not arrived whole.
    Upload(Option<hyper::Error>),
    /// The response makes no sense.
    Malformed(Malformed),
}

/// Sends the request, of which the rest stays in `sending` if the response comes first. Returns the response's head, and the bytes behind it.
pub async fn exchange(
    socket: &Arc<WorkerSocket>,
    sending: &mut Option<Sending>,
    is_head: bool,
) -> Result<(Head, Bytes), Ended> {
    let mut read = Bytes::new();
    poll_fn(|cx| {
        poll_send(sending, cx)?;
        loop {
            if let Some((head, length)) = parse(&read, is_head)? {
                drop(read.split_to(length));
                if head.parts.status.is_informational()
                    && head.parts.status != StatusCode::SWITCHING_PROTOCOLS
                {
                    if head.parts.status == StatusCode::CONTINUE {
                        sending.iter().for_each(Sending::want);
                        poll_send(sending, cx)?;
                    }
                    continue;
                }
                return Poll::Ready(Ok((head, std::mem::take(&mut read))));
            }
            let more = ready!(socket.poll_read(cx, READ)).map_err(lost)?;
            if more.is_empty() {
                return Poll::Ready(Err(Ended::Lost));
            }
            read = if read.is_empty() { more } else { [read.as_ref(), &more].concat().into() };
        }
    })
    .await
}

/// Writes what the worker takes of the request.
fn poll_send(sending: &mut Option<Sending>, cx: &mut Context<'_>) -> Result<(), Ended> {
    match sending.as_mut().map(|sending| sending.poll(cx)) {
        None | Some(Poll::Pending) => return Ok(()),
        Some(Poll::Ready(Ok(()))) => {}
        Some(Poll::Ready(Err(Unsent::Upload(error)))) => return Err(Ended::Upload(error)),
        Some(Poll::Ready(Err(Unsent::Closed { is_begun: false }))) => return Err(Ended::Unsent),
        // The worker may have answered before it has closed the connection.
        Some(Poll::Ready(Err(Unsent::Closed { is_begun: true }))) => {}
    }
    *sending = None;
    Ok(())
}

fn parse(read: &Bytes, is_head: bool) -> Result<Option<(Head, usize)>, Ended> {
    if read.is_empty() {
        return Ok(None);
    }
    match Head::parse(read, is_head) {
        Ok(None) if read.len() > MOST_HEAD => Err(Ended::Malformed(Malformed("the head is too large"))),
        result => result.map_err(Ended::Malformed),
    }
}

/// Workers end connections in these ways.
fn lost(_: io::Error) -> Ended {
    Ended::Lost
}
