//! One client after the other: accepted, asked for a handshake, and driven to its end.

mod accept;
mod drive;
mod handshake;
mod http;
mod streams;

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::{watch, Semaphore};
use tokio::time::timeout;

use crate::connection::Connection;
use crate::ending::Stop;
use crate::handler::Handler;
use crate::place::Place;
use crate::rate::Rate;
use crate::settings::Settings;
use crate::watched::{Stream, Watched};
use crate::work::Work;
use handshake::shake_hands;
use http::Protocol;

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

/// State that the clients of one thread share.
#[derive(Clone, Debug)]
pub struct Server {
    /// Answers their requests.
    pub handler: Arc<Handler>,
    /// Places for clients, one for each.
    pub places: Arc<Semaphore>,
    /// Limits the TLS handshakes of all threads.
    pub handshakes: Arc<Rate>,
    /// All requests, streams and tunnels.
    pub work: Arc<Work>,
    /// None until the process is to end.
    pub stop: watch::Receiver<Option<Stop>>,
}

impl Server {
    async fn serve(self, mut stream: TcpStream, mut peer: SocketAddr, endpoint: &Endpoint, place: Place) {
        let site = self.handler.site();
        // Sends a response as soon as it is there (tcp(7)). Fails only if the client has gone.
        let _ = stream.set_nodelay(true);
        if endpoint.proxy_protocol {
            match timeout(site.settings.times().head, crate::proxy_protocol::read(&mut stream)).await {
                Ok(Ok(named)) => peer = named.unwrap_or(peer),
                _ => return,
            }
        }
        let (is_tls, name) = (endpoint.tls.is_some(), Arc::clone(&endpoint.name));
        let connection = Connection::new(peer, is_tls, name, endpoint.redirect_to, place);
        // A connection's task is as large as its largest part. So the task has pointers to large parts: to the handshake first, then to the
        // client's HTTP.
        let http = if let Some(tls) = &endpoint.tls {
            let handshake = Box::pin(shake_hands(stream, Arc::clone(tls), site.settings.times().head));
            let Some((stream, protocol)) = handshake.await else { return };
            self.http(
                watched(Stream::Tls(stream), protocol, &connection, &site.settings),
                protocol,
                &connection,
                &site.settings,
            )
        } else {
            let protocol = if site.settings.h2c { Protocol::Either } else { Protocol::Http1 };
            self.http(
                watched(Stream::Plain(stream), protocol, &connection, &site.settings),
                protocol,
                &connection,
                &site.settings,
            )
        };
        drop(site);
        self.drive(http, &connection).await;
    }
}

/// A client's stream, whose requests of HTTP/1 are judged.
fn watched(stream: Stream, protocol: Protocol, connection: &Arc<Connection>, settings: &Settings) -> Watched {
    let watched = Watched::new(stream, Arc::clone(connection));
    match protocol {
        Protocol::Http1 => watched.judge(settings.limits(), false),
        Protocol::Either => watched.judge(settings.limits(), true),
        Protocol::Http2 => watched,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<F>(_: impl FnOnce(Server, TcpStream, SocketAddr, &'static Endpoint, Place) -> F) -> usize {
        size_of::<F>()
    }

    /// Ten thousand idle clients have such a task each.
    #[test]
    fn a_clients_task_has_no_room_for_tls_and_http() {
        assert!(size(Server::serve) < 1536, "{}", size(Server::serve));
        assert!(size_of::<Watched>() < 128, "{}", size_of::<Watched>());
    }
}
