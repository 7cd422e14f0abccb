//! Connections that belong to no client: those that several routers keep to the server.
//!
//! A request comes to one of the routers by chance, as by a load balancer or by DNS. The router takes any of its connections on
//! which nothing is asked at the moment; has it none, it makes one more. After the answer it keeps the connection, and
//! closes those that nobody has used for a while.

use std::time::{Duration, Instant};

use crate::connection::{Connection, Received};
use crate::plan::uniform;

/// For how long Heroku's Router 2.0 keeps a connection on which nothing happens.
const IDLE: Duration = Duration::from_secs(90);

/// The connections on which nothing is asked, by router.
#[derive(Debug)]
pub struct Routers {
    seed: u64,
    idle: Vec<Vec<(Instant, Connection)>>,
}

impl Routers {
    /// So many of them, without a connection; nothing where there are none.
    pub fn new(count: usize, seed: u64) -> Option<Self> {
        (count > 0).then(|| Self { seed, idle: (0..count).map(|_| Vec::new()).collect() })
    }

    /// A connection that is kept for the request of this number. There is none if all are in use.
    pub fn take(&mut self, number: u64, now: Instant) -> Option<Connection> {
        let router = self.router(number);
        let chance = uniform(self.seed, 3, number);
        let idle = &mut self.idle[router];
        idle.retain(|(since, _)| now.duration_since(*since) < IDLE);
        while !idle.is_empty() {
            let (_, connection) = idle.swap_remove((chance * idle.len() as f64) as usize);
            // A router sees at once that the server has closed one.
            if matches!(connection.receive(&mut [0]), Ok(Received::Nothing)) {
                return Some(connection);
            }
        }
        None
    }

    /// The answer to the request of this number has come, and the server keeps the connection.
    pub fn give(&mut self, number: u64, connection: Connection, now: Instant) {
        let router = self.router(number);
        self.idle[router].push((now, connection));
    }

    fn router(&self, number: u64) -> usize {
        (uniform(self.seed, 2, number) * self.idle.len() as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn connected(count: usize) -> (Vec<Connection>, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        ((0..count).map(|_| Connection::open(address, false).unwrap()).collect(), listener)
    }

    #[test]
    fn gives_a_connection_to_one_request_at_a_time_and_only_to_its_router() {
        let (connections, _listener) = connected(8);
        let (mut routers, now) = (Routers::new(4, 7).unwrap(), Instant::now());
        for (number, connection) in (0..).zip(connections) {
            routers.give(number, connection, now);
        }
        let taken = (0..8).filter(|number| routers.take(*number, now).is_some()).count();
        assert_eq!(taken, 8);
        assert!((0..100).all(|number| routers.take(number, now).is_none()));
    }

    #[test]
    fn closes_what_was_idle_for_long_and_sees_what_the_server_has_closed() {
        let (connections, listener) = connected(2);
        let (mut routers, now) = (Routers::new(1, 0).unwrap(), Instant::now());
        for connection in connections {
            routers.give(0, connection, now);
        }
        // The server accepts and closes the first one, and keeps the other.
        drop(listener.accept().unwrap());
        let _kept = listener.accept().unwrap();
        assert!(routers.take(1, now).is_some());
        assert!(routers.take(2, now).is_none());

        let (connections, _listener) = connected(1);
        routers.give(0, connections.into_iter().next().unwrap(), now);
        assert!(routers.take(3, now + IDLE).is_none());
    }
}
