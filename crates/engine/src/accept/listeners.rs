//! The listeners of a worker, tried in turn.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use fastrack_sys::Poller;

use super::hint::AcceptHint;
use super::listener::Listener;
use super::token::Token;
use super::turns::{Client, Turns};
use crate::control::Control;

/// Highest number of clients that [`accept_backlog`](Listeners::accept_backlog) accepts from one listener: Linux's
/// default backlog.
const MAX_BACKLOG: usize = 4096;

#[derive(Debug)]
pub(crate) struct Listeners {
    list: Vec<(Arc<Listener>, AcceptHint)>,
    turns: Turns,
    /// The listeners are not in the poller: see [`pause`](Self::pause).
    is_paused: bool,
}

impl Listeners {
    pub fn new(listeners: Vec<Listener>) -> Self {
        let list =
            listeners.into_iter().map(|listener| (Arc::new(listener), AcceptHint::default())).collect();
        Listeners { list, turns: Turns::default(), is_paused: false }
    }

    pub fn register(&self, poller: &Poller) -> io::Result<()> {
        self.list.iter().enumerate().try_for_each(|(index, (listener, _))| {
            poller.add_shared(listener.as_fd(), Token::Listener(index).number())
        })
    }

    /// Removes the listeners from the poller, which would report waiting clients without end while none can be
    /// accepted.
    pub fn pause(&mut self, poller: &Poller) {
        self.found_nobody();
        if !std::mem::replace(&mut self.is_paused, true) {
            self.unregister(poller);
        }
    }

    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Ends a [pause](Self::pause). The pause continues if this fails (ENOMEM, ENOSPC).
    pub fn resume(&mut self, poller: &Poller) -> io::Result<()> {
        let result = self.register(poller);
        self.is_paused = result.is_err();
        if self.is_paused {
            self.unregister(poller);
        }
        result
    }

    fn unregister(&self, poller: &Poller) {
        // Removal fails only for a listener that is not registered.
        self.list.iter().for_each(|(listener, _)| drop(poller.remove(listener.as_fd())));
    }

    /// The listeners, for the helper. A socket stays open until the helper drops its listener too.
    pub fn shared(&self) -> Vec<Arc<Listener>> {
        self.list.iter().map(|(listener, _)| Arc::clone(listener)).collect()
    }

    /// Closes the listeners. When no process has a socket open any more, the kernel refuses new clients.
    pub fn close(&mut self, poller: &Poller, control: &Control) {
        self.unregister(poller);
        for (listener, _) in self.list.drain(..) {
            control.untrack_fd(listener.as_fd().as_raw_fd());
        }
    }

    /// Notes that the poller has reported a client of the listener with this index.
    pub fn announce(&mut self, index: usize) {
        if let Some((_, hint)) = self.list.get_mut(index) {
            hint.announce();
        }
    }

    /// Whether to accept without asking the poller. Several listeners need the poller's report: otherwise a busy
    /// listener would starve the others.
    pub fn is_client_likely(&self) -> bool {
        match &self.list[..] {
            [(_, hint)] => hint.is_worth_trying(),
            _ => self.is_client_announced(),
        }
    }

    pub fn is_client_announced(&self) -> bool {
        self.list.iter().any(|(_, hint)| hint.is_announced())
    }

    pub fn found_nobody(&mut self) {
        self.list.iter_mut().for_each(|(_, hint)| hint.found_nobody());
    }

    /// Accepts a client if one is likely to wait. Fails when descriptors or memory have run out.
    pub fn accept(&mut self) -> io::Result<Option<Client>> {
        let Listeners { list, turns, .. } = self;
        let (count, alone) = (list.len(), list.len() == 1);
        turns.accept(count, |index| {
            let (listener, hint) = &mut list[index];
            if !(hint.is_announced() || alone && hint.is_worth_trying()) {
                return Ok(None);
            }
            let client = listener.accept()?;
            match client {
                Some(_) => hint.accepted(),
                None => hint.found_nobody(),
            }
            Ok(client)
        })
    }

    /// Accepts the clients in the backlogs, up to a limit: new clients may arrive as fast as these are accepted.
    pub fn accept_backlog(&mut self) -> Vec<Client> {
        let mut clients = Vec::new();
        for (index, (listener, _)) in self.list.iter().enumerate() {
            for _ in 0..MAX_BACKLOG {
                let Ok(Some((fd, peer))) = listener.accept() else { break };
                clients.push(Client { fd, peer, listener: index });
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
    fn a_busy_listener_does_not_starve_the_others() {
        let (sockets, listeners): (Vec<_>, Vec<_>) = (0..2).map(|_| listening()).unzip();
        let mut listeners = Listeners::new(listeners);
        let _clients: Vec<TcpStream> = [0, 0, 0, 1]
            .map(|index: usize| {
                TcpStream::connect(sockets[index].local_addr().expect("an address")).expect("connect")
            })
            .into();
        let mut order = Vec::new();
        for _ in 0..4 {
            listeners.announce(0);
            listeners.announce(1);
            order.extend(listeners.accept().expect("accept").map(|client| client.listener));
        }
        assert_eq!(order, [0, 1, 0, 0]);
    }

    #[test]
    fn the_whole_backlog_is_accepted_announced_or_not() {
        let (sockets, listeners): (Vec<_>, Vec<_>) = (0..2).map(|_| listening()).unzip();
        let mut listeners = Listeners::new(listeners);
        assert!(listeners.accept_backlog().is_empty());
        let _clients: Vec<TcpStream> = [0, 1, 0]
            .map(|index: usize| {
                TcpStream::connect(sockets[index].local_addr().expect("an address")).expect("connect")
            })
            .into();
        let order: Vec<usize> = listeners.accept_backlog().iter().map(|client| client.listener).collect();
        assert_eq!(order, [0, 0, 1]);
        assert!(listeners.accept_backlog().is_empty());
    }
}
