//! One request on each connection: accept4, (setsockopt,) recv, writev, close.
//!
//! Why this is the lower bound for a prefork server. A request on a connection of its own cannot
//! be served without those calls, and while connections wait in the backlog a worker makes no
//! other. With an empty backlog it must block, and then pays three more: accept4's EAGAIN, the
//! epoll_wait, and accept4 again. A blocking accept4 would save two of them, but no server can sit
//! in one: it has a second thing to wait for (a signal to stop, a parked connection, a second
//! listener). So this program waits the way a server has to, and no other way.

use std::io;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::epoll::{Epoll, EpollEvent, EpollTimeout};

use crate::connection::{self, Received};
use crate::listener::Listener;
use crate::response::Response;

/// Serves until killed.
///
/// # Errors
/// Whatever a syscall says that no client can cause.
pub fn serve(listener: &Listener, response: &Response, request_bytes: usize) -> io::Result<()> {
    let epoll = listener.epoll()?;
    let mut buffer = connection::buffer(request_bytes);
    loop {
        match listener.accept()? {
            Some(client) => answer(client, response, request_bytes, &mut buffer)?,
            None => wait(&epoll)?,
        }
    }
}

/// Reads one request, answers it and closes (by dropping) the connection.
fn answer(client: OwnedFd, response: &Response, request_bytes: usize, buffer: &mut [u8]) -> io::Result<()> {
    let mut received = 0;
    while received < request_bytes.max(1) {
        match connection::receive(&client, buffer)? {
            Received::Bytes(bytes) => received += bytes,
            Received::Nothing => connection::wait(&client, PollFlags::POLLIN)?,
            Received::End => return Ok(()),
        }
    }
    response.send(&client)
}

fn wait(epoll: &Epoll) -> io::Result<()> {
    match epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
