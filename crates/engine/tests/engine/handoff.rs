//! Workers that share their connections.
//!
//! An idle worker may get any request of the others, if the machine is slow for a moment. So a test that must know which worker answers
//! keeps all workers but one busy.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::counting::{await_counts, counted};
use crate::support::{eventually, read_all, until, Worker};
use fastrack_engine::{Finish, Scoreboard, Settings, SharedQueue};

fn sharing(queue: &SharedQueue) -> Worker {
    Worker::start_sharing(Settings::default(), None, None, Some(queue))
}

/// Two busy workers, and the clients of their requests. [`Worker::release`] ends a request.
pub fn two_busy() -> ([(Scoreboard, Worker); 2], [TcpStream; 2]) {
    let queue = SharedQueue::new().expect("a queue");
    let workers = [(); 2].map(|()| counted(Some(&queue)));
    let is_held = |worker: &Worker| worker.seen.try_iter().any(|seen| seen.path == "/held");
    let [(_, one), (_, other)] = &workers;
    let first = one.ask_to_hold();
    // Either worker may have taken the first request. The other one takes the second.
    let free = eventually(|| if is_held(one) { Some(other) } else { is_held(other).then_some(one) });
    let second = free.ask_to_hold();
    until(|| is_held(free));
    (workers, [first, second])
}

fn handed_over(workers: &[(Scoreboard, Worker)]) -> u64 {
    workers.iter().map(|(board, _)| board.totals().handed_over).sum()
}

/// Asks for a path and takes the answer.
fn ask(stream: &mut TcpStream, path: &str) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    answered(stream, 0);
}

fn answered(stream: &mut TcpStream, length: usize) {
    let expected = format!("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{length:>9}");
    let mut bytes = vec![0; expected.len()];
    stream.read_exact(&mut bytes).expect("an answer");
    assert_eq!(String::from_utf8_lossy(&bytes), expected);
}

/// A connection that the worker keeps, because no other worker is free.
fn kept(worker: &Worker) -> TcpStream {
    let mut stream = worker.connect();
    ask(&mut stream, "/kept");
    stream
}

