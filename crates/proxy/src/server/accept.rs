//! Accepts clients.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::{Endpoint, Server};
use crate::control;
use crate::stats;

/// Pause after a shortage of the system, such as that of descriptors: clients wait in the backlog meanwhile.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

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
}

async fn accept_after(wait: Duration, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    if !wait.is_zero() {
        sleep(wait).await;
    }
    listener.accept().await
}

/// Whether accept(2) has failed because of the client that was to be accepted.
fn is_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}
