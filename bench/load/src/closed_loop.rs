//! A fixed number of clients, each of which sends its next request when it has had its answer and paused.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollTimeout};

use crate::client::{Client, Outcome, Surroundings};
use crate::options::Options;
use crate::plan::Plan;
use crate::response::Said;
use crate::tally::{Sample, Tally};

/// Until an answer counts as none.
const PATIENCE: Duration = Duration::from_secs(10);
/// A client whose request failed pauses for so long at least: no server is hammered that cannot answer.
const RECOVERY: Duration = Duration::from_millis(20);
/// How often it looks for requests that take too long.
const LOOK: Duration = Duration::from_millis(100);

/// Plays the clients, then prints what came out.
///
/// No request is begun after the duration, but those under way then are waited for: cutting them off
/// would leave out the slow ones more often than the fast ones.
///
/// # Errors
/// Those of epoll(7), and of writing the trace.
pub fn run(options: &Options) -> io::Result<()> {
    let mut running = ClosedLoop::new(options)?;
    running.play()?;
    let tally = running.tally;
    if let Some(path) = &options.trace {
        tally.write_trace(path)?;
    }
    println!("{}", tally.json(&options.kinds, running.ended.duration_since(running.started)));
    Ok(())
}

struct ClosedLoop {
    around: Surroundings,
    plan: Plan,
    clients: Vec<Client>,
    /// When which client's pause is over.
    pauses: BinaryHeap<Reverse<(Instant, usize)>>,
    under_way: usize,
    started: Instant,
    ended: Instant,
    last_begin: Instant,
    tally: Tally,
}

impl ClosedLoop {
    fn new(options: &Options) -> io::Result<Self> {
        let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes();
        let around = Surroundings {
            address: options.address,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            requests: options.kinds.iter().map(|kind| request(&kind.path)).collect(),
        };
        let mut plan = Plan::new(&options.kinds, options.pause, options.seed);
        let now = Instant::now();
        let clients: Vec<_> =
            (0..options.connections).map(|key| Client::new(key as u64, plan.take(), now)).collect();
        let pauses = clients.iter().enumerate();
        Ok(Self {
            pauses: pauses.map(|(key, client)| Reverse((now + client.ticket.pause, key))).collect(),
            around,
            plan,
            clients,
            under_way: 0,
            started: now,
            ended: now,
            last_begin: now + options.duration,
            tally: Tally::default(),
        })
    }

    fn play(&mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 64];
        loop {
            self.begin_due(Instant::now());
            if self.pauses.is_empty() && self.under_way == 0 {
                return Ok(());
            }
            let count = match self.around.epoll.wait(&mut events, self.timeout()) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(error) => return Err(error.into()),
            };
            for event in &events[..count] {
                let key = event.data() as usize;
                let outcome = self.clients[key].ready(&self.around);
                self.settle(key, outcome);
            }
            self.give_up_overdue();
        }
    }

    /// Begins the requests whose pause is over.
    fn begin_due(&mut self, now: Instant) {
        if now >= self.last_begin {
            self.pauses.clear();
        }
        while let Some(&Reverse((due, key))) = self.pauses.peek() {
            if due > now {
                break;
            }
            self.pauses.pop();
            self.under_way += 1;
            let outcome = self.clients[key].begin(&self.around, Instant::now());
            self.settle_begun(key, outcome, now);
        }
    }

    fn settle(&mut self, key: usize, outcome: Outcome) {
        self.settle_begun(key, outcome, Instant::now());
    }

    /// Notes the end of a request that has ended, and gives its client the next.
    fn settle_begun(&mut self, key: usize, outcome: Outcome, now: Instant) {
        let recovery = match outcome {
            Outcome::Pending => return,
            Outcome::Answered(said) => {
                self.note(key, &said, now);
                Duration::ZERO
            }
            Outcome::Failed(failure) => {
                self.tally.fail(failure);
                RECOVERY
            }
        };
        self.under_way -= 1;
        self.ended = now;
        let client = &mut self.clients[key];
        client.ticket = self.plan.take();
        client.idle_since = now;
        self.pauses.push(Reverse((now + client.ticket.pause.max(recovery), key)));
    }

    fn note(&mut self, key: usize, said: &Said, now: Instant) {
        let client = &self.clients[key];
        self.tally.add(Sample {
            number: client.ticket.number,
            kind: client.ticket.kind,
            // What it was, not what it should have been: epoll_wait counts in milliseconds.
            pause: client.begun.duration_since(client.idle_since),
            latency: now.duration_since(client.begun),
            service_us: said.service_us,
        });
    }

    fn give_up_overdue(&mut self) {
        let now = Instant::now();
        for key in 0..self.clients.len() {
            let client = &mut self.clients[key];
            if client.waits && now.duration_since(client.begun) > PATIENCE {
                let outcome = client.give_up();
                self.settle(key, outcome);
            }
        }
    }

    /// Until the next pause is over, rounded up to what epoll_wait can count.
    fn timeout(&self) -> EpollTimeout {
        let now = Instant::now();
        let due = self.pauses.peek().map_or(LOOK, |Reverse((due, _))| due.duration_since(now).min(LOOK));
        let milliseconds = u16::try_from(due.as_micros().div_ceil(1_000)).unwrap_or(u16::MAX);
        EpollTimeout::from(milliseconds)
    }
}
