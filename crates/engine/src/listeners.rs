//! The listeners of a worker, and which of them to try next.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use fastrack_sys::Poller;

use crate::backlog::Backlog;
use crate::control::Control;
use crate::listener::{Accepted, Listener};

/// Clients that one listener may have waiting, as far as [`accept_all`](Listeners::accept_all) goes.
const MOST_QUEUED: usize = 4096;

/// A client that has been accepted.
#[derive(Debug)]
pub(crate) struct Client {
    pub fd: OwnedFd,
    pub peer: Option<SocketAddr>,
    /// The index of the listener that it came by.
    pub listener: usize,
}

#[derive(Debug)]
pub(crate) struct Listeners {
    list: Vec<(Listener, Backlog)>,
    /// Where the next try begins, so that a busy listener does not keep the others waiting.
    next: usize,
}

impl Listeners {
    pub fn new(listeners: Vec<Listener>) -> Self {
        Listeners {
            list: listeners.into_iter().map(|listener| (listener, Backlog::default())).collect(),
            next: 0,
        }
    }

    /// Has the poller report clients, each listener's under its own token.
    pub fn join(&self, poller: &Poller) -> io::Result<()> {
        self.list
            .iter()
            .enumerate()
            .try_for_each(|(index, (listener, _))| poller.add_shared(listener, token(index)))
    }

    /// Lets go of the listeners. Where others have them, too, those go on listening; where nobody has,
    /// clients are refused at once rather than left waiting.
    pub fn leave(&mut self, poller: &Poller, control: &Control) {
        for (listener, _) in self.list.drain(..) {
            // It fails only if the listener is not there, which is what is wanted.
            let _ = poller.remove(&listener);
            control.release(listener.as_fd().as_raw_fd());
        }
    }

    /// Takes an event of the poller's, if it is about a listener.
    pub fn announce(&mut self, event: u64) {
        if let Some((_, backlog)) = self.list.get_mut(index(event)) {
            backlog.announce();
        }
    }

    /// Whether accepting is worth a try without asking the poller. Of several listeners none is
    /// taken for granted: a busy one would keep the poller from being asked about the others.
    pub fn is_anybody_likely(&self) -> bool {
        match &self.list[..] {
            [(_, backlog)] => backlog.is_likely(),
            _ => self.is_anybody_announced(),
        }
    }

    /// Whether the poller has reported a client that was not looked for yet.
    pub fn is_anybody_announced(&self) -> bool {
        self.list.iter().any(|(_, backlog)| backlog.is_announced())
    }

    /// The worker has to wait: nobody was there.
    pub fn missed(&mut self) {
        self.list.iter_mut().for_each(|(_, backlog)| backlog.missed());
    }

    /// Accepts a client of a listener that is worth a try; None when there is nobody. Fails with what
    /// the process or the system has run out of.
    pub fn accept(&mut self) -> io::Result<Option<Client>> {
        let alone = self.list.len() == 1;
        for step in 0..self.list.len() {
            let index = (self.next + step) % self.list.len();
            let (listener, backlog) = &mut self.list[index];
            if !(backlog.is_announced() || alone && backlog.is_likely()) {
                continue;
            }
            match listener.accept() {
                Accepted::Client(fd, peer) => {
                    backlog.found();
                    self.next = (index + 1) % self.list.len();
                    return Ok(Some(Client { fd, peer, listener: index }));
                }
                Accepted::Nobody | Accepted::Gone => backlog.missed(),
                Accepted::Failed(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Accepts everybody who has come by now, but no more of a listener than its kernel's queue may hold
    /// by default (listen(2)): others may come as fast as these are accepted.
    pub fn accept_all(&mut self) -> Vec<Client> {
        let mut clients = Vec::new();
        for (index, (listener, _)) in self.list.iter().enumerate() {
            for _ in 0..MOST_QUEUED {
                match listener.accept() {
                    Accepted::Client(fd, peer) => clients.push(Client { fd, peer, listener: index }),
                    Accepted::Gone => {}
                    Accepted::Nobody | Accepted::Failed(_) => break,
                }
            }
        }
        clients
    }

    pub fn is_tcp(&self, index: usize) -> bool {
        self.list.get(index).is_some_and(|(listener, _)| listener.is_tcp())
    }

    pub fn raw_fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.list.iter().map(|(listener, _)| listener.as_fd().as_raw_fd())
    }
}

/// The poller's token of a listener: from the top down, out of the way of the others.
fn token(index: usize) -> u64 {
    u64::MAX - 1 - index as u64
}

/// The index of the listener with a token; beyond all of them for a token that is no listener's.
fn index(token: u64) -> usize {
    usize::try_from((u64::MAX - 1).wrapping_sub(token)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn listening() -> (TcpListener, Listener) {
        let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
        let listener = Listener::from_fd(socket.as_fd(), true).expect("a listener");
        (socket, listener)
    }

    #[test]
    fn a_busy_listener_leaves_the_others_their_turn() {
        let (sockets, listeners): (Vec<_>, Vec<_>) = (0..2).map(|_| listening()).unzip();
        let mut listeners = Listeners::new(listeners);
        let _clients: Vec<TcpStream> = [0, 0, 0, 1]
            .map(|index: usize| {
                TcpStream::connect(sockets[index].local_addr().expect("an address")).expect("connect")
            })
            .into();
        let mut order = Vec::new();
        for _ in 0..4 {
            listeners.announce(token(0));
            listeners.announce(token(1));
            order.extend(listeners.accept().expect("accept").map(|client| client.listener));
        }
        assert_eq!(order, [0, 1, 0, 0]);
    }

    #[test]
    fn all_who_have_come_are_accepted_announced_or_not() {
        let (sockets, listeners): (Vec<_>, Vec<_>) = (0..2).map(|_| listening()).unzip();
        let mut listeners = Listeners::new(listeners);
        assert!(listeners.accept_all().is_empty());
        let _clients: Vec<TcpStream> = [0, 1, 0]
            .map(|index: usize| {
                TcpStream::connect(sockets[index].local_addr().expect("an address")).expect("connect")
            })
            .into();
        let order: Vec<usize> = listeners.accept_all().iter().map(|client| client.listener).collect();
        assert_eq!(order, [0, 0, 1]);
        assert!(listeners.accept_all().is_empty());
    }

    #[test]
    fn other_tokens_are_not_taken_for_listeners() {
        let mut listeners = Listeners::new(vec![listening().1]);
        for other in [u64::MAX, 0, 12345] {
            listeners.announce(other);
        }
        listeners.announce(token(1));
        assert!(!listeners.is_anybody_announced());
        listeners.announce(token(0));
        assert!(listeners.is_anybody_announced());
    }
}
