//! A worker in a thread, with an application that needs no Ruby.

use std::io::{IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;

use fastrack_engine::{
    App, BodyRead, BodyStream, Content, Control, Engine, Finish, Flow, Listener, Progress, Request,
    ResponseWriter, Settings, SharedQueue,
};

pub use patience::{eventually, patience, until};

#[path = "../../../sys/tests/patience/mod.rs"]
mod patience;

/// A request as the application saw it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub body: Vec<u8>,
    pub in_file: bool,
}

/// Answers by path. `/nothing` sends nothing. `/half` stops halfway. `/large` sends 8 MB, and `/array` as much without waiting for the
/// client. `/hold` waits until the test releases it. `/quiet` sends 8 MB, and waits likewise. All other paths send the length of the body.
struct Echo(Sender<Seen>, Receiver<()>);

impl Echo {
    fn send(writer: &mut ResponseWriter<'_>, text: &[u8]) {
        let mut progress = writer.send(&[IoSlice::new(text)]).unwrap_or(Progress::Sent);
        while progress == Progress::Blocked && !writer.is_broken() {
            let _ = writer.wait();
            progress = writer.flush().unwrap_or(Progress::Sent);
        }
    }
}

impl Echo {
    fn hold(&self) {
        let _ = self.0.send(Seen { path: "/held".into(), ..Seen::default() });
        self.1.recv().expect("released");
    }

    /// Reads a body that is still arriving, up to the length that the path names.
    fn read(stream: BodyStream<'_>, path: &str) -> Vec<u8> {
        let mut body = Vec::new();
        let most = path.strip_prefix("/only/").map_or(usize::MAX, |most| most.parse().expect("a number"));
        while body.len() < most {
            match stream.read(most - body.len(), &mut |bytes| body.extend_from_slice(bytes)) {
                Ok(BodyRead::Taken) => {}
                Ok(BodyRead::Blocked) => stream.wait(),
                Ok(BodyRead::End) | Err(_) => break,
            }
        }
        body
    }

    fn finish(writer: &mut ResponseWriter<'_>) {
        while writer.finish() == Progress::Blocked {
            let _ = writer.wait().and_then(|()| writer.flush());
        }
    }
}

impl App for Echo {
    fn call(&mut self, request: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let path = text(request.path);
        let (body, in_file) = match request.content {
            Content::None => (Vec::new(), false),
            Content::Memory(bytes) => (bytes.to_vec(), false),
            Content::File(mut file, length) => {
                let mut body = Vec::new();
                file.read_to_end(&mut body).expect("readable");
                assert_eq!(body.len() as u64, length);
                (body, true)
            }
            Content::Stream(stream) => (Self::read(stream, &path), false),
        };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {0}\r\n\r\n{1:>0$}", 9, body.len());
        if path != "/nothing" {
            writer.describe(200, answer.len() - 9);
        }
        match path.as_str() {
            "/nothing" => {}
            "/half" => Self::send(writer, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal"),
            "/large" | "/quiet" => {
                Self::send(writer, b"HTTP/1.1 200 OK\r\n\r\n");
                Self::send(writer, &vec![b'x'; 8_000_000]);
                if path == "/quiet" {
                    self.hold();
                }
                Self::finish(writer);
            }
            "/array" => {
                let head = b"HTTP/1.1 200 OK\r\nContent-Length: 8000000\r\n\r\n";
                let _ = writer.send(&[IoSlice::new(head), IoSlice::new(&vec![b'x'; 8_000_000])]);
                Self::finish(writer);
            }
            _ => {
                if path == "/hold" {
                    self.hold();
                }
                Self::send(writer, answer.as_bytes());
                Self::finish(writer);
            }
        }
        let method = text(request.head.method.of_buffer(request.bytes));
        let _ = self.0.send(Seen { method, path, body, in_file });
        Flow::Continue
    }

    fn warn(&mut self, line: &str) {
        panic!("{line}");
    }
}

/// Settings that allow one request for each connection.
pub fn closing() -> Settings {
    Settings { keep_alive: false, ..Settings::default() }
}

pub struct Worker {
    pub address: SocketAddr,
    pub control: Arc<Control>,
    pub seen: Receiver<Seen>,
    release: Sender<()>,
    thread: Option<JoinHandle<Finish>>,
}

impl Worker {
    pub fn start(settings: Settings, limit: Option<u64>) -> Worker {
        Self::start_with_master(settings, limit, None)
    }

    pub fn start_with_master(
        settings: Settings,
        limit: Option<u64>,
        master: Option<BorrowedFd<'_>>,
    ) -> Worker {
        Self::start_sharing(settings, limit, master, None)
    }

    /// Starts a worker with a listener of its own, so that a test can decide which worker accepts.
    pub fn start_sharing(
        settings: Settings,
        limit: Option<u64>,
        master: Option<BorrowedFd<'_>>,
        queue: Option<&SharedQueue>,
    ) -> Worker {
        let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
        let listener = Listener::from_fd(socket.as_fd(), true).expect("a listener");
        let engine = Engine::new(vec![listener], master, settings, queue).expect("an engine");
        let control = engine.control();
        let ((sender, seen), (release, released)) = (channel(), channel());
        let thread = std::thread::spawn(move || engine.run(&mut Echo(sender, released), limit));
        let address = socket.local_addr().expect("an address");
        Worker { address, control, seen, release, thread: Some(thread) }
    }

    /// Keeps the application busy with a request. The answer comes on the returned connection.
    pub fn hold(&self) -> TcpStream {
        let stream = self.ask_to_hold();
        assert_eq!(self.next_seen().path, "/held");
        stream
    }

    /// Sends the request of [`hold`](Self::hold), and does not wait until the application is called.
    pub fn ask_to_hold(&self) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(b"GET /hold HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("write");
        stream
    }

    pub fn release(&self) {
        self.release_held();
        assert_eq!(self.next_seen().path, "/hold");
    }

    pub fn release_held(&self) {
        self.release.send(()).expect("somebody held");
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connect");
        stream.set_read_timeout(Some(patience())).expect("a timeout");
        stream
    }

    /// Sends bytes, and returns all that the worker sends until it closes the connection.
    pub fn writer(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).expect("write");
        read_all(stream)
    }

    /// The next request, without those that only keep a connection.
    pub fn next_seen(&self) -> Seen {
        loop {
            let seen = self.seen.recv_timeout(patience()).expect("a request");
            if seen.path != "/kept" {
                return seen;
            }
        }
    }

    /// Waits until the engine has returned, and tells why it has.
    pub fn finish(&mut self) -> Finish {
        self.thread.take().expect("not finished before").join().expect("no panic")
    }

    pub fn stop(&mut self) -> Finish {
        self.control.stop();
        // The engine may be waiting. No signal interrupts it here, so a client does.
        drop(TcpStream::connect(self.address));
        self.finish()
    }
}

pub fn read_all(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).expect("a response and an orderly end");
    String::from_utf8(text).expect("utf-8")
}

pub fn end_of_sending(stream: &TcpStream) {
    stream.shutdown(Shutdown::Write).expect("shutdown");
}
