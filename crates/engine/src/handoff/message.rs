//! A handoff message: one connection with the bytes that were read from it, after a [`Header`].

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fastrack_http::Error;
use fastrack_sys::{memory_file, peek_message, receive_message, send_message};

use super::header::{Flags, Header, HEADER, MAGIC};
use crate::accept::Client;
use crate::conn::{Connection, Kind, Loaded, ReadBufPool, Step, Transfer};
use crate::settings::Settings;

/// Bytes of a connection that fit into the message itself. More bytes go into a file beside the message.
const MAX_INLINE: usize = 16 * 1024;

/// Sends a connection. The sender's copy stays open. Fails with Unsupported if the application reads the body.
pub(super) fn send(queue: BorrowedFd<'_>, connection: &Connection, settings: &Settings) -> io::Result<()> {
    let mut transfer = connection.transfer().ok_or(io::ErrorKind::Unsupported)?;
    // The long rest of a response goes into a separate file, from which the receiver sends.
    let long = transfer.kind.is_response() && transfer.file.is_none() && transfer.parts[1].len() > MAX_INLINE;
    let unsent = if long { Some(memory_file_of(&[std::mem::take(&mut transfer.parts[1])])?) } else { None };
    if let Some((file, length)) = &unsent {
        transfer = Transfer { file: Some(file), length: *length, ..transfer };
    }
    let lengths = transfer.parts.each_ref().map(|part| part.len());
    let length = lengths.iter().sum();
    let aside = if length > MAX_INLINE { Some(memory_file_of(&transfer.parts)?.0) } else { None };
    let header = Header {
        flags: Flags {
            has_file: transfer.file.is_some(),
            ends_chunk: transfer.ends_chunk,
            is_aside: aside.is_some(),
            ended: connection.ended,
            answer_after_shutdown: connection.answer_after_shutdown,
            is_spool: transfer.is_spool,
        },
        kind: transfer.kind as u8,
        peer: connection.peer,
        listener: settings.listeners.get(connection.listener).copied().unwrap_or_default(),
        lengths,
        served: connection.served,
        deadline: connection.deadline,
        arrival: connection.arrival,
        file: [transfer.offset, transfer.length],
    };
    let mut message = Vec::with_capacity(HEADER + MAX_INLINE.min(length));
    header.write(&mut message);
    if aside.is_none() {
        transfer.parts.iter().for_each(|part| message.extend_from_slice(part));
    }
    let mut fds = vec![connection.as_fd()];
    fds.extend(aside.as_ref().map(AsFd::as_fd));
    fds.extend(transfer.file.map(AsFd::as_fd));
    send_message(queue, &message, &fds)
}

/// Returns a memory file with these bytes, and their number.
fn memory_file_of(parts: &[Cow<'_, [u8]>]) -> io::Result<(File, u64)> {
    let mut file = memory_file(0)?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    Ok((file, parts.iter().map(|part| part.len() as u64).sum()))
}

/// Receives a connection, and returns the step of its request. A connection of a listener that this worker does not
/// have counts as one of the first listener. Fails with WouldBlock if the queue is empty, and with InvalidData if the
/// message cannot be used.
pub(super) fn receive(
    queue: BorrowedFd<'_>,
    settings: &Settings,
    pool: &mut ReadBufPool,
) -> io::Result<(Box<Connection>, Step)> {
    let mut message = [0; HEADER + MAX_INLINE];
    let (length, fds) = receive_message(queue, &mut message)?;
    let mut fds = fds.into_iter();
    let header = Header::read(&message[..length]).ok_or_else(unknown)?;
    let kind = Kind::of(header.kind).ok_or_else(unknown)?;
    let fd = fds.next().ok_or_else(unknown)?;
    let listener = settings.listeners.iter().position(|known| *known == header.listener).unwrap_or_default();
    let mut connection = Connection::new(Client { fd, peer: header.peer, listener });
    connection.served = header.served;
    connection.deadline = header.deadline;
    connection.arrival = header.arrival;
    let flags = header.flags;
    connection.ended = flags.ended;
    connection.answer_after_shutdown = flags.answer_after_shutdown;
    if kind == Kind::Request && header.lengths == [0; 3] {
        return Ok((connection, Step::Wait));
    }
    let mut inline = &message[HEADER..length];
    let mut aside = if flags.is_aside { Some(rewound(fds.next())?) } else { None };
    let source: &mut dyn Read = match &mut aside {
        Some(file) => file,
        None => &mut inline,
    };
    let mut buf = pool.take();
    let parts = [&mut buf.bytes, &mut buf.decoded, &mut buf.rest];
    for (length, part) in header.lengths.into_iter().zip(parts) {
        match Read::take(&mut *source, length as u64).read_to_end(part) {
            Ok(read) if read == length => {}
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory && !kind.is_response() => {
                return Ok((connection, Step::Refuse(Error::Memory)));
            }
            other => {
                // A reset tells the client that the response is cut.
                let _ = fastrack_sys::reset_on_close(connection.as_fd());
                return Err(other.err().unwrap_or_else(unknown));
            }
        }
    }
    let file = if flags.has_file { Some(rewound(fds.next())?) } else { None };
    let [offset, length] = header.file;
    let loaded =
        Loaded { kind, file, offset, length, ends_chunk: flags.ends_chunk, is_spool: flags.is_spool };
    let step = connection.load(buf, loaded, settings, pool);
    Ok((connection, step))
}

/// The kind of the next connection in the queue; None if the queue is empty or the message has another version.
pub(super) fn next_kind(queue: BorrowedFd<'_>) -> Option<Kind> {
    let mut start = [0; MAGIC.len() + 2];
    let peeked = peek_message(queue, &mut start).ok()?;
    match start[..peeked].strip_prefix(MAGIC)? {
        [_, kind] => Kind::of(*kind),
        _ => None,
    }
}

fn unknown() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the message is of another version of the server")
}

