//! Drives a client's connection to its end.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::http::{Http, Protocol};
use super::Server;
use crate::connection::Connection;

/// How long a client gets to take the end of its idle connection.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// A client that has sent and taken nothing for this time counts as idle.
const QUIET_BEFORE_PARK: Duration = Duration::from_secs(1);

impl Server {
    /// Drives a connection to its end.
    pub(super) async fn drive(mut self, mut http: Pin<Box<dyn Http>>, connection: &Arc<Connection>) {
        let mut is_stopping = false;
        let mut has_looked = false;
        loop {
            let times = self.handler.site().settings.times();
            let left = connection.time_left(times);
            if left.is_none() && has_looked {
                http.as_mut().end_gracefully();
                let _ = timeout(LAST_MOMENT, poll_fn(|cx| http.as_mut().poll_end(cx))).await;
                return;
            }
            has_looked = left.is_none();
            if has_looked {
                connection.look();
            }
            let left = left.unwrap_or(Duration::ZERO);
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
