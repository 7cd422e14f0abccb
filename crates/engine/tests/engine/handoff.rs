//! Workers that share their connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::counting::{await_counts, counted};
use crate::support::{read_all, Worker, SOON};
use fastrack_engine::{Finish, Settings, SharedQueue};

fn sharing(queue: &SharedQueue) -> Worker {
    Worker::start_sharing(Settings::default(), None, None, Some(queue))
}

fn two() -> (SharedQueue, Worker, Worker) {
    let queue = SharedQueue::new().expect("a queue");
    let workers = (sharing(&queue), sharing(&queue));
    (queue, workers.0, workers.1)
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

/// A connection that the worker keeps. Where the machine has no time for it for a moment, its helper gives the request to
/// another worker.
fn kept(worker: &Worker) -> TcpStream {
    let attempt = || {
        let mut stream = worker.connect();
        ask(&mut stream, "/kept");
        worker.seen.recv_timeout(Duration::from_secs(1)).is_ok().then_some(stream)
    };
    (0..20).find_map(|_| attempt()).expect("a connection")
}

/// Has this worker busy, and not the other one: its helper may give the request to that, as in [`kept`].
fn hold(worker: &Worker, other: &Worker) -> TcpStream {
    let attempt = || {
        let stream = worker.ask_to_hold();
        let is_held = |worker: &Worker| {
            worker.seen.recv_timeout(Duration::from_millis(1)).is_ok_and(|seen| seen.path == "/held")
        };
        let start = Instant::now();
        while !is_held(worker) {
            if is_held(other) {
                other.release();
                read_all(stream);
                return None;
            }
            assert!(start.elapsed() < SOON, "no worker was called");
        }
        Some(stream)
    };
    (0..20).find_map(|_| attempt()).expect("a busy worker")
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
    let (_dispatch, mut busy, mut idle) = two();
    for size in [0, 5, 40_000, 1_000_000, 3_000_000] {
        for request in requests(size) {
            for cut in [0, 20, request.len() / 2] {
                let mut stream = kept(&busy);
                stream.write_all(&request[..cut]).expect("write");
                // Served after that was read.
                drop(kept(&busy));
                let held = hold(&busy, &idle);
                stream.write_all(&request[cut..]).expect("write");
                answered(&mut stream, size);
                let seen = idle.next_seen();
                assert!(
                    seen.path == "/p"
                        && seen.body.iter().zip(0..).all(|(byte, at)| *byte == (at % 251) as u8)
                );
                busy.release();
                assert!(read_all(held).starts_with("HTTP/1.1 200 "));
                // It stays where it is now.
                ask(&mut stream, "/next");
                assert_eq!(idle.next_seen().path, "/next");
            }
        }
    }
    busy.stop();
    idle.stop();
}

#[test]
fn the_first_free_worker_answers_in_order_of_arrival() {
    let (_dispatch, mut one, mut other) = two();
    let mut streams: Vec<_> = (0..6).map(|index| kept(if index % 2 == 0 { &one } else { &other })).collect();
    let held = (one.hold(), other.hold());
    for (index, stream) in streams.iter_mut().enumerate() {
        write!(stream, "GET /{index} HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
        // Their helpers are independent.
        await_taken(stream);
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    other.release();
    streams.iter_mut().for_each(|stream| answered(stream, 0));
    for index in 0..6 {
        assert_eq!(other.next_seen().path, format!("/{index}"));
    }
    one.release();
    drop(held);
    one.stop();
    other.stop();
}

#[test]
fn a_worker_that_stops_leaves_its_idle_connections_to_the_other() {
    let (_dispatch, mut one, mut other) = two();
    let mut streams: Vec<_> = (0..400).map(|_| kept(&one)).collect();
    assert_eq!(one.stop(), Finish::Stopped);
    for stream in &mut streams {
        ask(stream, "/there");
        assert_eq!(other.next_seen().path, "/there");
    }
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
fn a_client_that_disconnects_in_the_queue_is_dropped_and_counted() {
    let (_dispatch, mut one, mut other) = two();
    let (gone, mut stays) = (kept(&one), kept(&one));
    let held = (one.hold(), other.hold());
    (&gone).write_all(b"GET /gone HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    write!(stays, "GET /stays HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    // Another connection's request is read only after these were: the helper handles events in order.
    std::thread::sleep(std::time::Duration::from_millis(50));
    drop(gone);
    other.release();
    answered(&mut stays, 0);
    assert_eq!(other.next_seen().path, "/stays");
    one.release();
    drop(held);
    one.stop();
    other.stop();
    assert_eq!(one.control.dropped() + other.control.dropped(), 1);
}

/// Waits until the server has accepted this client and read all that it has sent: proc(5), /proc/net/tcp.
fn await_taken(stream: &TcpStream) {
    let ports = [stream.peer_addr(), stream.local_addr()].map(|address| address.expect("an address").port());
    let ends = ports.map(|port| format!(":{port:04X}"));
    let is_taken = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Of a socket that nobody has accepted there is no inode.
        fields[1].ends_with(&ends[0])
            && fields[2].ends_with(&ends[1])
            && fields[4].ends_with(":00000000")
            && fields[9] != "0"
    };
    let start = Instant::now();
    while !std::fs::read_to_string("/proc/net/tcp").expect("proc").lines().any(is_taken) {
        assert!(start.elapsed() < SOON);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn new_clients_and_kept_ones_are_answered_in_order_of_arrival_while_all_workers_are_busy() {
    let queue = SharedQueue::new().expect("a queue");
    for busy_before in [0, 3] {
        let (board, mut worker) = counted(Some(&queue));
        // However many requests it has answered, and at whatever pace its helper looks.
        (0..busy_before * 1000).for_each(|_| drop(kept(&worker)));
        let mut old: Vec<_> = (0..4).map(|_| kept(&worker)).collect();
        let held = worker.hold();
        // On a slow machine a request before may have lasted so long that another one had to wait.
        let before = board.totals().handed_over;
        let mut streams = Vec::new();
        for index in 0..8 {
            let mut stream = if index % 2 == 0 { worker.connect() } else { old.remove(0) };
            write!(stream, "GET /{index} HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
            // In the queue, and not only written: the kernel may pass bytes on later, and others first.
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
    let (_queue, mut one, mut other) = two();
    let held = (one.hold(), other.hold());
    let mut stream = one.connect();
    write!(stream, "GET /new HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    await_taken(&stream);
    // Its own listener's worker goes on with the other request.
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
        let (_queue, mut one, mut other) = two();
        let held = one.hold();
        if drains {
            one.control.drain();
        } else {
            one.control.stop();
        }
        let mut stream = one.connect();
        write!(stream, "GET /late HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
        stream.set_read_timeout(Some(std::time::Duration::from_millis(50))).expect("a timeout");
        // The other one would have answered.
        stream.read(&mut [0]).expect_err("nobody accepts");
        one.control.stop();
        one.release();
        drop(held);
        one.finish();
        other.stop();
    }
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only proc(5) tells")]
fn a_full_queue_leaves_new_clients_in_the_backlog_and_none_is_lost() {
    let queue = SharedQueue::new().expect("a queue");
    let mut worker = sharing(&queue);
    let held = worker.hold();
    // More than the queue takes, and less than queue and backlog.
    let clients = 350;
    let mut streams: Vec<_> = (0..clients)
        .map(|index| {
            let mut stream = worker.connect();
            write!(stream, "GET /{index} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("write");
            stream
        })
        .collect();
    await_taken(&streams[0]);
    worker.release();
    for stream in streams.drain(..) {
        assert!(read_all(stream).starts_with("HTTP/1.1 200 "));
    }
    let mut order: Vec<usize> =
        (0..clients).map(|_| worker.next_seen().path[1..].parse().expect("a number")).collect();
    // But for one that was accepted before its request had come. Those that found no room take turns with what comes then.
    assert!(order[..100].iter().enumerate().all(|(place, index)| place.abs_diff(*index) < 10), "{order:?}");
    order.sort_unstable();
    order.dedup();
    assert_eq!(order.len(), clients);
    drop(held);
    worker.stop();
}