fn rewound(fd: Option<OwnedFd>) -> io::Result<File> {
    let mut file = File::from(fd.ok_or_else(unknown)?);
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::RequestSettings;
    use crate::conn::{Content, Disk, Spooling, WriteBuf};
    use crate::control::Control;
    use fastrack_sys::message_queue;
    use std::io::IoSlice;
    use std::net::SocketAddr;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    fn knowing(listeners: &[u64]) -> Settings {
        Settings { listeners: listeners.to_vec(), ..Settings::default() }
    }

    fn passed(request: &[u8], peer: Option<SocketAddr>) -> (Box<Connection>, Step) {
        let (connection, step, _) = passed_with_client(request, peer);
        (connection, step)
    }

    fn passed_with_client(request: &[u8], peer: Option<SocketAddr>) -> (Box<Connection>, Step, UnixStream) {
        let (sender, receiver) = message_queue().expect("a queue");
        let (mut client, server) = UnixStream::pair().expect("a pair");
        server.set_nonblocking(true).expect("nonblocking");
        let settings = knowing(&[5, 6, 7]);
        let mut pool = ReadBufPool::default();
        let mut connection = Connection::new(Client { fd: server.into(), peer, listener: 1 });
        connection.served = 3;
        let writer = std::thread::spawn({
            let request = request.to_vec();
            move || client.write_all(&request).map(|()| client)
        });
        let step = loop {
            let is_last = writer.is_finished();
            match read(&mut connection, &settings, &mut pool) {
                Step::Wait if !is_last => std::thread::yield_now(),
                step => break step,
            }
        };
        send(sender.as_fd(), &connection, &knowing(&[6, 7])).expect("send");
        let (other, received) = receive(receiver.as_fd(), &settings, &mut pool).expect("receive");
        assert_eq!(step, received);
        assert_eq!((other.listener, other.served, other.peer), (2, 3, peer));
        (other, received, writer.join().expect("no panic").expect("written"))
    }

    /// Reads everything that has arrived, and writes long bodies to a file.
    fn read(connection: &mut Connection, settings: &Settings, pool: &mut ReadBufPool) -> Step {
        let disk = Disk::new(Spooling::new(settings)).expect("a waker");
        loop {
            let step = connection.read(settings, pool, &disk);
            if step != Step::Wait {
                return step;
            }
            match connection.write_due() {
                Some(None) => {}
                Some(Some(step)) => return step,
                None if connection.needs_another_turn() => {}
                None => return Step::Wait,
            }
        }
    }

    fn body_of(connection: &Connection) -> Vec<u8> {
        match connection.request(&Settings::default()).expect("a request").content {
            Content::None => Vec::new(),
            Content::Memory(bytes) => bytes.to_vec(),
            Content::File(mut file, length) => {
                let mut body = Vec::new();
                file.read_to_end(&mut body).expect("read");
                assert_eq!(body.len() as u64, length);
                body
            }
            Content::Stream(_) => panic!("streaming is off"),
        }
    }

    #[test]
    fn a_request_arrives_as_it_was_sent_whatever_its_body() {
        let peers = ["127.0.0.1:80", "[2001:db8::1]:65535"].map(|peer| peer.parse().ok());
        for (size, peer) in [(0, None), (5, peers[0]), (40_000, peers[1]), (1_100_000, None)] {
            let body = vec![b'b'; size];
            let mut plain =
                format!("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n").into_bytes();
            plain.extend_from_slice(&body);
            let mut chunked =
                format!("POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{size:x}\r\n")
                    .into_bytes();
            chunked.extend_from_slice(&body);
            chunked.extend_from_slice(if size == 0 { b"\r\n" } else { b"\r\n0\r\n\r\n" });
            for request in [plain, chunked] {
                let (connection, step) = passed(&request, peer);
                assert_eq!(step, Step::Ready);
                let request = connection.request(&Settings::default()).expect("a request");
                assert_eq!(request.path, b"/p");
                assert!(body_of(&connection) == body, "{size}");
            }
        }
    }

    #[test]
    fn a_pipelined_request_travels_with_the_first_one() {
        for body in ["Content-Length: 2\r\n\r\nab", "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"]
        {
            let request =
                format!("POST / HTTP/1.1\r\nHost: h\r\n{body}GET /next HTTP/1.1\r\nHost: h\r\n\r\n");
            let (mut connection, _) = passed(request.as_bytes(), None);
            assert_eq!(body_of(&connection), b"ab");
            assert_eq!(connection.next_request(&Settings::default()), Step::Ready);
            assert_eq!(connection.request(&Settings::default()).expect("a request").path, b"/next");
        }
    }

    #[test]
    fn half_a_head_and_nothing_at_all_travel_too() {
        let (connection, step) = passed(b"GET / HT", None);
        assert!(connection.has_begun() && step == Step::Wait);
        let (sender, receiver) = message_queue().expect("a queue");
        let (_client, server) = UnixStream::pair().expect("a pair");
        let connection = Connection::new(Client { fd: server.into(), peer: None, listener: 1 });
        send(sender.as_fd(), &connection, &knowing(&[6, 7])).expect("send");
        let (connection, step) =
            receive(receiver.as_fd(), &knowing(&[6]), &mut ReadBufPool::default()).expect("receive");
        assert!(!connection.has_begun() && step == Step::Wait);
        assert_eq!(connection.listener, 0, "the first listener stands for an unknown one");
    }

    #[test]
    fn a_part_of_a_request_is_continued_wherever_it_is_cut() {
        let body = vec![b'b'; 1_100_000];
        let plain = [&b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1100000\r\n\r\n"[..], &body].concat();
        let head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunked = [&head[..], b"10c8e0\r\n", &body, b"\r\n0\r\n\r\n"].concat();
        let settings = Settings::default();
        for request in [&plain, &chunked] {
            for cut in [9, 70, 70_000, 1_090_000, request.len() - 1] {
                let (mut connection, mut step, mut client) = passed_with_client(&request[..cut], None);
                assert_eq!(step, Step::Wait);
                let rest = request[cut..].to_vec();
                let writer = std::thread::spawn(move || client.write_all(&rest).map(|()| client));
                while step == Step::Wait {
                    step = read(&mut connection, &settings, &mut ReadBufPool::default());
                }
                assert_eq!(step, Step::Ready, "{cut}");
                assert!(body_of(&connection) == body, "{cut}");
                writer.join().expect("no panic").expect("written");
            }
        }
    }

    #[test]
    fn a_spool_travels_and_is_sent_before_the_bytes_after_it() {
        let control = Arc::new(Control::new(-1, [], &RequestSettings::default()).expect("a control"));
        let (settings, mut pool) = (Settings::default(), ReadBufPool::default());
        let spooling = Spooling::new(&settings);
        for length in [0, 4, 40_000] {
            let (sender, receiver) = message_queue().expect("a queue");
            let (mut client, server) = UnixStream::pair().expect("a pair");
            let mut connection = Connection::new(Client { fd: server.into(), peer: None, listener: 0 });
            let (mut unsent, after) = (WriteBuf::default(), vec![b'x'; length]);
            unsent.push(&[IoSlice::new(b"spooled")], 0).expect("room");
            assert!(unsent.spool(u64::MAX, || spooling.create(&control)).expect("written"));
            unsent.push(&[IoSlice::new(&after)], 0).expect("room");
            connection.send_later((unsent, None), true, false);
            send(sender.as_fd(), &connection, &settings).expect("send");
            drop(connection);
            let (mut other, _) = receive(receiver.as_fd(), &settings, &mut pool).expect("receive");
            assert_eq!(other.send_more().expect("sent"), 7 + length);
            assert_eq!(other.is_sent(), Some(true));
            let mut all = vec![0; 7 + length];
            client.read_exact(&mut all).expect("read");
            assert!(all == [b"spooled", &after[..]].concat(), "{length}");
        }
    }

    #[test]
    fn messages_of_another_layout_are_refused() {
        let (sender, receiver) = message_queue().expect("a queue");
        for message in [
            &b"x"[..],
            &[0; HEADER],
            &[MAGIC, &[0; HEADER - 8][..]].concat(),
            &[&b"fastrak2"[..], &[0; 56]].concat(),
        ] {
            send_message(sender.as_fd(), message, &[]).expect("send");
            let error = receive(receiver.as_fd(), &Settings::default(), &mut ReadBufPool::default())
                .expect_err("not a connection");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
