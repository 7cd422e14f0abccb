//! The backlogs of the listeners, from the socket tables of the kernel.
//!
//! TCP_INFO has the same number, but getsockopt(2) needs the listener. The thread has no copy of a listener, because a
//! copy would keep a port open after the master has closed it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::master::ListenerInfo;

/// The number of connections that wait at each listener; None if unknown.
pub fn backlogs(listeners: &[ListenerInfo]) -> Vec<Option<u32>> {
    let tables = Path::new("/proc/thread-self/net");
    let wants = |tcp| listeners.iter().any(|listener| listener.is_tcp == tcp);
    let mut found = vec![None; listeners.len()];
    if wants(true) {
        for table in ["tcp", "tcp6"] {
            tcp(lines(&tables.join(table)), listeners, &mut found);
        }
    }
    if wants(false) {
        let sockets: Vec<_> =
            lines(&tables.join("unix")).filter_map(|line| UnixSocket::parse(&line)).collect();
        for (listener, length) in listeners.iter().zip(&mut found).filter(|(listener, _)| !listener.is_tcp) {
            *length = unix(&sockets, listener.inode);
        }
    }
    found
}

/// The lines of a table without the heading. Names of abstract sockets may contain any bytes.
fn lines(table: &Path) -> impl Iterator<Item = String> {
    let lines = File::open(table).ok().into_iter().flat_map(|file| BufReader::new(file).split(b'\n'));
    lines.map_while(Result::ok).skip(1).map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// Listeners come first in the table, and the rest may be long (Documentation/networking/proc_net_tcp.rst). The receive
/// queue of a listener is its backlog.
fn tcp(lines: impl Iterator<Item = String>, listeners: &[ListenerInfo], found: &mut [Option<u32>]) {
    const LISTENING: &str = "0A";
    for line in lines {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, _, _, state, queues, _, _, _, _, inode, ..] = fields[..] else { continue };
        if state != LISTENING {
            break;
        }
        let place = listeners.iter().position(|one| one.is_tcp && inode.parse() == Ok(one.inode));
        if let Some(place) = place {
            found[place] =
                queues.split_once(':').and_then(|(_, waiting)| u32::from_str_radix(waiting, 16).ok());
        }
    }
}

struct UnixSocket {
    is_listening: bool,
    /// The socket is connected, and no process has accepted it.
    is_waiting: bool,
    inode: u64,
    /// The path that the socket was bound to. The server's end of a connection has the path of its listener.
    path: String,
}

impl UnixSocket {
    fn parse(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            let (field, more) = rest.trim_start().split_once(' ')?;
            rest = more;
            Some(field)
        };
        let [_, _, _, flags, _, state, inode] = [(); 7].map(|()| field());
        Some(UnixSocket {
            is_listening: flags? == "00010000",
            is_waiting: state? == "02",
            inode: inode?.parse().ok()?,
            path: rest.to_owned(),
        })
    }
}

/// Only the path ties a waiting connection to its listener. If two listeners have the same path, the numbers are
/// unknown: relative paths may be equal, and a server may have replaced the socket file of another server.
fn unix(sockets: &[UnixSocket], inode: u64) -> Option<u32> {
    let path = &sockets.iter().find(|socket| socket.is_listening && socket.inode == inode)?.path;
    let same = || sockets.iter().filter(|socket| socket.path == *path);
    let waiting = same().filter(|socket| socket.is_waiting).count();
    (same().filter(|socket| socket.is_listening).count() == 1).then(|| u32::try_from(waiting).ok()).flatten()
}

#[cfg(all(test, target_os = "linux", not(feature = "portable")))]
mod tests {
    use super::*;
    use crate::patience::until;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn listener(socket: &OwnedFd, is_tcp: bool) -> ListenerInfo {
        let link = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let inode = std::fs::metadata(link).expect("a socket").ino();
        ListenerInfo { name: String::new(), inode, is_tcp, limit: None }
    }

    #[test]
    fn the_connections_that_wait_are_counted_at_each_kind_of_socket() {
        let dir = tempfile::tempdir().expect("a directory");
        // A space is part of the name.
        let path = dir.path().join("a socket");
        let four = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let six = TcpListener::bind("[::1]:0").ok();
        let unix = UnixListener::bind(&path).expect("a listener");
        let places =
            [Some(&four), six.as_ref()].map(|one| one.map(|one| one.local_addr().expect("an address")));
        let mut infos = vec![listener(&unix.try_clone().expect("a copy").into(), false)];
        for socket in [Some(&four), six.as_ref()].into_iter().flatten() {
            infos.push(listener(&socket.try_clone().expect("a copy").into(), true));
        }
        let all = |number| vec![Some(number); infos.len()];
        assert_eq!(backlogs(&infos), all(0));
        let clients: Vec<_> =
            places.into_iter().flatten().flat_map(|place| [place; 3]).map(TcpStream::connect).collect();
        let others: Vec<_> = (0..3).map(|_| UnixStream::connect(&path)).collect();
        until(|| backlogs(&infos) == all(3));
        let accepted = unix.accept().expect("a client");
        assert_eq!(backlogs(&infos)[0], Some(2));
        drop((clients, others, accepted));
        let gone = [false, true].map(|is_tcp| ListenerInfo { inode: 1, is_tcp, ..infos[0].clone() });
        assert_eq!(backlogs(&gone), [None, None]);
    }

    #[test]
    fn names_that_are_not_text_hide_no_other() {
        use std::os::linux::net::SocketAddrExt;
        let names = (0..64u8).map(|number| {
            [b"\xff\xfe fastrack ".as_slice(), &[number], &std::process::id().to_ne_bytes()].concat()
        });
        let others: Vec<_> = names
            .map(|name| std::os::unix::net::SocketAddr::from_abstract_name(name).expect("a name"))
            .map(|name| UnixListener::bind_addr(&name).expect("a listener"))
            .collect();
        let dir = tempfile::tempdir().expect("a directory");
        let socket = UnixListener::bind(dir.path().join("socket")).expect("a listener");
        assert_eq!(backlogs(&[listener(&socket.into(), false)]), [Some(0)]);
        drop(others);
    }

    #[test]
    fn two_listeners_with_the_same_path_have_no_number() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let old = UnixListener::bind(&path).expect("a listener");
        let info = listener(&old.try_clone().expect("a copy").into(), false);
        std::fs::remove_file(&path).expect("its name");
        assert_eq!(backlogs(std::slice::from_ref(&info)), [Some(0)]);
        let new = UnixListener::bind(&path).expect("a listener");
        assert_eq!(backlogs(&[info]), [None]);
        drop(new);
    }
}
