//! How a worker ends, and what it does with slow clients and failing responses.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::{closing, patience, read_all, until, Worker};
use fastrack_engine::{App, Control, Engine, Finish, Flow, Listener, Request, ResponseWriter, Settings};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";

/// Settings with short timeouts, so that a test need not wait for long.
fn impatient() -> Settings {
    Settings { header_timeout: 200, body_timeout: 200, write_timeout: 200, ..closing() }
}

#[test]
fn the_engine_returns_after_as_many_requests_as_it_was_to_serve() {
    let mut worker = Worker::start(closing(), Some(3));
    for _ in 0..3 {
        assert!(worker.writer(GET).starts_with("HTTP/1.1 200"));
    }
    assert_eq!(worker.finish(), Finish::Limit);
}

/// Has the engine return after the first request.
struct Pausing(Arc<Control>);

impl App for Pausing {
    fn call(&mut self, _request: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow {
        self.0.pause();
        writer
            .send(&[IoSlice::new(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")])
            .expect("the client is there");
        writer.finish();
        Flow::Continue
    }

    fn warn(&mut self, line: &str) {
        panic!("{line}");
    }
}

#[test]
fn nothing_of_a_response_is_held_back_while_the_engine_pauses_before_the_next_pipelined_request() {
    for _ in 0..5 {
        let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
        let listener = Listener::from_fd(socket.as_fd(), true).expect("a listener");
        let engine = Engine::new(vec![listener], None, Settings::default(), None).expect("an engine");
        let mut client = TcpStream::connect(socket.local_addr().expect("an address")).expect("connect");
        client.write_all(&GET.repeat(2)).expect("write");
        assert_eq!(engine.run(&mut Pausing(engine.control()), None), Finish::Paused);
        // Without the pause's flush the kernel would send the response after 200 ms.
        client.set_read_timeout(Some(Duration::from_millis(150))).expect("a timeout");
        let mut status = [0; 12];
        client.read_exact(&mut status).expect("the first response");
        assert_eq!(&status, b"HTTP/1.1 200");
    }
}

#[test]
fn a_refused_request_does_not_count() {
    let mut worker = Worker::start(closing(), Some(1));
    assert!(worker.writer(b"bad\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert!(worker.writer(GET).starts_with("HTTP/1.1 200"));
    assert_eq!(worker.finish(), Finish::Limit);
}

#[test]
fn a_request_that_has_begun_is_finished_before_a_stop() {
    let mut worker = Worker::start(closing(), None);
    let mut fresh = worker.connect();
    let mut silent = worker.connect();
    let mut begun = worker.connect();
    begun.write_all(&GET[..10]).expect("write");
    // The engine has served a later request, so it has read the beginning of this one.
    assert!(worker.writer(GET).starts_with("HTTP/1.1 200"));
    worker.control.stop();
    begun.write_all(&GET[10..]).expect("write");
    assert!(read_all(begun).starts_with("HTTP/1.1 200"));
    fresh.write_all(GET).expect("write");
    assert!(read_all(fresh).starts_with("HTTP/1.1 200"));
    assert_eq!(worker.finish(), Finish::Stopped);
    assert_eq!(silent.read(&mut [0]).expect("closed in order"), 0);
}

#[test]
fn half_a_request_does_not_hold_up_a_stop_for_longer_than_its_time() {
    let mut worker = Worker::start(closing(), None);
    let mut half = worker.connect();
    half.write_all(&GET[..10]).expect("write");
    assert!(worker.writer(GET).starts_with("HTTP/1.1 200"));
    assert_eq!(worker.stop(), Finish::Stopped);
    assert!(read_all(half).starts_with("HTTP/1.1 408 "));
}

#[test]
fn the_end_of_the_master_ends_the_engine() {
    let (master, worker_end) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let mut worker = Worker::start_with_master(closing(), None, Some(worker_end.as_fd()));
    assert!(worker.writer(GET).starts_with("HTTP/1.1 200"));
    drop(master);
    assert_eq!(worker.finish(), Finish::Stopped);
}

#[test]
fn an_orphan_closes_its_listener_while_a_request_lasts_even_if_it_is_the_last_of_its_limit() {
    for limit in [None, Some(1)] {
        let (master, worker_end) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let mut worker = Worker::start_with_master(closing(), limit, Some(worker_end.as_fd()));
        let held = worker.hold();
        drop(master);
        until(|| TcpStream::connect(worker.address).is_err());
        worker.release();
        assert_eq!(worker.finish(), limit.map_or(Finish::Stopped, |_| Finish::Limit));
        assert!(read_all(held).starts_with("HTTP/1.1 200"));
    }
}

#[test]
fn a_byte_in_the_masters_pipe_wakes_an_engine_that_was_told_to_stop_and_ends_no_other() {
    let (mut master, worker_end) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let mut worker = Worker::start_with_master(closing(), None, Some(worker_end.as_fd()));
    for _ in 0..3 {
        master.write_all(b".").expect("write");
        assert!(worker.writer(GET).starts_with("HTTP/1.1 200"));
    }
    worker.control.stop();
    master.write_all(b".").expect("write");
    assert_eq!(worker.finish(), Finish::Stopped);
}

#[test]
fn a_slow_head_is_answered_408_and_a_silent_client_is_closed_without_a_word() {
    let mut worker = Worker::start(impatient(), None);
    // A client must send its request within the time limit, which begins with accept(2). The held request has arrived by then.
    let held = worker.hold();
    let silent = worker.connect();
    let mut slow = worker.connect();
    slow.write_all(b"GET / HTTP/1.1\r\n").expect("write");
    worker.release();
    assert!(read_all(held).starts_with("HTTP/1.1 200"));
    assert!(read_all(slow).starts_with("HTTP/1.1 408 "));
    assert_eq!(read_all(silent), "");
    worker.stop();
}

#[test]
fn a_head_sent_byte_by_byte_does_not_get_more_time_for_each_byte() {
    let mut worker = Worker::start(impatient(), None);
    let mut slow = worker.connect();
    slow.set_read_timeout(Some(Duration::from_millis(10))).expect("a timeout");
    until(|| slow.write_all(b"G").is_err() || matches!(slow.read(&mut [0; 64]), Ok(1..)));
    worker.stop();
}

#[test]
fn an_application_that_sends_nothing_gets_its_client_a_500() {
    let mut worker = Worker::start(closing(), None);
    assert!(worker.writer(b"GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n").starts_with("HTTP/1.1 500 "));
    let head = worker.writer(b"HEAD /nothing HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 500 ") && head.ends_with("\r\n\r\n"), "{head}");
    worker.stop();
}

#[test]
fn half_a_response_ends_in_a_reset() {
    let mut worker = Worker::start(closing(), None);
    let mut stream = worker.connect();
    stream.write_all(b"GET /half HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    let error = stream.read_to_end(&mut Vec::new()).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    worker.stop();
}

#[test]
fn a_large_response_reaches_a_slow_reader_whole() {
    let mut worker = Worker::start(closing(), None);
    let mut stream = worker.connect();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    let mut total = 0;
    let mut buffer = vec![0; 100_000];
    loop {
        match stream.read(&mut buffer).expect("read") {
            0 => break,
            got => total += got,
        }
        std::thread::yield_now();
    }
    assert_eq!(total, 8_000_000 + "HTTP/1.1 200 OK\r\n\r\n".len());
    worker.stop();
}

#[test]
fn a_client_that_reads_nothing_times_out() {
    let mut worker = Worker::start(Settings { max_response_spool: 0, ..impatient() }, Some(1));
    let mut stream = worker.connect();
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
    assert_eq!(worker.finish(), Finish::Limit);
    assert!(stream.read_to_end(&mut Vec::new()).is_err(), "a cut response must not pass for a whole one");
}

/// An application that runs this function when the first line is logged.
struct Warned<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> App for Warned<F> {
    fn call(&mut self, _request: &Request<'_>, _writer: &mut ResponseWriter<'_>) -> Flow {
        Flow::Continue
    }

    fn warn(&mut self, _line: &str) {
        self.0.take().into_iter().for_each(|work| work());
    }
}

/// Runs a worker that logs a warning, because a request has waited for too long, while another client waits.
fn warned(on_line: impl FnOnce(TcpStream, &Control) + Send + 'static) -> Finish {
    let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
    let listener = Listener::from_fd(socket.as_fd(), true).expect("a listener");
    let settings = Settings { max_queue_time: 1_000, ..closing() };
    let engine = Engine::new(vec![listener], None, settings, None).expect("an engine");
    let control = engine.control();
    let connect = || TcpStream::connect(socket.local_addr().expect("an address")).expect("connect");
    let (mut other, mut late) = (connect(), connect());
    other.write_all(b"ba").expect("write");
    let ago = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs() - 10;
    write!(late, "GET / HTTP/1.1\r\nHost: h\r\nX-Request-Start: t={ago}\r\n\r\n").expect("write");
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let _ = tell.send(engine.run(&mut Warned(Some(|| on_line(other, &control))), None));
    });
    told.recv_timeout(patience()).expect("the engine returns")
}

#[test]
fn a_slow_log_holds_up_no_client() {
    let finish = warned(|mut other, control| {
        other.set_read_timeout(Some(patience())).expect("a timeout");
        other.write_all(b"d\r\n\r\n").expect("write");
        assert!(read_all(other).starts_with("HTTP/1.1 400"));
        control.stop();
    });
    assert_eq!(finish, Finish::Stopped);
}

/// Connects a client to each listener while the worker waits, and stops the worker at that moment.
struct Crowded(Vec<SocketAddr>, Arc<Control>, Sender<TcpStream>);

impl App for Crowded {
    fn call(&mut self, _request: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow {
        let _ = writer.send(&[IoSlice::new(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")]);
        writer.finish();
        Flow::Continue
    }

    fn block(&mut self, wait: &mut (dyn FnMut() + Send)) -> Flow {
        for address in self.0.drain(..) {
            let mut client = TcpStream::connect(address).expect("connect");
            client.set_read_timeout(Some(patience())).expect("a timeout");
            client.write_all(GET).expect("write");
            self.2.send(client).expect("tell");
        }
        wait();
        self.1.stop();
        Flow::Continue
    }

    fn warn(&mut self, line: &str) {
        panic!("{line}");
    }
}

#[test]
fn clients_that_were_announced_by_several_listeners_are_served_before_a_stop() {
    // The sockets stay open after the engine's end, as if other workers had them.
    let sockets = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("bind"));
    let listeners = sockets.iter().map(|socket| Listener::from_fd(socket.as_fd(), true).expect("a listener"));
    let engine = Engine::new(listeners.collect(), None, closing(), None).expect("an engine");
    let (tell, told) = channel();
    let addresses = sockets.iter().map(|socket| socket.local_addr().expect("an address")).collect();
    let mut app = Crowded(addresses, engine.control(), tell);
    assert_eq!(engine.run(&mut app, None), Finish::Stopped);
    drop(app);
    let answers: Vec<String> = told.iter().map(read_all).collect();
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200")), "{answers:?}");
}
