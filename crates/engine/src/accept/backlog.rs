//! The listeners as the helper sees them: it accepts clients for whom no worker is free yet.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::listener::Listener;
use super::listeners::Client;

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    listeners: Vec<Arc<Listener>>,
    /// Where the next try begins, so that a busy listener does not starve the others.
    next: usize,
    /// The last try to accept has failed.
    has_failed: bool,
}

impl Backlog {
    pub fn new(listeners: Vec<Arc<Listener>>) -> Self {
        Backlog { listeners, ..Backlog::default() }
    }

    /// Accepts a client, if one is waiting. Asks first, which costs a tenth of an accept4(2) that finds nobody.
    pub fn accept(&mut self) -> io::Result<Option<Client>> {
        let client = self.next_client();
        self.has_failed = client.is_err();
        client
    }

    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    fn next_client(&mut self) -> io::Result<Option<Client>> {
        for step in 0..self.listeners.len() {
            let index = (self.next + step) % self.listeners.len();
            let listener = &self.listeners[index];
            if !fastrack_sys::is_readable(listener.as_fd()) {
                continue;
            }
            if let Some((fd, peer)) = listener.accept()? {
                self.next = (index + 1) % self.listeners.len();
                return Ok(Some(Client { fd, peer, listener: index }));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn listeners_take_turns_and_an_empty_backlog_is_nobody() {
        let (sockets, listeners): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| {
                let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
                let listener = Listener::from_fd(socket.as_fd(), true).expect("a listener");
                (socket, Arc::new(listener))
            })
            .unzip();
        let mut backlog = Backlog::new(listeners);
        assert!(backlog.accept().expect("no error").is_none());
        let _clients: Vec<TcpStream> = [0, 0, 1]
            .map(|index: usize| {
                TcpStream::connect(sockets[index].local_addr().expect("an address")).expect("connect")
            })
            .into();
        let next = |backlog: &mut Backlog| backlog.accept().expect("accept").map(|client| client.listener);
        assert_eq!([(); 4].map(|()| next(&mut backlog)), [Some(0), Some(1), Some(0), None]);
    }
}
