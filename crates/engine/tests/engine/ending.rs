//! A process of several threads that is about to end.

use std::io::{IoSlice, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fastrack_engine::{App, Finish, Flow, Request, ResponseWriter};

use crate::support::until;
use crate::threads::{await_requests, connect, engine};

/// Comes back from a request after the process was `about_to_end`, counts waits, and has its threads return when it is `over`.
struct Late<'a> {
    about_to_end: &'a AtomicBool,
    waits: &'a AtomicUsize,
    over: &'a AtomicBool,
}

impl App for Late<'_> {
    fn call(&mut self, _: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow {
        let _ = writer.send(&[IoSlice::new(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")]);
        writer.finish();
        Flow::Continue
    }

    fn after_response(&mut self) -> Flow {
        while !self.about_to_end.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Flow::Continue
    }

    fn block(&mut self, wait: &mut (dyn FnMut() + Send)) -> Flow {
        self.waits.fetch_add(1, Ordering::SeqCst);
        wait();
        if self.over.load(Ordering::SeqCst) {
            Flow::Break
        } else {
            Flow::Continue
        }
    }

    fn warn(&mut self, line: &str) {
        panic!("{line}");
    }
}

#[test]
fn a_thread_that_comes_back_when_the_process_ends_sleeps_and_can_be_dismissed() {
    let (engine, socket) = engine(2);
    let (about_to_end, waits, over) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicBool::new(false));
    let app = || Late { about_to_end: &about_to_end, waits: &waits, over: &over };
    std::thread::scope(|scope| {
        let others = scope.spawn(|| engine.serve(&mut app()));
        let first = scope.spawn(|| engine.run(&mut app(), None));
        let mut stream = connect(socket.local_addr().expect("an address"));
        stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("write");
        await_requests(&engine, 1);
        engine.ending().run();
        let before = waits.load(Ordering::SeqCst);
        about_to_end.store(true, Ordering::SeqCst);
        until(|| waits.load(Ordering::SeqCst) != before);
        over.store(true, Ordering::SeqCst);
        engine.dismiss_threads();
        assert!(matches!(others.join(), Ok(Finish::Broken | Finish::Dismissed)));
        assert!(matches!(first.join(), Ok(Finish::Broken)));
    });
}
