//! Workers out of descriptors. In a process of its own: no other test could run meanwhile.

#![cfg(target_os = "linux")]

use std::fs::{read_dir, File};
use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use fastrack_engine::{
    App, Control, Engine, Finish, Flow, Listener, Request, ResponseWriter, Settings, SharedQueue,
};

use patience::{patience, until};

#[path = "../../sys/tests/patience/mod.rs"]
mod patience;

/// Reports each request and each warning. `/hold` waits until the test releases it.
struct Teller(Sender<String>, Receiver<()>);

impl App for Teller {
    fn call(&mut self, request: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow {
        let _ = self.0.send(String::from_utf8_lossy(request.path).into_owned());
        if request.path == b"/hold" {
            self.1.recv().expect("released");
        }
        let _ = writer.send(&[IoSlice::new(ANSWER)]);
        writer.finish();
        Flow::Continue
    }

    fn warn(&mut self, line: &str) {
        let _ = self.0.send(line.to_owned());
    }
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(patience())).expect("a timeout");
    stream
}

fn ask(mut stream: &TcpStream, path: &str) {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
}

fn answered(mut stream: &TcpStream) {
    let mut bytes = vec![0; ANSWER.len()];
    stream.read_exact(&mut bytes).expect("an answer");
    assert_eq!(bytes, ANSWER);
}

fn open_descriptors() -> usize {
    read_dir("/proc/self/fd").expect("a directory").count()
}

/// One test at a time.
static TURN: Mutex<()> = Mutex::new(());

/// A worker without a free descriptor. It is serving a request, and another request waits in the queue.
struct Exhausted {
    queue: SharedQueue,
    socket: TcpListener,
    control: Arc<Control>,
    told: Receiver<String>,
    release: Sender<()>,
    worker: JoinHandle<Finish>,
    held: TcpStream,
    waiting: TcpStream,
    files: Vec<File>,
}

impl Exhausted {
    fn heard(&self, what: &str) {
        while !self.told.recv_timeout(patience()).expect("a word").starts_with(what) {}
    }

    /// The worker returns from its request, and finds no descriptor. Then some descriptors are freed.
    fn recover(&mut self) {
        self.release.send(()).expect("somebody held");
        answered(&self.held);
        self.heard("cannot take a connection over: ");
        self.files.clear();
        self.heard("/waiting");
        answered(&self.waiting);
    }
}

fn exhausted() -> Exhausted {
    let queue = SharedQueue::new().expect("a queue");
    let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = socket.local_addr().expect("an address");
    let listener = Listener::from_fd(socket.as_fd(), true).expect("a listener");
    let engine = Engine::new(vec![listener], None, Settings::default(), Some(&queue)).expect("an engine");
    let control = engine.control();
    let ((tell, told), (release, released)) = (channel(), channel());
    let worker = std::thread::spawn(move || engine.run(&mut Teller(tell, released), None));
    let (waiting, held) = (connect(address), connect(address));
    let mut all =
        Exhausted { queue, socket, control, told, release, worker, held, waiting, files: Vec::new() };

    for stream in [&all.waiting, &all.held] {
        ask(stream, "/first");
        answered(stream);
    }
    ask(&all.held, "/hold");
    all.heard("/hold");
    let before = open_descriptors();
    ask(&all.waiting, "/waiting");
    // The waiting request goes into the queue.
    until(|| open_descriptors() != before);
    while let Ok(file) = File::open("/dev/null") {
        all.files.push(file);
    }
    all
}

#[test]
fn a_request_in_the_queue_stays_there_until_a_descriptor_is_free() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all = exhausted();
    all.recover();
    all.control.stop();
    // A client wakes the worker.
    drop(connect(all.socket.local_addr().expect("an address")));
    assert_eq!(all.worker.join().expect("no panic"), Finish::Stopped);
}

#[test]
fn the_last_worker_to_stop_waits_for_a_descriptor_for_those_in_the_queue() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut all = exhausted();
    all.queue.end();
    all.control.stop();
    all.recover();
    assert_eq!(all.worker.join().expect("no panic"), Finish::Stopped);
}