fn requests(size: usize) -> [Vec<u8>; 2] {
    let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
    let mut plain = format!("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n").into_bytes();
    plain.extend_from_slice(&body);
    let mut chunked = b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for part in body.chunks(30_000) {
        chunked.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        chunked.extend_from_slice(part);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    [plain, chunked]
}

#[test]
fn a_busy_workers_requests_are_answered_by_an_idle_one_whatever_was_read_before() {
    let ([(busy_board, mut busy), (idle_board, mut idle)], held) = two_busy();
    for size in [0, 5, 40_000, 1_000_000, 3_000_000] {
        for request in requests(size) {
            for cut in [0, 20, request.len() / 2] {
                busy.release();
                let mut stream = kept(&busy);
                stream.write_all(&request[..cut]).expect("write");
                let is_read = u64::from(cut > 0);
                await_counts(&busy_board, |counts| counts.connections.reading == is_read);
                let held = busy.hold();
                idle.release();
                let before = busy_board.totals().handed_over;
                stream.write_all(&request[cut..]).expect("write");
                answered(&mut stream, size);
                let seen = idle.next_seen();
                assert!(
                    seen.path == "/p"
                        && seen.body.iter().zip(0..).all(|(byte, at)| *byte == (at % 251) as u8)
                );
                await_counts(&busy_board, |counts| counts.handed_over == before + 1);
                // The connection stays with the idle worker.
                await_counts(&idle_board, |counts| counts.connections.idle == 1);
                ask(&mut stream, "/next");
                assert_eq!(idle.next_seen().path, "/next");
                drop((held, idle.hold()));
            }
        }
    }
    drop(held);
    busy.release();
    idle.release();
    busy.stop();
    idle.stop();
}

#[test]
fn the_first_free_worker_answers_in_order_of_arrival() {
    let (mut workers, held) = two_busy();
    let [kept_by_one, kept_by_other] = [0, 1].map(|index| {
        let worker = &workers[index].1;
        worker.release();
        let streams = [(); 3].map(|()| kept(worker));
        (streams, worker.hold())
    });
    let streams = kept_by_one.0.into_iter().zip(kept_by_other.0).flat_map(|(one, other)| [one, other]);
    let mut streams: Vec<_> = streams.collect();
    for (index, stream) in streams.iter_mut().enumerate() {
        let before = handed_over(&workers);
        write!(stream, "GET /{index} HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
        // The helpers of the workers are independent of each other.
        until(|| handed_over(&workers) == before + 1);
    }
    workers[1].1.release();
    streams.iter_mut().for_each(|stream| answered(stream, 0));
    for index in 0..6 {
        assert_eq!(workers[1].1.next_seen().path, format!("/{index}"));
    }
    workers[0].1.release();
    drop((held, kept_by_one.1, kept_by_other.1));
    for (_, worker) in &mut workers {
        worker.stop();
    }
}

#[test]
fn a_worker_that_stops_leaves_its_idle_connections_to_the_other() {
    let ([(_, mut one), (_, mut other)], held) = two_busy();
    one.release();
    // The queue has room for all of these. A worker that finds the queue full would wait only for a while.
    let mut streams: Vec<_> = (0..100).map(|_| kept(&one)).collect();
    other.release();
    assert_eq!(one.stop(), Finish::Stopped);
    for stream in &mut streams {
        ask(stream, "/there");
        assert_eq!(other.next_seen().path, "/there");
    }
    drop(held);
    other.stop();
}

#[test]
fn a_successor_takes_what_is_queued_and_the_last_worker_leaves_nothing() {
    let queue = SharedQueue::new().expect("a queue");
    let mut first = sharing(&queue);
    let mut stream = kept(&first);
    assert_eq!(first.stop(), Finish::Stopped);
    write!(stream, "GET /waits HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    let mut second = sharing(&queue);
    answered(&mut stream, 0);
    assert_eq!(second.next_seen().path, "/waits");
    queue.end();
    assert_eq!(second.stop(), Finish::Stopped);
    assert_eq!(read_all(stream), "");
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only proc(5) tells")]
fn a_client_that_disconnects_in_the_queue_is_dropped_and_counted() {
    let (mut workers, held) = two_busy();
    let one = &workers[0].1;
    one.release();
    let (gone, mut stays) = (kept(one), kept(one));
    let held = (held, one.hold());
    let before = handed_over(&workers);
    (&gone).write_all(b"GET /gone HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    until(|| handed_over(&workers) == before + 1);
    write!(stays, "GET /stays HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    until(|| handed_over(&workers) == before + 2);
    let server_end = ServerEnd::of(&gone);
    drop(gone);
    server_end.until(ServerEnd::has_heard_the_end);
    let [(_, one), (_, other)] = &mut workers;
    other.release();
    answered(&mut stays, 0);
    assert_eq!(other.next_seen().path, "/stays");
    one.release();
    drop(held);
    one.stop();
    other.stop();
    assert_eq!(one.control.dropped() + other.control.dropped(), 1);
}

/// The server's end of a connection, as proc(5) shows it in /proc/net/tcp.
struct ServerEnd([String; 2]);

impl ServerEnd {
    fn of(stream: &TcpStream) -> Self {
        let ports =
            [stream.peer_addr(), stream.local_addr()].map(|address| address.expect("an address").port());
        ServerEnd(ports.map(|port| format!(":{port:04X}")))
    }

    /// Whether the server has accepted the client and read all that the client has sent. A socket without an inode has not been accepted.
    fn is_taken(fields: &[&str]) -> bool {
        fields[4].ends_with(":00000000") && fields[9] != "0"
    }

    /// CLOSE_WAIT.
    fn has_heard_the_end(fields: &[&str]) -> bool {
        fields[3] == "08"
    }

    fn until(&self, is_so: fn(&[&str]) -> bool) {
        let is_ours = |fields: &[&str]| fields[1].ends_with(&self.0[0]) && fields[2].ends_with(&self.0[1]);
        until(|| {
            let table = std::fs::read_to_string("/proc/net/tcp").expect("proc");
            let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            lines.any(|fields| is_ours(&fields) && is_so(&fields))
        });
    }
}

#[test]
fn new_clients_and_kept_ones_are_answered_in_order_of_arrival_while_all_workers_are_busy() {
    let queue = SharedQueue::new().expect("a queue");
    for busy_before in [0, 3] {
        let (board, mut worker) = counted(Some(&queue));
        // The number of earlier requests, and the pace of the helper, make no difference.
        (0..busy_before * 1000).for_each(|_| drop(kept(&worker)));
        let mut old: Vec<_> = (0..4).map(|_| kept(&worker)).collect();
        let held = worker.hold();
        // An earlier request may have lasted so long, on a slow machine, that another one had to wait.
        let before = board.totals().handed_over;
        let mut streams = Vec::new();
        for index in 0..8 {
            let mut stream = if index % 2 == 0 { worker.connect() } else { old.remove(0) };
            write!(stream, "GET /{index} HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
            // The request must be in the queue: the kernel may deliver written bytes later than those of others.
            await_counts(&board, |counts| counts.handed_over > before + index);
            streams.push(stream);
        }
        worker.release();
        streams.iter_mut().for_each(|stream| answered(stream, 0));
        let order: Vec<_> = (0..8).map(|_| worker.next_seen().path).collect();
        assert_eq!(order, (0..8).map(|index| format!("/{index}")).collect::<Vec<_>>());
        drop(held);
        worker.stop();
    }
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only proc(5) tells")]
fn a_new_client_is_accepted_while_all_workers_are_busy_and_answered_by_whoever_is_free_first() {
    let ([(_, mut one), (_, mut other)], held) = two_busy();
    let mut stream = one.connect();
    write!(stream, "GET /new HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    ServerEnd::of(&stream).until(ServerEnd::is_taken);
    // The worker with the listener goes on with the other request.
    other.release();
    answered(&mut stream, 0);
    assert_eq!(other.next_seen().path, "/new");
    one.release();
    drop(held);
    one.stop();
    other.stop();
}

#[test]
fn a_busy_worker_that_is_to_stop_accepts_nobody() {
    for drains in [false, true] {
        let ([(board, mut one), (_, mut other)], held) = two_busy();
        one.release();
        let mut kept = kept(&one);
        let held = (held, one.hold());
        let before = board.totals().handed_over;
        if drains {
            one.control.drain();
        } else {
            one.control.stop();
        }
        let mut stream = one.connect();
        write!(stream, "GET /late HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
        // The worker that sees the later request has seen the client of this one.
        write!(kept, "GET /later HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
        await_counts(&board, |counts| counts.handed_over > before);
        other.release();
        answered(&mut kept, 0);
        assert_eq!((other.next_seen().path.as_str(), board.totals().handed_over), ("/later", before + 1));
        stream.set_nonblocking(true).expect("nonblocking");
        // The other worker would have answered.
        assert_eq!(stream.read(&mut [0]).expect_err("nobody accepts").kind(), ErrorKind::WouldBlock);
        one.control.stop();
        one.release();
        drop(held);
        one.finish();
        other.stop();
    }
}

#[test]
fn a_full_queue_leaves_new_clients_in_the_backlog_and_none_is_lost() {
    /// Clients in the queue before any other client comes. The queue takes about two hundred.
    const FIRST: usize = 100;
    let queue = SharedQueue::new().expect("a queue");
    let (board, mut worker) = counted(Some(&queue));
    let held = worker.hold();
    // The queue takes fewer clients, and the queue and the backlog together take more.
    let clients = 350;
    let mut streams: Vec<_> = (0..clients)
        .map(|index| {
            let before = board.totals().handed_over;
            let mut stream = worker.connect();
            write!(stream, "GET /{index} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("write");
            if index < FIRST {
                await_counts(&board, |counts| counts.handed_over > before);
            }
            stream
        })
        .collect();
    worker.release();
    for stream in streams.drain(..) {
        assert!(read_all(stream).starts_with("HTTP/1.1 200 "));
    }
    let mut order: Vec<usize> =
        (0..clients).map(|_| worker.next_seen().path[1..].parse().expect("a number")).collect();
    assert!(order[..FIRST].iter().copied().eq(0..FIRST), "{order:?}");
    order.sort_unstable();
    order.dedup();
    assert_eq!(order.len(), clients);
    drop(held);
    worker.stop();
}
