//! Several threads that run one engine.

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use fastrack_engine::{
    App, Engine, Finish, Flow, Listener, Request, RequestSettings, ResponseWriter, Settings,
};

use crate::support::{eventually, patience, until};

const THREADS: usize = 4;

/// Answers with the path. `/meet` waits for as many requests as there are threads. `/leave` makes the thread return.
struct Waiting<'a> {
    met: &'a (Mutex<usize>, Condvar),
    inside: &'a AtomicUsize,
}

impl App for Waiting<'_> {
    fn call(&mut self, request: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow {
        let path = request.path.to_vec();
        assert!(self.inside.fetch_add(1, Ordering::SeqCst) < THREADS);
        let start = Instant::now();
        match &path[..] {
            b"/meet" => {
                let (met, changed) = self.met;
                let mut met = met.lock().expect("no panic");
                *met += 1;
                changed.notify_all();
                // The thread wants no processor meanwhile, even if the processors are busy.
                drop(changed.wait_timeout_while(met, patience(), |met| *met < THREADS));
            }
            // Some requests compute, and some wait.
            _ => match path.len() % 3 {
                0 => std::thread::sleep(Duration::from_micros(u64::from(path[path.len() - 1]) * 50)),
                1 => while start.elapsed() < Duration::from_micros(500) {},
                _ => {}
            },
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", path.len());
        let _ = writer.send(&[IoSlice::new(head.as_bytes()), IoSlice::new(&path)]);
        writer.finish();
        if path == b"/leave" {
            Flow::Break
        } else {
            Flow::Continue
        }
    }

    fn warn(&mut self, line: &str) {
        panic!("{line}");
    }
}

fn get(stream: &mut TcpStream, path: &str) -> bool {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).expect("write");
    let expected = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
    let mut response = vec![0; expected.len()];
    stream.read_exact(&mut response).expect("a response");
    response == expected.as_bytes()
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(patience())).expect("a timeout");
    stream
}

/// Waits, because a client may have its response before the request is counted.
pub(crate) fn await_requests(engine: &Engine, requests: u64) {
    until(|| engine.control().requests() == requests);
}

fn with_threads(
    limit: Option<u64>,
    clients: impl FnOnce(&Engine, SocketAddr) + Send,
) -> (Finish, Vec<Finish>) {
    until_over(limit, |engine, address, _| clients(engine, address))
}

/// Runs an engine with several threads while `clients` run. A flag tells the clients when the engine has returned. Returns why the first
/// thread and the others have returned.
fn until_over(
    limit: Option<u64>,
    clients: impl FnOnce(&Engine, SocketAddr, &AtomicBool) + Send,
) -> (Finish, Vec<Finish>) {
    let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
    let listener = Listener::from_fd(socket.as_fd(), true).expect("a listener");
    let watch = RequestSettings { threads: THREADS, ..RequestSettings::default() };
    let settings = Settings { requests: watch, ..Settings::default() };
    let engine = Engine::new(vec![listener], None, settings, None).expect("an engine");
    let (met, inside) = (Default::default(), AtomicUsize::new(0));
    let address = socket.local_addr().expect("an address");
    let (finishes, is_over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let run = || engine.run(&mut Waiting { met: &met, inside: &inside }, limit);
    let serve = || {
        let finish = engine.serve(&mut Waiting { met: &met, inside: &inside });
        finishes.lock().expect("no panic").push(finish);
    };
    let finish = std::thread::scope(|scope| {
        (1..THREADS).for_each(|_| drop(scope.spawn(serve)));
        scope.spawn(|| clients(&engine, address, &is_over));
        let finish = run();
        is_over.store(true, Ordering::SeqCst);
        engine.dismiss_threads();
        finish
    });
    assert_eq!(inside.into_inner(), 0);
    (finish, finishes.into_inner().expect("no panic"))
}

#[test]
fn as_many_requests_are_in_the_application_as_there_are_threads_if_they_wait() {
    let (finish, others) = with_threads(None, |engine, address| {
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|_| drop(scope.spawn(|| assert!(get(&mut connect(address), "/meet")))));
        });
        engine.control().stop();
    });
    assert_eq!((finish, others), (Finish::Stopped, vec![Finish::Dismissed; THREADS - 1]));
}

#[test]
fn no_request_is_answered_with_another_ones_response() {
    let (finish, _) = with_threads(None, |engine, address| {
        let client = |name: usize| {
            let mut stream = connect(address);
            for index in 0..120 {
                if index % 30 == 0 {
                    stream = connect(address);
                }
                assert!(get(&mut stream, &format!("/{name}/{index}")), "{name} {index}");
            }
        };
        std::thread::scope(|scope| (0..8).for_each(|name| drop(scope.spawn(move || client(name)))));
        await_requests(engine, 960);
        engine.control().stop();
    });
    assert_eq!(finish, Finish::Stopped);
}

#[test]
fn the_limit_is_kept_however_many_threads_serve() {
    let (finish, _) = with_threads(Some(20), |engine, address| {
        let client = |name: usize| {
            let mut stream = connect(address);
            (0..5).all(|index| get(&mut stream, &format!("/{name}/{index}")))
        };
        std::thread::scope(|scope| (0..4).for_each(|name| drop(scope.spawn(move || assert!(client(name))))));
        await_requests(engine, 20);
    });
    assert_eq!(finish, Finish::Limit);
}

