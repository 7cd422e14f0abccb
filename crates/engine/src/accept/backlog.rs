//! The listeners for the helper, which accepts clients while no worker is free.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::listener::Listener;
use super::turns::{Client, Turns};

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    listeners: Vec<Arc<Listener>>,
    turns: Turns,
    /// The last attempt to accept has failed.
    has_failed: bool,
}

impl Backlog {
    pub fn new(listeners: Vec<Arc<Listener>>) -> Self {
        Backlog { listeners, ..Backlog::default() }
    }

    /// Accepts a client; None if no client waits. Asks poll(2) first, at a tenth of the cost of an accept4(2) without a
    /// client.
    pub fn accept(&mut self) -> io::Result<Option<Client>> {
        let listeners = &self.listeners;
        let client = self.turns.accept(listeners.len(), |index| {
            if fastrack_sys::is_readable(listeners[index].as_fd()) {
                listeners[index].accept()
            } else {
                Ok(None)
            }
        });
        self.has_failed = client.is_err();
        client
    }

    pub fn has_failed(&self) -> bool {
        self.has_failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn listeners_take_turns_and_an_empty_backlog_has_no_client() {
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
