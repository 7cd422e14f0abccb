//! A fixed number of clients, each of which sends its next request when it has had its answer and paused.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{ppoll, PollFd, PollFlags};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollTimeout};
use nix::sys::time::TimeSpec;

use crate::client::{Client, Outcome, Profile, Request, Surroundings};
use crate::options::Options;
use crate::plan::Plan;
use crate::response::Said;
use crate::routers::Routers;
use crate::tally::{Sample, Tally};

/// A client whose request failed pauses for so long at least: no server is hammered that cannot answer.
const RECOVERY: Duration = Duration::from_millis(20);
/// How often it looks for requests that take too long.
const LOOK: Duration = Duration::from_millis(100);
const LONGEST_WAIT: u8 = LOOK.as_millis() as u8;
/// Bytes read at once.
const BUFFER: usize = 64 * 1024;

/// Plays the clients, then prints what came out.
///
/// No request is begun after the duration, but those under way then are waited for: cutting them off
/// would leave out the slow ones more often than the fast ones.
///
/// # Errors
/// Those of epoll(7), and of writing the trace.
pub fn run(options: &Options) -> io::Result<()> {
    let started = Instant::now();
    let played = thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads)
            .map(|number| scope.spawn(move || ClosedLoop::new(options, number, started)?.play()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
            .collect::<io::Result<Vec<_>>>()
    })?;
    let ended = played.iter().map(|(_, ended)| *ended).max().unwrap_or(started);
    let mut tally = Tally::default();
    played.into_iter().for_each(|(part, _)| tally.append(part));
    if let Some(path) = &options.trace {
        tally.write_trace(path)?;
    }
    println!("{}", tally.json(&options.kinds, ended.duration_since(started).min(options.duration)));
    Ok(())
}

/// The clients of one thread.
struct ClosedLoop {
    around: Surroundings,
    plan: Plan,
    clients: Vec<Client>,
    /// When which client's pause is over.
    pauses: BinaryHeap<Reverse<(Instant, usize)>>,
    under_way: usize,
    ended: Instant,
    last_begin: Instant,
    /// Requests from this number on are not made.
    last_number: u64,
    patience: Duration,
    next_look: Instant,
    /// Whether the batches under way at the end have been looked at.
    counted: bool,
    tally: Tally,
}

impl ClosedLoop {
    fn new(options: &Options, thread: usize, now: Instant) -> io::Result<Self> {
        let seed = options.seed.wrapping_mul(options.threads as u64).wrapping_add(thread as u64);
        let around = Surroundings {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            requests: requests(options),
            buffer: vec![0; BUFFER],
            routers: Routers::new(options.routers, seed),
            pipeline: options.pipeline,
            per_connection: options.per_connection,
        };
        let mut plan = Plan::new(&options.kinds, seed);
        let own = (thread..options.connections).step_by(options.threads);
        let clients: Vec<_> = own
            .map(|number| profile(options, number))
            .enumerate()
            .map(|(key, profile)| Client::new(key as u64, profile, plan.take(profile.pause), now))
            .collect();
        let pauses = clients.iter().enumerate();
        Ok(Self {
            pauses: pauses.map(|(key, client)| Reverse((now + client.ticket.pause, key))).collect(),
            around,
            plan,
            clients,
            under_way: 0,
            ended: now,
            last_begin: now + options.duration,
            last_number: options.requests.unwrap_or(u64::MAX),
            patience: options.patience,
            next_look: now + LOOK,
            counted: false,
            tally: Tally::default(),
        })
    }

