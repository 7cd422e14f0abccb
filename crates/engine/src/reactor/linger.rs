//! Lingering: a client has its last response and may still send. A close with unread data would reset the connection, and the client could
//! lose the response (RFC 9112 §9.6). So the sending side is shut down, and all bytes are discarded until the client closes. Such a
//! connection costs a descriptor.

use std::os::fd::AsFd;

use fastrack_sys::monotonic_millis;

use super::Reactor;
use crate::conn::Connection;

/// How long the client may send nothing, in milliseconds: as long as in nginx (lingering_timeout).
pub(super) const LINGER_SILENCE: u64 = 5_000;

/// How long the client may send, in milliseconds: as long as in nginx (lingering_time).
const LINGER_TIME: u64 = 30_000;

impl Reactor {
    /// Ends a connection whose response has been sent.
    pub(super) fn lingering_close(&mut self, mut connection: Box<Connection>) {
        connection.drain(monotonic_millis() + LINGER_TIME);
        self.park_in_phase(connection);
    }

    /// The time until which a lingering connection waits for the next byte.
    pub(super) fn linger_deadline(&self, connection: &Connection) -> u64 {
        next_deadline(connection, monotonic_millis())
    }

    /// Whether the client of a lingering connection has sent something before this deadline, and so may continue.
    pub(super) fn is_still_sending(&self, connection: &Connection, deadline: u64) -> bool {
        self.linger_deadline(connection) > deadline && fastrack_sys::is_readable(connection.as_fd())
    }
}

fn next_deadline(connection: &Connection, now: u64) -> u64 {
    connection.drains_until().unwrap_or_default().min(now + LINGER_SILENCE)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::conn::Phase;
    use crate::handoff::SharedQueue;
    use crate::reactor::tests::{kept, pair, reactor};

    /// A client whose connection lingers until `latest`, or until `deadline` if the client sends nothing.
    fn lingering(reactor: &mut Reactor, latest: u64, deadline: u64) -> UnixStream {
        let (client, mut connection) = pair();
        connection.drain(latest);
        reactor.park(connection, deadline);
        client
    }

    fn is_there(mut client: &UnixStream) -> bool {
        client.write_all(b"more").is_ok()
    }

    #[test]
    fn each_byte_gives_the_client_five_seconds_and_all_of_them_thirty() {
        let (_client, mut connection) = pair();
        connection.drain(LINGER_TIME);
        let deadlines = [0, 1, 24_999, 25_000, 29_000].map(|now| next_deadline(&connection, now));
        assert_eq!(deadlines, [5_000, 5_001, 29_999, 30_000, 30_000]);
    }

    #[test]
    fn a_client_that_sends_on_is_read_from_and_costs_no_buffer() {
        let mut reactor = reactor();
        let (mut client, connection) = pair();
        reactor.lingering_close(connection);
        let first = reactor.next_deadline().expect("a deadline");
        for _ in 0..100 {
            client.write_all(&[b'x'; 100_000]).expect("somebody reads");
            reactor.poll().expect("polled");
            while reactor.events() > 0 {
                assert!(reactor.handle_events().is_none());
            }
        }
        let (connection, deadline) = reactor.table.take(0).expect("still there");
        assert!(deadline >= first && connection.head().is_none());
        reactor.park(connection, deadline);
        drop(client);
        reactor.poll().expect("polled");
        assert!(reactor.handle_events().is_none() && reactor.is_done());
    }

    #[test]
    fn a_client_that_is_silent_for_too_long_or_sends_for_too_long_is_closed() {
        let mut reactor = reactor();
        let clients = [(u64::MAX, 1), (u64::MAX, 1), (1, 1)].map(|(latest, deadline)| {
            let client = lingering(&mut reactor, latest, deadline);
            reactor.poll().expect("polled");
            client
        });
        // The reactor has not read yet what these clients have sent in time.
        clients[1..].iter().for_each(|mut client| client.write_all(b"more").expect("sent"));
        reactor.expire(&|| false);
        assert_eq!(clients.each_ref().map(is_there), [false, true, false]);
    }

    #[test]
    fn the_whole_time_goes_along_to_another_worker() {
        let queue = SharedQueue::new().expect("a queue");
        let queue_handle = || queue.handle().expect("a member").expect("free");
        let (mut reactor, other) =
            (Reactor { queue_handle: Some(queue_handle()), ..reactor() }, queue_handle());
        other.set_serving(true);
        let latest = monotonic_millis() + 9_000;
        let _client = lingering(&mut reactor, latest, latest);
        reactor.begin_stop();
        assert!(reactor.is_done());
        let mut its = Reactor { queue_handle: Some(other), ..self::reactor() };
        assert!(its.take_request().is_none());
        let (connection, deadline) = its.table.take(0).expect("parked");
        assert_eq!((connection.drains_until(), deadline), (Some(latest), latest));
    }

    #[test]
    fn a_worker_that_stops_alone_waits_for_two_seconds_however_much_comes() {
        let mut reactor = reactor();
        let latest = monotonic_millis() + LINGER_TIME;
        let mut client = lingering(&mut reactor, latest, latest);
        reactor.begin_stop();
        let stop = reactor.next_deadline().expect("a deadline");
        assert!(stop <= monotonic_millis() + 2_000);
        client.write_all(b"more").expect("sent");
        reactor.poll().expect("polled");
        assert!(reactor.handle_events().is_none());
        assert_eq!(reactor.next_deadline(), Some(stop));
    }

    #[test]
    fn lingering_clients_make_room_first() {
        let mut reactor = reactor();
        let mut idle = kept(&mut reactor);
        let clients = [(); 2].map(|()| lingering(&mut reactor, u64::MAX, u64::MAX));
        for left in [1, 0] {
            assert!(reactor.make_room());
            assert_eq!(clients.iter().filter(|client| is_there(client)).count(), left);
        }
        assert!(!reactor.table.has_any_in(&[Phase::Draining]) && reactor.table.has_any_in(&[Phase::Fresh]));
        assert!(reactor.make_room() && !reactor.make_room());
        assert_eq!(idle.read(&mut [0]).expect("the end"), 0);
    }
}
