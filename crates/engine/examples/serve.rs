//! Serves a number of keep-alive hello requests to a client in another process, for callgrind:
//!
//! `valgrind --tool=callgrind target/release/examples/serve single 2000`
//!
//! `single` sends one request after the other. The other modes send 50 requests at once: `pipelined`; `threads`, to a worker that may have
//! five threads; `combined` and `json`, to a worker with an access log; `timings` and `all`, to one that divides the time of requests,
//! without an access log and with one in JSON.

use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

use fastrack_engine::{
    AccessLogSettings, App, Engine, Finish, Flow, Listener, LogFormat, Request, RequestSettings,
    ResponseWriter, Settings,
};

const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\n";
const BODY: &[u8] = b"hello\n";
const PIPELINED: usize = 50;

struct Hello;

impl App for Hello {
    fn call(&mut self, _request: &Request<'_>, writer: &mut ResponseWriter<'_>) -> Flow {
        let _ = writer.persistence();
        writer.describe(200, HEAD.len());
        writer.send(&[IoSlice::new(HEAD), IoSlice::new(BODY)]).expect("the client is there");
        writer.finish();
        Flow::Continue
    }

    fn warn(&mut self, line: &str) {
        panic!("{line}");
    }
}

fn client(address: &str, batch: usize, requests: usize) {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    let mut responses = vec![0; batch * (HEAD.len() + BODY.len())];
    for _ in 0..requests / batch {
        stream.write_all(&REQUEST.repeat(batch)).expect("write");
        stream.read_exact(&mut responses).expect("the responses");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<usize>().expect("a number");
    match arguments[..] {
        ["client", address, batch, requests] => client(address, number(batch), number(requests)),
        [how @ ("single" | "pipelined" | "threads" | "combined" | "json" | "timings" | "all"), requests] => {
            let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
            let listener = Listener::from_fd(socket.as_fd(), true).expect("a listener");
            let watch = RequestSettings {
                threads: if how == "threads" { 5 } else { 1 },
                timings: how == "timings" || how == "all",
                ..RequestSettings::default()
            };
            let log = std::fs::File::create("/dev/null").expect("/dev/null");
            let log = |format| AccessLogSettings { fd: log.as_raw_fd(), format, worker: 0 };
            let access_log = match how {
                "combined" => Some(log(LogFormat::Combined)),
                "json" | "all" => Some(log(LogFormat::Json)),
                _ => None,
            };
            let settings = Settings { requests: watch, access_log, ..Settings::default() };
            let engine = Engine::new(vec![listener], None, settings, None).expect("an engine");
            let batch = if how == "single" { 1 } else { PIPELINED };
            let mut client = Command::new(std::env::current_exe().expect("a path"))
                .args(["client", &socket.local_addr().expect("an address").to_string()])
                .args([batch.to_string(), requests.to_owned()])
                .spawn()
                .expect("a client");
            let finish = engine.run(&mut Hello, Some(number(requests) as u64));
            assert_eq!(finish, Finish::Limit);
            assert!(client.wait().expect("its end").success());
        }
        _ => panic!("usage: serve single|pipelined|threads|combined|json|timings|all REQUESTS"),
    }
}
