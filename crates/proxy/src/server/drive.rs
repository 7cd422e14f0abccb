//! Drives a client's connection to its end.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::http::{Http, Protocol};
use super::Server;
use crate::connection::{Connection, Times};
use crate::ending::Stop;

/// How long a client gets to take the end of its idle connection.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// A client that has sent and taken nothing for this time counts as idle.
const QUIET_BEFORE_PARK: Duration = Duration::from_secs(1);

/// Interval of looks at a connection of a process that is to end: a request may end at any time.
const STOP_LOOK: Duration = Duration::from_millis(250);

impl Server {
    /// Drives a connection to its end.
    pub(super) async fn drive(mut self, mut http: Pin<Box<dyn Http>>, connection: &Arc<Connection>) {
        let mut has_said_goodbye = false;
        let mut has_looked = false;
        loop {
            let times = self.handler.site().settings.times();
            let stop = *self.stop.borrow_and_update();
            let left = time_left(connection, times, stop.as_ref());
            if left.is_none() && has_looked {
                // The system would keep what it has buffered for a client that takes nothing.
                if connection.is_full() {
                    return connection.cut();
                }
                if connection.become_late() {
                    // A head that has begun is refused.
                    let has_ended = poll_fn(|cx| Poll::Ready(http.as_mut().poll_end(cx).is_ready())).await;
                    if has_ended {
                        return;
                    }
                    has_looked = false;
                    continue;
                }
                http.as_mut().end_gracefully();
                let _ = timeout(LAST_MOMENT, poll_fn(|cx| http.as_mut().poll_end(cx))).await;
                return;
            }
            // Bytes of the client may have come, or may have been acknowledged, at the last moment.
            has_looked = left.is_none();
            if has_looked {
                connection.look();
            }
            let left = left.unwrap_or(Duration::ZERO);
            let pause = if http.can_park() { left.min(QUIET_BEFORE_PARK) } else { left };
            let end = poll_fn(|cx| {
                // GOAWAY comes first, and the last one after the client's answer, so that requests which cross it are served (RFC 9113 §6.8).
                if stop.is_some() && connection.has_frames() && !has_said_goodbye {
                    http.as_mut().end_gracefully();
                    has_said_goodbye = true;
                }
                http.as_mut().poll_end(cx)
            });
            tokio::select! {
                // This branch comes first: if the connection has news when its time is over, the news counts.
                biased;
                refused = end => {
                    if let Some(status) = refused {
                        self.handler.log_refusal(connection, status);
                    }
                    return;
                }
                Ok(()) = self.stop.changed() => {}
                () = sleep(pause) => {}
            }
            if http.can_park() && stop.is_none() && connection.is_quiet(QUIET_BEFORE_PARK) {
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
            _ = self.stop.changed() => {}
            () = sleep(time.saturating_sub(QUIET_BEFORE_PARK)) => {}
        }
        Some(self.http(stream, Protocol::Http1, connection, &self.handler.site().settings))
    }
}

/// Time until the client must have sent or taken something; None: the time is over.
fn time_left(connection: &Connection, times: Times, stop: Option<&Stop>) -> Option<Duration> {
    let left = connection.time_left(times)?;
    let to_ask = stop.map_or(Some(Duration::MAX), |stop| connection.time_to_ask(stop))?;
    Some(left.min(to_ask).min(stop.map_or(Duration::MAX, |_| STOP_LOOK)))
}
