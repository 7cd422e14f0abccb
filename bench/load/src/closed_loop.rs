//! A fixed number of clients, each of which sends its next request when it has had its answer and paused.
//!
//! Each client is a task of its thread's runtime. The clients of a thread share their plan, their tally and the buffer for answers.

use std::cell::{Cell, RefCell};
use std::io::{self, BufWriter};
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use crate::options::Options;
use crate::plan::{Plan, Ticket};
use crate::response::{Progress, Reader, Said};
use crate::tally::{Failure, Sample, Tally};

/// A client whose request failed pauses for so long at least: no server is hammered that cannot answer.
const RECOVERY: Duration = Duration::from_millis(20);
/// Bytes read at once.
const BUFFER: usize = 64 * 1024;
/// For how long Heroku's Router 2.0 keeps a connection on which nothing happens.
const ROUTER_IDLE: Duration = Duration::from_secs(90);

/// Plays the clients, then prints what came out.
///
/// No request is begun after the duration, but those under way then are waited for: cutting them off
/// would leave out the slow ones more often than the fast ones.
///
/// # Errors
/// The errors of epoll(7) and of the standard output.
pub fn run(options: &Options) -> io::Result<()> {
    let started = Instant::now();
    let played = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..options.threads).map(|number| scope.spawn(move || play(options, number, started))).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))));
        ended.collect::<io::Result<Vec<_>>>()
    })?;
    let ended = played.iter().map(|(_, ended)| *ended).max().unwrap_or(started);
    let mut tally = Tally::default();
    played.into_iter().for_each(|(part, _)| tally.append(part));
    let duration = ended.duration_since(started).min(options.duration);
    tally.write(duration, &mut BufWriter::new(io::stdout().lock()))
}

