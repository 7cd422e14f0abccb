//! A worker's counters, as the master reads them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::handoff::two_busy;
use crate::support::{eventually, read_all, Worker};
use fastrack_engine::{
    App, Counts, Engine, Finish, Flow, GcTime, Listener, Request, RequestSettings, ResponseWriter,
    Scoreboard, Settings, SharedQueue,
};

/// How long a request waits for another one, in milliseconds.
const HELD: u64 = 60;

pub fn counted(queue: Option<&SharedQueue>) -> (Scoreboard, Worker) {
    let board = Scoreboard::new().expect("memory");
    let slot = board.reserve().and_then(|index| board.slot(index));
    let watch = RequestSettings { slot, ..RequestSettings::default() };
    let settings = Settings { requests: watch, ..Settings::default() };
    (board, Worker::start_sharing(settings, None, None, queue))
}

fn ask(stream: &mut TcpStream, path: &str) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
}

/// Reads the answer, and waits until the application has reported the request.
fn answered(worker: &Worker, stream: &mut TcpStream) {
    let mut bytes = vec![0; "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n012345678".len()];
    stream.read_exact(&mut bytes).expect("an answer");
    worker.next_seen();
}

/// Waits until the counts are right, and returns them.
pub fn await_counts(board: &Scoreboard, are_right: impl Fn(&Counts) -> bool) -> Counts {
    eventually(|| Some(board.totals()).filter(|counts| are_right(counts)))
}

#[test]
fn requests_are_counted_by_their_status_and_connections_by_what_they_are_at() {
    let (board, worker) = counted(None);
    let mut kept = worker.connect();
    ask(&mut kept, "/");
    answered(&worker, &mut kept);
    let counts = await_counts(&board, |counts| counts.connections.idle == 1);
    assert_eq!((counts.responses(), counts.accepted, counts.requests()), ([0, 0, 1, 0, 0, 0], 1, 1));
    assert_eq!((counts.bytes_in, counts.bytes_out), (27, 47));
    let mut begun = worker.connect();
    begun.write_all(b"GET / HT").expect("write");
    await_counts(&board, |counts| counts.connections.reading == 1);
    for path in ["/nothing", "/half"] {
        let mut stream = worker.connect();
        ask(&mut stream, path);
        let _ = stream.read_to_end(&mut Vec::new());
        worker.next_seen();
    }
    let mut wrong = worker.connect();
    wrong.write_all(b"GET\r\n\r\n").expect("write");
    read_all(wrong);
    let held = worker.hold();
    let counts = await_counts(&board, |counts| counts.connections.in_app == 1);
    assert_eq!(counts.responses(), [0, 0, 2, 0, 0, 1]);
    assert_eq!((counts.aborted, counts.refused, counts.accepted), (1, 1, 6));
    worker.release();
    read_all(held);
    await_counts(&board, |counts| counts.connections.in_app == 0 && counts.requests() == 4);
}

#[test]
fn a_request_waits_from_when_it_was_there_whether_its_connection_is_kept_or_new() {
    // Only Linux tells how long a client has been in the backlog: tcp(7), TCP_INFO.
    let tells = cfg!(all(target_os = "linux", not(feature = "portable")));
    for is_new in [false, true].into_iter().take(1 + usize::from(tells)) {
        let (board, worker) = counted(None);
        let mut waits = worker.connect();
        ask(&mut waits, "/");
        answered(&worker, &mut waits);
        let held = worker.hold();
        // These two requests may have waited as well, on a busy machine.
        let before = await_counts(&board, |counts| counts.connections.in_app == 1).queue_times.sum;
        if is_new {
            waits = worker.connect();
        }
        let asked = Instant::now();
        ask(&mut waits, "/");
        if !is_new {
            // The helper sees the request sooner or later.
            await_counts(&board, |counts| counts.connections.waiting == 1);
        }
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(HELD) {
            std::thread::yield_now();
        }
        worker.release();
        answered(&worker, &mut waits);
        read_all(held);
        let counts = await_counts(&board, |counts| counts.requests() == 3);
        let sum = counts.queue_times.sum - before;
        // The kernel's tick is 1 to 10 ms long.
        assert!(
            sum >= HELD - 25 && sum <= asked.elapsed().as_millis() as u64 + 25,
            "new: {is_new}, {sum} ms"
        );
        assert!(counts.durations[2].sum >= HELD - 25, "{counts:?}");
    }
}

#[test]
fn the_time_in_the_shared_queue_counts_and_so_do_connections_that_are_passed_on() {
    let ([(first, one), (second, two)], held) = two_busy();
    one.release();
    let mut waits = one.connect();
    ask(&mut waits, "/");
    answered(&one, &mut waits);
    let held = (held, one.hold());
    let [before, before_there] = [&first, &second].map(Scoreboard::totals);
    ask(&mut waits, "/");
    await_counts(&first, |counts| counts.handed_over == before.handed_over + 1);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(HELD) {
        std::thread::yield_now();
    }
    two.release();
    answered(&two, &mut waits);
    let counts = await_counts(&second, |counts| counts.requests() == before_there.requests() + 2);
    assert_eq!(counts.taken_over, before_there.taken_over + 1);
    assert!(counts.queue_times.sum >= before_there.queue_times.sum + HELD - 25, "{counts:?}");
    one.release();
    drop(held);
}

#[test]
fn a_worker_that_has_stopped_has_no_connections_even_if_its_process_goes_on() {
    let (board, mut worker) = counted(None);
    let mut kept = worker.connect();
    ask(&mut kept, "/");
    answered(&worker, &mut kept);
    await_counts(&board, |counts| counts.connections.idle == 1);
    assert_eq!(worker.stop(), Finish::Stopped);
    assert_eq!(board.totals().connections, fastrack_engine::Connections::default());
}

/// Closes the engine in a request, as a forked child does. The garbage collector has run in the request.
struct Forks<'a>(&'a Engine);

impl App for Forks<'_> {
    fn call(&mut self, _: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow {
        writer.count_gc(GcTime { in_requests: 5, outside: 0 });
        self.0.control().close();
        writer.count_gc(GcTime { in_requests: 7, outside: 7 });
        Flow::Continue
    }

    fn warn(&mut self, line: &str) {
        panic!("{line}");
    }
}

#[test]
fn a_forked_child_that_returns_from_the_application_counts_nothing() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
    let listener = Listener::from_fd(socket.as_fd(), true).expect("a listener");
    let board = Scoreboard::new().expect("memory");
    let slot = board.reserve().and_then(|index| board.slot(index));
    let watch = RequestSettings { slot, ..RequestSettings::default() };
    let engine = Engine::new(vec![listener], None, Settings { requests: watch, ..Settings::default() }, None);
    let engine = engine.expect("an engine");
    let mut stream = TcpStream::connect(socket.local_addr().expect("an address")).expect("connect");
    ask(&mut stream, "/");
    assert_eq!(engine.run(&mut Forks(&engine), None), Finish::Closed);
    let counts = board.totals();
    assert_eq!((counts.gc_in_requests, counts.gc_outside, counts.requests()), (5, 0, 0));
    // Other files have the numbers of the engine's descriptors by now.
    std::mem::forget(engine);
}
