//! Any number of requests on each connection: epoll_wait, recv, writev.
//!
//! One epoll_wait brings all connections that are ready, so that under load its cost is shared;
//! each request still needs its own recv and writev. A server whose clients wait for each answer
//! (no pipelining) cannot do with fewer.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags, EpollTimeout};

use crate::connection::{self, Received};
use crate::listener::Listener;
use crate::response::Response;

/// How many ready connections one epoll_wait may bring.
const BATCH: usize = 64;

/// A connection that stays open, and how much of its next request has come.
struct Client {
    fd: OwnedFd,
    received: usize,
}

/// Serves until killed.
///
/// # Errors
/// Whatever a syscall says that no client can cause.
pub fn serve(listener: &Listener, response: &Response, request_bytes: usize) -> io::Result<()> {
    let epoll = listener.epoll()?;
    let mut buffer = connection::buffer(request_bytes);
    let mut clients: HashMap<u64, Client> = HashMap::new();
    let mut ready = [EpollEvent::empty(); BATCH];
    loop {
        let count = match epoll.wait(&mut ready, EpollTimeout::NONE) {
            Ok(count) => count,
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for event in &ready[..count] {
            match clients.get_mut(&event.data()) {
                None => admit(listener, &epoll, &mut clients)?,
                Some(client) => {
                    if !answer(client, response, request_bytes, &mut buffer)? {
                        // Closing the descriptor takes it out of the epoll set as well.
                        clients.remove(&event.data());
                    }
                }
            }
        }
    }
}

/// Accepts one connection, if there is one, and keeps it.
fn admit(listener: &Listener, epoll: &Epoll, clients: &mut HashMap<u64, Client>) -> io::Result<()> {
    if let Some(fd) = listener.accept()? {
        let key = fd.as_raw_fd() as u64;
        epoll.add(&fd, EpollEvent::new(EpollFlags::EPOLLIN, key))?;
        clients.insert(key, Client { fd, received: 0 });
    }
    Ok(())
}

/// Reads what has come and answers when that completes a request; false when the client has left.
fn answer(
    client: &mut Client,
    response: &Response,
    request_bytes: usize,
    buffer: &mut [u8],
) -> io::Result<bool> {
    match connection::receive(&client.fd, buffer)? {
        Received::Nothing => return Ok(true),
        Received::End => return Ok(false),
        Received::Bytes(bytes) => client.received += bytes,
    }
    if client.received >= request_bytes.max(1) {
        client.received = 0;
        response.send(&client.fd)?;
    }
    Ok(true)
}
