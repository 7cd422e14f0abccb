//! How many connections wait at a listening socket, asked of the kernel by number of the socket (sock_diag(7)): whoever asks
//! need not have the socket open.

/// Connections that wait to be accepted, and how many may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenQueue {
    /// Those that wait.
    pub length: u32,
    /// The backlog.
    pub limit: u32,
}

/// Which socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// TCP, with this port.
    Tcp(u16),
    /// A unix socket.
    Unix,
}

/// The queue of the listener with this inode; None if the kernel does not tell.
pub fn listen_queue(address: ListenAddress, inode: u64) -> Option<ListenQueue> {
    backend::listen_queue(address, inode)
}

#[cfg(portable)]
mod backend {
    use super::{ListenAddress, ListenQueue};

    pub fn listen_queue(_: ListenAddress, _: u64) -> Option<ListenQueue> {
        None
    }
}

#[cfg(not(portable))]
mod backend {
    use std::os::fd::OwnedFd;

    use rustix::net::{self, netlink, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

    use super::{ListenAddress, ListenQueue};

    // linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, linux/unix_diag.h
    const HEADER: usize = 16;
    const BY_FAMILY: u16 = 20;
    const REQUEST: u16 = 1;
    const DUMP: u16 = 0x300;
    const LISTENING: u32 = 1 << 10;
    const TCP: u8 = 6;
    const INET_REPLY: usize = 72;
    const UNIX_REPLY: usize = 16;
    const SHOW_QUEUE: u32 = 1 << 4;
    const QUEUE: u16 = 4;

    /// Most parts of an answer: each has many sockets.
    const PARTS: usize = 64;

    pub fn listen_queue(address: ListenAddress, inode: u64) -> Option<ListenQueue> {
        let inode = u32::try_from(inode).ok()?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::SOCK_DIAG);
        let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol).ok()?;
        match address {
            ListenAddress::Unix => ask(&socket, &unix_request(inode), |reply| unix_queue(reply, inode)),
            ListenAddress::Tcp(port) => [AddressFamily::INET, AddressFamily::INET6]
                .into_iter()
                .find_map(|family| ask(&socket, &tcp_request(family, port), |reply| tcp_queue(reply, inode))),
        }
    }

    fn message(flags: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        bytes.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        bytes.extend(BY_FAMILY.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(body);
        bytes
    }

    /// inet_diag_req_v2: all listeners with this port.
    fn tcp_request(family: AddressFamily, port: u16) -> Vec<u8> {
        let mut body = [0; 56];
        body[0] = family.as_raw() as u8;
        body[1] = TCP;
        body[4..8].copy_from_slice(&LISTENING.to_ne_bytes());
        body[8..10].copy_from_slice(&port.to_be_bytes());
        message(REQUEST | DUMP, &body)
    }

    /// unix_diag_req: this one socket, whatever its cookie.
    fn unix_request(inode: u32) -> Vec<u8> {
        let mut body = [0; 24];
        body[0] = AddressFamily::UNIX.as_raw() as u8;
        body[4..8].copy_from_slice(&LISTENING.to_ne_bytes());
        body[8..12].copy_from_slice(&inode.to_ne_bytes());
        body[12..16].copy_from_slice(&SHOW_QUEUE.to_ne_bytes());
        body[16..].fill(0xff);
        message(REQUEST, &body)
    }

    fn ask<T>(socket: &OwnedFd, request: &[u8], read: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        net::send(socket, request, SendFlags::empty()).ok()?;
        let mut found = None;
        let mut part = vec![0; 32 * 1024];
        // To the end: the next answer is to be the next question's.
        for _ in 0..PARTS {
            let Ok((_, length)) = net::recv(socket, part.as_mut_slice(), RecvFlags::empty()) else { break };
            let mut rest = &part[..length.min(part.len())];
            while let Some((kind, body, next)) = split(rest) {
                match kind {
                    BY_FAMILY => found = found.or_else(|| read(body)),
                    _ => return found,
                }
                rest = next;
            }
            if u16_at(request, 6) == Some(REQUEST) {
                break;
            }
        }
        found
    }

    /// The first message: its type, its body, and what follows. The kernel answers with DONE or an error at the end.
    fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
        let length = u32_at(bytes, 0)? as usize;
        let kind = u16_at(bytes, 4)?;
        let body = bytes.get(HEADER..length)?;
        Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
    }

    fn tcp_queue(reply: &[u8], inode: u32) -> Option<ListenQueue> {
        let reply = reply.get(..INET_REPLY)?;
        let queue = ListenQueue { length: u32_at(reply, 56)?, limit: u32_at(reply, 60)? };
        (u32_at(reply, 68)? == inode).then_some(queue)
    }

    fn unix_queue(reply: &[u8], inode: u32) -> Option<ListenQueue> {
        if u32_at(reply, 4)? != inode {
            return None;
        }
        let mut attributes = reply.get(UNIX_REPLY..)?;
        loop {
            let length = u16_at(attributes, 0)? as usize;
            if u16_at(attributes, 2)? == QUEUE {
                return Some(ListenQueue { length: u32_at(attributes, 4)?, limit: u32_at(attributes, 8)? });
            }
            attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
        }
    }

    fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
    }

    fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
        Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
    }
}

#[cfg(all(test, not(portable)))]
mod tests {
    use super::*;
    use crate::patience::until;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn inode(socket: impl AsFd) -> u64 {
        rustix::fs::fstat(socket).expect("a stat").st_ino
    }

    #[test]
    fn it_counts_the_connections_that_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let queue =
            || listen_queue(ListenAddress::Tcp(address.port()), inode(&listener)).map(|queue| queue.length);
        let Some(before) = queue() else { return eprintln!("this kernel does not tell") };
        let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address)).collect();
        assert_eq!(before, 0);
        until(|| queue() == Some(3));
        drop(clients);
    }

    #[test]
    fn it_counts_those_at_a_unix_socket_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a listener");
        let queue = || listen_queue(ListenAddress::Unix, inode(&listener)).map(|queue| queue.length);
        let Some(before) = queue() else { return eprintln!("this kernel does not tell") };
        let clients: Vec<_> = (0..2).map(|_| UnixStream::connect(&path)).collect();
        assert_eq!(before, 0);
        until(|| queue() == Some(2));
        drop(clients);
        assert_eq!(listen_queue(ListenAddress::Unix, 1), None);
    }
}