    /// Returns what came out, and when the last request ended.
    fn play(mut self) -> io::Result<(Tally, Instant)> {
        let mut events = [EpollEvent::empty(); 64];
        loop {
            let now = Instant::now();
            self.begin_due(now);
            if self.pauses.is_empty() && self.under_way == 0 {
                return Ok(self.over());
            }
            let count = match self.wait(&mut events, now) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(error) => return Err(error.into()),
            };
            for event in &events[..count] {
                let key = event.data() as usize;
                let outcome = self.clients[key].ready(&mut self.around);
                self.settle(key, outcome);
            }
            self.give_up_overdue();
        }
    }

    fn over(mut self) -> (Tally, Instant) {
        for client in &mut self.clients {
            client.gap.ends(self.ended);
            self.tally.add_client(client.profile.reconnects, &client.gap);
        }
        (self.tally, self.ended)
    }

    /// Begins the requests whose pause is over.
    fn begin_due(&mut self, now: Instant) {
        if now >= self.last_begin {
            self.pauses.clear();
            if !self.counted {
                self.counted = true;
                self.tally.add_parts(self.clients.iter().map(Client::answers_of_batch).sum());
            }
        }
        while let Some(&Reverse((due, key))) = self.pauses.peek() {
            if due > now {
                break;
            }
            self.pauses.pop();
            if self.clients[key].ticket.number < self.last_number {
                let outcome = self.begin(key, Instant::now());
                self.settle(key, outcome);
            }
        }
    }

    fn begin(&mut self, key: usize, now: Instant) -> Outcome {
        self.under_way += 1;
        self.clients[key].begin(&mut self.around, now)
    }

    /// Notes the end of a request that has ended, and gives its client the next.
    fn settle(&mut self, key: usize, mut outcome: Outcome) {
        while outcome != Outcome::Pending {
            let now = Instant::now();
            let recovery = self.note(key, &outcome, now);
            self.under_way -= 1;
            self.ended = now;
            let client = &mut self.clients[key];
            client.ticket = self.plan.take(client.profile.pause);
            client.idle_since = now;
            let pause = client.ticket.pause.max(recovery);
            if !pause.is_zero() {
                self.pauses.push(Reverse((now + pause, key)));
                return;
            }
            if now >= self.last_begin || client.ticket.number >= self.last_number {
                return;
            }
            outcome = self.begin(key, now);
        }
    }

    /// Returns how long the client pauses at least.
    fn note(&mut self, key: usize, outcome: &Outcome, now: Instant) -> Duration {
        match outcome {
            Outcome::Pending => Duration::ZERO,
            Outcome::Answered(said) => {
                self.note_answer(key, said, now);
                Duration::ZERO
            }
            Outcome::Failed(failure) => {
                self.tally.fail(*failure);
                RECOVERY
            }
        }
    }

    fn note_answer(&mut self, key: usize, said: &Said, now: Instant) {
        let client = &mut self.clients[key];
        client.gap.is_answered(now, Duration::from_micros(said.service_us.unwrap_or(0)));
        let sample = Sample {
            number: client.ticket.number,
            kind: client.ticket.kind,
            reconnects: client.profile.reconnects,
            // What it was, not what it should have been.
            pause: client.begun.duration_since(client.idle_since),
            latency: now.duration_since(client.begun),
            service_us: said.service_us,
        };
        self.tally.add(sample, now < self.last_begin);
    }

    fn give_up_overdue(&mut self) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + LOOK;
        for key in 0..self.clients.len() {
            let client = &mut self.clients[key];
            if client.waits && now.duration_since(client.begun) > self.patience {
                let outcome = client.give_up();
                self.settle(key, outcome);
            }
        }
    }

    /// Waits for events, or until the next pause is over. That is not left to epoll_wait(2), which counts in milliseconds: requests
    /// would come in bursts, one in each.
    fn wait(&self, events: &mut [EpollEvent], now: Instant) -> nix::Result<usize> {
        let epoll = &self.around.epoll;
        let Some(left) = self.pause_left(now) else { return epoll.wait(events, LONGEST_WAIT) };
        if ppoll(&mut [PollFd::new(epoll.0.as_fd(), PollFlags::POLLIN)], Some(left), None)? == 0 {
            return Ok(0);
        }
        epoll.wait(events, EpollTimeout::ZERO)
    }

    /// How long to wait for the next pause's end, if anybody pauses.
    fn pause_left(&self, now: Instant) -> Option<TimeSpec> {
        let Reverse((due, _)) = self.pauses.peek()?;
        Some(TimeSpec::from_duration(due.duration_since(now).min(LOOK)))
    }
}

