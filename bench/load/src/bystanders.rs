//! Clients that are there while something else is measured: slow ones, and ones that only keep a connection. They stay until the
//! standard input ends.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{getrlimit, setrlimit, Resource};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use crate::gaps::Served;
use crate::options::Options;
use crate::response::{Progress, Reader, Said};

/// How many connections are made at once: enough for all workers to get some.
const BATCH: usize = 32;
/// Until an answer must have come.
const PATIENCE: Duration = Duration::from_secs(10);
/// Until a slow client's connection must have come about.
const CONNECT: Duration = Duration::from_secs(1);
/// Bytes, which the kernel doubles and for which it has a minimum of its own, see socket(7).
const RECEIVE_BUFFER: u32 = 4096;
/// Bytes of TCP in an Ethernet frame.
const SEGMENT: u32 = 1460;
/// Descriptors that the program needs besides its connections.
const OTHERS: usize = 32;

/// Makes connections with one request each, as many as there is time for. Prints how many the server keeps, and how many were answered
/// within a second; holds them until the standard input ends; then prints how many are still open.
///
/// # Errors
/// The errors of the descriptors' limit and of the standard input. A connection that fails is only counted.
pub fn hold(options: &Options) -> io::Result<()> {
    run(async {
        let possible = descriptors(options.connections)?;
        let (mut held, mut closed, mut failed, mut served) = (Vec::new(), 0, 0, Served::default());
        let last_batch = Instant::now() + options.duration;
        while held.len() + closed + failed < possible && failed < BATCH && Instant::now() < last_batch {
            let batch = BATCH.min(possible - held.len() - closed - failed);
            let asked: Vec<_> = (0..batch)
                .map(|_| tokio::task::spawn_local(ask(options.addresses[0], options.kinds[0].path.clone())))
                .collect();
            for asked in asked {
                match asked.await? {
                    (wait, Err(_)) => {
                        failed += 1;
                        served.add_unanswered(wait);
                    }
                    (wait, Ok((stream, said))) => {
                        served.add_wait(wait);
                        if said.keeps && said.status == 200 {
                            held.push(stream)
                        } else {
                            closed += 1
                        }
                    }
                }
            }
        }
        let (kept, served) = (held.len(), served.json());
        say(&format!(
            r#"{{"possible":{possible},"held":{kept},"closed":{closed},"failed":{failed},{served}}}"#
        ))?;
        io::stdin().read_to_end(&mut Vec::new())?;
        // The runtime has to hear of what was closed meanwhile.
        sleep(Duration::from_millis(10)).await;
        let open = held.iter().filter(|stream| matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)).count();
        say(&format!(r#"{{"still_open":{open}}}"#))
    })
}

async fn ask(address: SocketAddr, path: String) -> (Duration, io::Result<(TcpStream, Said)>) {
    let begun = Instant::now();
    let answer = async {
        let stream = TcpStream::connect(address).await?;
        stream.writable().await?;
        stream.try_write(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())?;
        let (mut reader, mut buffer) = (Reader::default(), [0; 4096]);
        loop {
            stream.readable().await?;
            match stream.try_read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => match reader.take(&buffer[..bytes], 1) {
                    Progress::Partial => {}
                    Progress::Complete(said) => return Ok((stream, said)),
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    };
    let answer = timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    (begun.elapsed(), answer)
}

/// Clients that send a head, and ones that read an answer, a few bytes at a time. Prints `{"clients":N}` when all have begun, and in the
/// end how often the server broke off with one, after which the client began anew.
///
/// # Errors
/// When the first connections cannot be made; those of the standard input.
pub fn trickle(options: &Options) -> io::Result<()> {
    run(async {
        let (address, count) = (options.addresses[0], descriptors(options.senders + options.readers)?);
        let mut clients: Vec<_> = (0..count)
            .map(|number| SlowClient::new(number >= options.senders, &options.kinds[0].path))
            .collect();
        for client in &mut clients {
            client.step(address, options.bytes).await?;
        }
        say(&format!(r#"{{"clients":{count}}}"#))?;
        static OVER: AtomicBool = AtomicBool::new(false);
        thread::spawn(|| {
            let _ = io::stdin().read_to_end(&mut Vec::new());
            OVER.store(true, Relaxed);
        });
        // One after the other, so that they do not all come in the same millisecond.
        let pace = options.interval.div_f64(count.max(1) as f64).max(Duration::from_millis(1));
        let (mut broken, mut turn) = (0, 0);
        while !OVER.load(Relaxed) {
            sleep(pace).await;
            if let Some(client) = clients.get_mut(turn % count.max(1)) {
                if client.step(address, options.bytes).await.is_err() {
                    client.stream = None;
                    broken += 1;
                }
            }
            turn += 1;
        }
        say(&format!(r#"{{"broken":{broken}}}"#))
    })
}

/// A client that takes a small step at a time.
struct SlowClient {
    stream: Option<TcpStream>,
    /// A sender's head never ends: after these bytes it sends the letter a for ever.
    request: Vec<u8>,
    reads: bool,
    sent: usize,
}

impl SlowClient {
    fn new(reads: bool, path: &str) -> Self {
        let path = if reads { path } else { "/" };
        let more = if reads { "\r\n" } else { "X-Slow: " };
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}").into_bytes();
        Self { stream: None, request, reads, sent: 0 }
    }

    /// Connects where that is needed, then sends or reads up to so many bytes.
    ///
    /// # Errors
    /// When the server has closed the connection, or does not take one.
    async fn step(&mut self, address: SocketAddr, bytes: usize) -> io::Result<()> {
        if self.stream.is_none() {
            self.stream = Some(timeout(CONNECT, connect(address, self.reads)).await??);
            self.sent = 0;
        }
        let stream = self.stream.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let done = if self.reads && self.sent == self.request.len() {
            stream.try_read(&mut vec![0; bytes]).and_then(|bytes| {
                if bytes == 0 {
                    Err(io::ErrorKind::UnexpectedEof.into())
                } else {
                    Ok(0)
                }
            })
        } else {
            // A head that has no end has no answer, unless the server has had enough of it.
            if stream.try_read(&mut [0]).is_ok() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let rest = self.request.get(self.sent..).filter(|rest| !rest.is_empty()).unwrap_or(b"a");
            stream.try_write(if self.reads { rest } else { &rest[..bytes.min(rest.len())] })
        };
        match done {
            Ok(sent) => self.sent += sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Connects. A reader bounds what the kernels take for it: its own by SO_RCVBUF, the server's by TCP_MAXSEG, because a send buffer grows
/// with the size of a segment, which is 64 KB on the loopback interface. Both must be set before the connection is made, see tcp(7).
async fn connect(address: SocketAddr, reads: bool) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if reads {
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        setsockopt(&socket, sockopt::TcpMaxSeg, &SEGMENT)?;
    }
    socket.connect(address).await
}

fn run(clients: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(LocalSet::new().run_until(clients))
}

fn say(line: &str) -> io::Result<()> {
    println!("{line}");
    io::stdout().flush()
}

/// Raises the limit of descriptors as far as it may be raised without privileges, see getrlimit(2). Returns how many of `wanted`
/// connections can be open at once.
fn descriptors(wanted: usize) -> io::Result<usize> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(wanted.min(usize::try_from(hard).unwrap_or(usize::MAX).saturating_sub(OTHERS)))
}