#[test]
fn when_a_thread_returns_the_others_serve_on_and_when_the_first_one_does_all_stop() {
    let (finish, others) = until_over(None, |_, address, is_over| {
        // Each answered request makes a thread leave. Nobody answers once the first thread has left.
        let is_answered = |_: &usize| {
            let mut stream = connect(address);
            stream.write_all(b"GET /leave HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("write");
            stream.set_nonblocking(true).expect("nonblocking");
            eventually(|| {
                let is_over = is_over.load(Ordering::SeqCst);
                let is_answered = matches!(stream.read(&mut [0; 64]), Ok(1..));
                (is_answered || is_over).then_some(is_answered)
            })
        };
        let left = (0..100).take_while(is_answered).count();
        assert!((1..=THREADS).contains(&left), "{left}");
    });
    assert_eq!(finish, Finish::Broken);
    assert!(others.iter().all(|finish| matches!(finish, Finish::Broken | Finish::Dismissed)));
}

/// Counts the engine's calls. `/slow` lasts for [`SLOW`]. After `/leave` the thread wants to return, as after exit.
struct Counting<'a> {
    asked: &'a AtomicUsize,
    entered: &'a AtomicUsize,
    leaves: bool,
}

impl Counting<'_> {
    fn flow(&self) -> Flow {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.leaves {
            Flow::Break
        } else {
            Flow::Continue
        }
    }
}

impl App for Counting<'_> {
    fn call(&mut self, request: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow {
        self.entered.fetch_add(1, Ordering::SeqCst);
        self.leaves = request.path == b"/leave";
        if !self.leaves {
            std::thread::sleep(SLOW);
        }
        let _ = writer.send(&[IoSlice::new(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")]);
        writer.finish();
        self.flow()
    }

    fn check(&mut self) -> Flow {
        self.flow()
    }

    fn after_response(&mut self) -> Flow {
        self.flow()
    }

    fn block(&mut self, wait: &mut (dyn FnMut() + Send)) -> Flow {
        wait();
        self.flow()
    }

    fn warn(&mut self, line: &str) {
        panic!("{line}");
    }
}

pub(crate) fn engine(threads: usize) -> (Engine, TcpListener) {
    let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
    let listener = Listener::from_fd(socket.as_fd(), true).expect("a listener");
    let watch = RequestSettings { threads, ..RequestSettings::default() };
    let engine = Engine::new(vec![listener], None, Settings { requests: watch, ..Settings::default() }, None);
    (engine.expect("an engine"), socket)
}

const SLOW: Duration = Duration::from_millis(800);

/// The engine's calls of the application per millisecond, on average, while the engine waited for one request.
fn asked_while_waiting(end: impl Fn(&Engine, SocketAddr) + Sync) -> f64 {
    let (engine, socket) = engine(3);
    let address = socket.local_addr().expect("an address");
    let (asked, entered, start) = (AtomicUsize::new(0), AtomicUsize::new(0), Instant::now());
    let app = || Counting { asked: &asked, entered: &entered, leaves: false };
    std::thread::scope(|scope| {
        (1..3).for_each(|_| drop(scope.spawn(|| engine.serve(&mut app()))));
        scope.spawn(|| {
            let mut slow = connect(address);
            slow.write_all(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
            while entered.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            asked.store(0, Ordering::SeqCst);
            end(&engine, address);
            let _ = slow.read(&mut [0; 64]);
        });
        engine.run(&mut app(), None);
        engine.dismiss_threads();
    });
    asked.into_inner() as f64 / start.elapsed().as_secs_f64() / 1000.0
}

#[test]
fn a_stop_waits_for_the_requests_of_other_threads_without_using_a_processor() {
    let asked = asked_while_waiting(|engine, _| engine.control().stop());
    assert!(asked < 1.0, "{asked}");
}

#[test]
fn a_thread_that_is_to_return_waits_for_the_others_without_using_a_processor() {
    let asked = asked_while_waiting(|engine, address| {
        for _ in 0..3 {
            let mut other = connect(address);
            // Nobody answers once the first thread has left.
            other.set_read_timeout(Some(SLOW)).expect("a timeout");
            other.write_all(b"GET /leave HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
            let _ = other.read(&mut [0; 64]);
        }
        engine.control().stop();
    });
    assert!(asked < 1.0, "{asked}");
}

#[test]
fn a_forked_child_lets_go_of_the_engines_descriptors_and_of_no_others() {
    for threads in [1, 4] {
        let (engine, _socket) = engine(threads);
        let files: Vec<_> = (0..8).map(|_| std::fs::File::open("/").expect("open")).collect();
        let target = |fd: i32| std::fs::read_link(format!("/proc/self/fd/{fd}"));
        // A forked child would close the engine, too. Other tests have pollers of their own.
        engine.control().close();
        for file in &files {
            let target = target(file.as_raw_fd()).expect("a descriptor");
            assert_eq!(target.to_str(), Some("/"), "{threads} threads");
        }
        std::mem::forget(engine);
    }
}