/// Plays one thread's clients. Returns when the last answer came, too.
fn play(options: &Options, thread: usize, started: Instant) -> io::Result<(Tally, Instant)> {
    let seed = options.seed.wrapping_mul(options.threads as u64).wrapping_add(thread as u64);
    let common = Rc::new(Common {
        plan: RefCell::new(Plan::new(options.kinds.iter().map(|kind| kind.weight).collect(), seed)),
        tally: RefCell::default(),
        buffer: RefCell::new(vec![0; BUFFER]),
        routers: RefCell::new((0..options.routers).map(|_| Vec::new()).collect()),
        requests: requests(options),
        pipeline: options.pipeline,
        per_connection: options.per_connection,
        patience: options.patience,
        last_begin: started + options.duration,
        last_number: options.requests,
        ended: Cell::new(started),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = LocalSet::new();
    let own = (thread..options.connections).step_by(options.threads);
    let clients: Vec<_> =
        own.map(|number| tasks.spawn_local(Client::new(options, number, common.clone()).play())).collect();
    runtime.block_on(tasks.run_until(async {
        for client in clients {
            let mut client = client.await?;
            // A client without an answer by now gets none.
            client.is_answered(common.ended.get(), Duration::ZERO);
            common.tally.borrow_mut().waits_us[usize::from(client.reconnects)]
                .push(client.longest.as_micros());
        }
        Ok((common.tally.take(), common.ended.get()))
    }))
}

/// The state that all clients of a thread share.
struct Common {
    plan: RefCell<Plan>,
    tally: RefCell<Tally>,
    buffer: RefCell<Vec<u8>>,
    /// The connections that each router keeps and on which nothing is asked. A request comes to one of the routers by chance, as by a
    /// load balancer. The router takes any of its idle connections, or makes one more.
    routers: RefCell<Vec<Vec<(Instant, TcpStream)>>>,
    /// The bytes of a request by kind: as a client sends it that keeps its connection, and as one does that connects anew.
    requests: Vec<[Vec<u8>; 2]>,
    pipeline: usize,
    per_connection: u32,
    patience: Duration,
    last_begin: Instant,
    /// Requests from this number on are not made.
    last_number: u64,
    ended: Cell<Instant>,
}

impl Common {
    /// A connection that the request's router keeps and that the server has not closed.
    fn borrow(&self, ticket: &Ticket) -> Option<TcpStream> {
        let router = self.router(ticket)?;
        let mut routers = self.routers.borrow_mut();
        let idle = &mut routers[router];
        idle.retain(|(since, _)| since.elapsed() < ROUTER_IDLE);
        while !idle.is_empty() {
            let (_, stream) = idle.swap_remove((ticket.connection * idle.len() as f64) as usize);
            if is_open(&stream) {
                return Some(stream);
            }
        }
        None
    }

    fn router(&self, ticket: &Ticket) -> Option<usize> {
        let count = self.routers.borrow().len();
        (count > 0).then_some((ticket.router * count as f64) as usize)
    }
}

fn is_open(stream: &TcpStream) -> bool {
    matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

/// One client, on one connection for as long as the server keeps it, or on a connection for each request.
struct Client {
    common: Rc<Common>,
    address: SocketAddr,
    reconnects: bool,
    /// The mean of its pauses.
    pause: Duration,
    ticket: Ticket,
    stream: Option<TcpStream>,
    /// How many answers, or batches of them, have come on the connection: the server may close it at any time after the first.
    answers: u32,
    /// Answers of the batch under way that came while requests were still begun.
    in_part: usize,
    /// Since the first request that has had no answer yet, and the longest such time.
    asking_since: Option<Instant>,
    longest: Duration,
}

impl Client {
    /// The last ones connect anew for each request.
    fn new(options: &Options, number: usize, common: Rc<Common>) -> Self {
        let reconnects = number >= options.connections - options.new_clients;
        let pause = if reconnects { options.new_pause } else { options.pause };
        let ticket = common.plan.borrow_mut().take(pause);
        Self {
            common,
            address: options.address,
            reconnects,
            pause,
            ticket,
            stream: None,
            answers: 0,
            in_part: 0,
            asking_since: None,
            longest: Duration::ZERO,
        }
    }

    /// Makes requests until the time is over.
    async fn play(mut self) -> Self {
        let common = self.common.clone();
        let mut pause = self.ticket.pause;
        let mut idle_since = Instant::now();
        loop {
            if !pause.is_zero() && idle_since + pause < common.last_begin {
                sleep(pause).await;
            }
            let begun = Instant::now();
            if begun.max(idle_since + pause) >= common.last_begin || self.ticket.number >= common.last_number
            {
                // Others may wait for the server to be free for them.
                self.stream = None;
                return self;
            }
            self.asking_since.get_or_insert(begun);
            let outcome = timeout(common.patience, self.exchange()).await.unwrap_or(Err(Failure::Timeout));
            let now = Instant::now();
            let recovery = match outcome {
                Ok(said) => {
                    self.note(&said, begun - idle_since, now - begun, now);
                    Duration::ZERO
                }
                Err(failure) => {
                    self.stream = None;
                    common.tally.borrow_mut().failures[failure as usize] += 1;
                    RECOVERY
                }
            };
            common.ended.set(now);
            idle_since = now;
            self.ticket = common.plan.borrow_mut().take(self.pause);
            pause = self.ticket.pause.max(recovery);
        }
    }

    fn note(&mut self, said: &Said, pause: Duration, latency: Duration, now: Instant) {
        self.is_answered(now, Duration::from_micros(said.service_us.unwrap_or(0)));
        let Ticket { number, kind, .. } = self.ticket;
        let sample =
            Sample { number, kind, reconnects: self.reconnects, pause, latency, service_us: said.service_us };
        let mut tally = self.common.tally.borrow_mut();
        tally.samples.push(sample);
        if now < self.common.last_begin {
            tally.in_time += 1;
        } else {
            tally.in_part += self.in_part;
        }
    }

    /// Notes how long the client has asked. The time that the app took for the answer, as far as the app says, is no wait.
    fn is_answered(&mut self, now: Instant, service: Duration) {
        if let Some(since) = self.asking_since.take() {
            self.longest = self.longest.max(now.duration_since(since).saturating_sub(service));
        }
    }

    /// Connects where that is needed, sends the request and reads its answer.
    async fn exchange(&mut self) -> Result<Said, Failure> {
        let common = self.common.clone();
        let mut reader = Reader::default();
        let mut skipped = 0;
        self.in_part = 0;
        if let Some(stream) = common.borrow(&self.ticket).filter(|_| !self.reconnects) {
            (self.stream, self.answers) = (Some(stream), 1);
        }
        loop {
            if self.stream.is_none() {
                let stream = TcpStream::connect(self.address).await.map_err(|_| Failure::Connect)?;
                stream.set_nodelay(true).map_err(|_| Failure::Connect)?;
                (self.stream, self.answers) = (Some(stream), 0);
            }
            match self.attempt(&mut reader, skipped).await {
                Ok(Progress::Complete(said)) => {
                    self.keep(&said);
                    return if said.status == 200 { Ok(said) } else { Err(Failure::Status) };
                }
                // The server takes no more of them here: the others have to be sent again.
                Ok(Progress::Cut(answers)) => skipped = answers,
                // As any client does: a connection that was closed before the request came is no failure of it.
                Err(_) if self.answers > 0 && reader.is_untouched() => {}
                _ => return Err(Failure::Read),
            }
            self.stream = None;
        }
    }

    async fn attempt(&mut self, reader: &mut Reader, skipped: usize) -> io::Result<Progress> {
        let stream = self.stream.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let request = &self.common.requests[self.ticket.kind][usize::from(self.reconnects)];
        let mut left = &request[request.len() / self.common.pipeline * skipped..];
        while !left.is_empty() {
            match stream.try_write(left) {
                Ok(sent) => left = &left[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
                Err(error) => return Err(error),
            }
        }
        loop {
            stream.readable().await?;
            // No other client runs while the buffer is borrowed: nothing is awaited here.
            let mut buffer = self.common.buffer.borrow_mut();
            let bytes = match stream.try_read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            let progress = reader.take(&buffer[..bytes], self.common.pipeline);
            if self.common.pipeline > 1 && Instant::now() < self.common.last_begin {
                self.in_part = reader.answers();
            }
            if progress != Progress::Partial {
                return Ok(progress);
            }
        }
    }

    /// Keeps the connection, gives it back to its router, or closes it.
    fn keep(&mut self, said: &Said) {
        self.answers += 1;
        let stream = self.stream.take();
        if !said.keeps || said.status != 200 || self.reconnects || self.answers >= self.common.per_connection
        {
            return;
        }
        match (self.common.router(&self.ticket), stream) {
            (Some(router), Some(stream)) => {
                self.common.routers.borrow_mut()[router].push((Instant::now(), stream))
            }
            (_, stream) => self.stream = stream,
        }
    }
}

/// The bytes of each kind's requests, as a client sends them that keeps its connection, and as one that connects anew.
fn requests(options: &Options) -> Vec<[Vec<u8>; 2]> {
    let both = |bytes: &[u8]| {
        let head = bytes.windows(4).position(|end| end == b"\r\n\r\n").map_or(bytes.len(), |at| at + 2);
        let closing = [&bytes[..head], b"Connection: close\r\n", &bytes[head..]].concat();
        [bytes.repeat(options.pipeline), closing]
    };
    options.kinds.iter().map(|kind| both(&kind.bytes)).collect()
}
