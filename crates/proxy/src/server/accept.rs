//! Accepts clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::{Endpoint, Server};
use crate::control;
use crate::place::Place;

/// Pause after a shortage of the system, such as that of descriptors: clients wait in the backlog meanwhile.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// Accepts clients until the process is to end.
    pub async fn accept(self, listener: TcpListener, endpoint: Arc<Endpoint>) {
        let mut stop = self.stop.clone();
        tokio::select! {
            // This branch comes first: nobody is accepted after the stop, whatever the other branch waits for.
            biased;
            _ = stop.wait_for(Option::is_some) => {}
            () = self.accept_all(&listener, &endpoint) => {}
        }
    }

    async fn accept_all(&self, listener: &TcpListener, endpoint: &Arc<Endpoint>) {
        loop {
            // While there is no place, clients wait in the backlog.
            let Ok(permit) = Arc::clone(&self.places).acquire_owned().await else { return };
            match accept_after(self.wait_for_handshakes(endpoint), listener).await {
                Ok((stream, peer)) => {
                    let (server, endpoint, place) =
                        (self.clone(), Arc::clone(endpoint), Place::new(permit, Arc::clone(&self.work)));
                    tokio::spawn(async move { server.serve(stream, peer, &endpoint, place).await });
                }
                Err(error) if fastrack_sys::is_clients_error(&error) => {}
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
