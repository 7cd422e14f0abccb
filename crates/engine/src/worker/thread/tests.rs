//! Threads of a process that is about to end.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::accept::Listener;
use crate::claim::{Claim, RequestSettings};
use crate::conn::{Request, ResponseWriter};
use crate::patience::{patience, until};
use crate::settings::Settings;

/// Answers each request, and returns from the request when it `may_return`. Counts the waits of the threads, and has the threads return
/// when the test is `over`. The threads never sleep while they are `sleepless`.
#[derive(Default)]
struct Shared {
    requests: AtomicUsize,
    may_return: AtomicBool,
    sleepless: AtomicBool,
    waits: AtomicUsize,
    over: AtomicBool,
}

struct OneApp<'a>(&'a Shared);

impl App for OneApp<'_> {
    fn call(&mut self, _: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow {
        let _ = writer.send(&[IoSlice::new(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")]);
        writer.finish();
        self.0.requests.fetch_add(1, Ordering::SeqCst);
        until(|| self.0.may_return.load(Ordering::SeqCst));
        Flow::Continue
    }

    fn block(&mut self, wait: &mut (dyn FnMut() + Send)) -> Flow {
        self.0.waits.fetch_add(1, Ordering::SeqCst);
        if self.0.sleepless.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        } else {
            wait();
        }
        if self.0.over.load(Ordering::SeqCst) {
            Flow::Break
        } else {
            Flow::Continue
        }
    }

    fn warn(&mut self, line: &str) {
        panic!("{line}");
    }
}

fn ask(socket: &TcpListener) -> TcpStream {
    let mut stream = TcpStream::connect(socket.local_addr().expect("an address")).expect("connect");
    stream.set_read_timeout(Some(patience())).expect("a timeout");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("write");
    stream
}

/// Runs an engine of so many threads during `work`. The engine stops when `work` returns. Returns why the first thread has returned.
fn during(threads: usize, work: impl FnOnce(&Engine, &TcpListener, &Shared)) -> Finish {
    let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
    let listener = Listener::from_fd(socket.as_fd(), true).expect("a listener");
    let requests = RequestSettings { threads, ..RequestSettings::default() };
    let settings = Settings { requests, ..Settings::default() };
    let engine = Engine::new(vec![listener], None, settings, None).expect("an engine");
    let shared = Shared::default();
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(|| engine.serve(&mut OneApp(&shared)))));
        let first = scope.spawn(|| engine.run(&mut OneApp(&shared), None));
        let result = catch_unwind(AssertUnwindSafe(|| work(&engine, &socket, &shared)));
        shared.over.store(true, Ordering::SeqCst);
        // The stop and the client wake sleeping threads.
        engine.control.stop();
        drop(TcpStream::connect(socket.local_addr().expect("an address")));
        engine.dismiss_threads();
        let finish = first.join().expect("no panic");
        result.map(|()| finish).unwrap_or_else(|panic| resume_unwind(panic))
    })
}

#[test]
fn no_thread_takes_a_client_any_more_when_the_process_ends() {
    during(2, |engine, socket, shared| {
        shared.may_return.store(true, Ordering::SeqCst);
        assert!(ask(socket).read(&mut [0; 64]).is_ok_and(|got| got > 0));
        until(|| engine.control.requests() == 1);
        shared.sleepless.store(true, Ordering::SeqCst);
        engine.control.set_ending();
        let mut late = ask(socket);
        // After so many waits each thread has seen the client.
        let before = shared.waits.load(Ordering::SeqCst);
        until(|| shared.waits.load(Ordering::SeqCst) > before + 100);
        late.set_nonblocking(true).expect("nonblocking");
        assert_eq!(late.read(&mut [0; 64]).expect_err("nothing").kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn a_thread_that_returns_from_its_request_when_the_process_ends_sleeps() {
    during(2, |engine, socket, shared| {
        let _client = ask(socket);
        until(|| shared.requests.load(Ordering::SeqCst) == 1);
        engine.control.set_ending();
        let before = shared.waits.load(Ordering::SeqCst);
        shared.may_return.store(true, Ordering::SeqCst);
        until(|| shared.waits.load(Ordering::SeqCst) > before);
        assert!(shared.waits.load(Ordering::SeqCst) < before + 5);
    });
}

#[test]
fn the_only_thread_waits_for_the_end_of_the_process_where_its_request_was_seized_until_it_is_recalled() {
    let finish = during(1, |engine, socket, shared| {
        let _client = ask(socket);
        until(|| shared.requests.load(Ordering::SeqCst) == 1);
        assert_eq!(engine.control.request_of(0).seize(), Some(Claim::Complete));
        let before = shared.waits.load(Ordering::SeqCst);
        shared.may_return.store(true, Ordering::SeqCst);
        until(|| shared.waits.load(Ordering::SeqCst) > before);
    });
    assert_eq!(finish, Finish::Broken);
}
