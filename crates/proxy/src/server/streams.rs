//! HTTP/2 streams: each one has its own time for the client to take its response.

use std::future::{poll_fn, Future};
use std::pin::{pin, Pin};
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{sleep, Sleep};

use crate::clock::Clock;
use crate::connection::Connection;

/// Runs the streams of a connection.
#[derive(Clone, Debug)]
pub struct Streams {
    connection: Arc<Connection>,
    /// Time for the client to take more of a response.
    write: Duration,
}

impl Streams {
    /// Those of this connection.
    pub fn new(connection: &Arc<Connection>, write: Duration) -> Self {
        Streams { connection: Arc::clone(connection), write }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        tokio::spawn(self.clone().run(stream));
    }
}

impl Streams {
    /// Runs hyper's task of a stream. A client that takes nothing of the response for too long has the stream reset, and no other one: h2
    /// resets what is dropped.
    async fn run(self, stream: impl Future<Output = ()>) {
        let clock = Clock::new();
        let mut timer = None;
        let mut stream = pin!(stream);
        poll_fn(|cx| {
            let end = clock.during(|| stream.as_mut().poll(cx));
            if end.is_ready() {
                return end;
            }
            self.poll_stalled(&clock, &mut timer, cx)
        })
        .await;
    }

    /// Ready when the client has taken nothing for too long.
    fn poll_stalled(
        &self,
        clock: &Clock,
        timer: &mut Option<Pin<Box<Sleep>>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            let Some(waiting) = clock.waiting() else {
                *timer = None;
                return Poll::Pending;
            };
            // While the socket is full, the connection's time counts.
            let waiting = if self.connection.is_full() { Duration::ZERO } else { waiting };
            let Some(left) = self.write.checked_sub(waiting).filter(|left| !left.is_zero()) else {
                return Poll::Ready(());
            };
            ready!(timer.get_or_insert_with(|| Box::pin(sleep(left))).as_mut().poll(cx));
            *timer = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::tests::connection;

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_its_client_takes_nothing_of_what_it_is_offered() {
        let write = Duration::from_secs(60);
        let second = Duration::from_secs(1);
        let clock = Arc::new(std::sync::OnceLock::new());
        let (seen, streams) = (Arc::clone(&clock), Streams::new(&connection(), write));
        let task = tokio::spawn(streams.run(poll_fn(move |_| {
            seen.get_or_init(|| {
                let clock = Clock::current().expect("a clock");
                clock.offer(true);
                clock
            });
            Poll::Pending
        })));
        tokio::time::sleep(write - second).await;
        clock.get().expect("a clock").offer(true);
        tokio::time::sleep(write - second).await;
        assert!(!task.is_finished(), "the client has taken a part");
        tokio::time::sleep(second * 2).await;
        assert!(task.is_finished());
        assert!(Clock::current().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_lasts_while_the_app_has_the_next_part() {
        let streams = Streams::new(&connection(), Duration::from_secs(60));
        let task = tokio::spawn(streams.run(std::future::pending()));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!task.is_finished());
    }
}