/// Clients are dealt to the addresses in turn; the last ones connect anew for each request.
fn profile(options: &Options, number: usize) -> Profile {
    let reconnects = number >= options.connections - options.new_clients;
    let new_pause = options.new_pause.filter(|_| reconnects);
    Profile {
        address: options.addresses[number % options.addresses.len()],
        reconnects,
        pause: new_pause.unwrap_or(options.pause),
    }
}

fn requests(options: &Options) -> Vec<Request> {
    if !options.requests_bytes.is_empty() {
        let bytes = options.requests_bytes.iter().map(|one| one.repeat(options.pipeline));
        return bytes.map(|bytes| Request { kept: bytes.clone(), last: bytes }).collect();
    }
    let request = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n");
    let kinds = options.kinds.iter();
    kinds
        .map(|kind| Request {
            kept: request(&kind.path, "").repeat(options.pipeline).into_bytes(),
            last: request(&kind.path, "Connection: close\r\n").into_bytes(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::patience::patience;

    const SEED: u64 = 7;
    const REQUESTS: usize = 100;

    /// Answers this many requests on one connection.
    fn serve(listener: &TcpListener) {
        let (mut client, _) = listener.accept().expect("a client");
        let lines = BufReader::new(client.try_clone().expect("a copy")).lines().map_while(Result::ok);
        for _ in lines.filter(String::is_empty).take(REQUESTS) {
            client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("written");
        }
    }

    #[test]
    fn a_client_begins_its_next_request_when_its_pause_is_over_and_not_at_the_next_millisecond() {
        let line = "closed-loop --address 127.0.0.1:9 --path / --connections 2 --pause-ms 3.5 --seconds 20";
        let options = Options::parse(line.split(' ').map(String::from)).expect("options");
        let now = Instant::now();
        let mut clients = ClosedLoop::new(&options, 0, now).expect("a loop");
        clients.pauses.clear();
        assert_eq!(clients.pause_left(now), None);
        clients.pauses.push(Reverse((now + Duration::from_secs(1), 0)));
        assert_eq!(clients.pause_left(now), Some(TimeSpec::from_duration(LOOK)));
        clients.pauses.push(Reverse((now + Duration::from_nanos(3_141_592), 1)));
        assert_eq!(clients.pause_left(now), Some(TimeSpec::new(0, 3_141_592)));
        let later = now + Duration::from_millis(5);
        assert_eq!(clients.pause_left(later), Some(TimeSpec::new(0, 0)));
    }

    #[test]
    fn no_pause_is_shorter_than_it_was_to_be() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let line = format!(
            "closed-loop --address {address} --path / --pause-ms 3.5 --requests {REQUESTS} --seconds {} --seed {SEED}",
            patience().as_secs()
        );
        let options = Options::parse(line.split(' ').map(String::from)).expect("options");
        let trace = std::env::temp_dir().join(format!("fastrack-load-{}", std::process::id()));
        thread::scope(|scope| {
            scope.spawn(|| serve(&listener));
            let (tally, _) =
                ClosedLoop::new(&options, 0, Instant::now()).expect("a loop").play().expect("played");
            tally.write_trace(&trace).expect("written");
        });
        let text = std::fs::read_to_string(&trace).expect("a trace");
        std::fs::remove_file(&trace).expect("removed");
        let pauses =
            text.lines().map(|line| line.split(' ').nth(2).and_then(|us| us.parse().ok()).expect("a pause"));
        let mut plan = Plan::new(&options.kinds, SEED);
        let pauses: Vec<u128> = pauses.collect();
        let planned: Vec<_> = pauses.iter().map(|_| plan.take(options.pause).pause.as_micros()).collect();
        assert_eq!(pauses.len(), REQUESTS);
        assert!(
            pauses.iter().zip(&planned).all(|(pause, planned)| pause >= planned),
            "{pauses:?} {planned:?}"
        );
    }
}
