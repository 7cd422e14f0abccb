//! The monitor's thread, and the master's handle of it.

use std::any::Any;
use std::future::{poll_fn, Future};
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::pin::Pin;
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, SyncSender};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastrack_engine::Scoreboard;
use fastrack_sys::spawn_with_own_descriptors;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{self, TcpListener, UnixListener};
use tokio::time::{sleep, timeout, Sleep};

use crate::answer::{Answers, Door};
use crate::clients::{Clients, MOST_CLIENTS};
use crate::master::{Exit, MasterState, Notes};
use crate::place::{listen, Place};
use crate::settings::Settings;
use crate::view::Viewer;

/// How long the master waits for the thread to begin, to listen, and to end.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// How often to try again where an old master still listens.
const RETRY: Duration = Duration::from_secs(1);

/// How often, until that is worth a word.
const RETRIES: u32 = 60;

/// How long to let be what cannot accept.
const PAUSE: Duration = Duration::from_millis(100);

/// How long the answers to those who have connected by the end may take.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// Most complaints that wait for the master.
const COMPLAINTS: usize = 16;

/// The order to listen.
const LISTEN: [u8; 1] = *b"l";

/// The master's side. Nothing here waits for the thread, but for its begin and its end, and for it to listen.
#[derive(Debug)]
pub struct Monitor {
    notes: Arc<Notes>,
    orders: Option<UnixStream>,
    /// It has done what it was ordered.
    done: Receiver<()>,
    complaints: Receiver<String>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Monitor {
    /// Starts the thread. It listens once it is told to.
    pub fn start(settings: Settings, scoreboard: Scoreboard) -> io::Result<Self> {
        let notes = Arc::<Notes>::default();
        let settings = Arc::new(settings);
        let (orders, theirs) = UnixStream::pair()?;
        orders.set_nonblocking(true)?;
        let (complain, complaints) = sync_channel(COMPLAINTS);
        let (begun, begin) = sync_channel(1);
        let (did, done) = sync_channel(1);
        let viewer = Viewer::new(Arc::clone(&settings), Arc::clone(&notes), scoreboard);
        let work = move |orders: io::Result<OwnedFd>| {
            let begun = |result| drop(begun.try_send(result));
            let result =
                catch_unwind(AssertUnwindSafe(|| run(orders, &settings, viewer, &begun, &did, &complain)));
            let end = match result {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => message(panic.as_ref()),
            };
            begun(Err(end.clone()));
            let _ = complain.try_send(format!("the monitor has ended: {end}"));
        };
        let thread = spawn_with_own_descriptors("fastrack monitor", theirs.into(), work)?;
        if let Ok(Err(text)) = begin.recv_timeout(PATIENCE) {
            return Err(io::Error::other(text));
        }
        Ok(Monitor {
            notes,
            orders: Some(orders),
            done,
            complaints,
            thread: Some(thread),
            pid: std::process::id(),
        })
    }

    /// Has it listen at its addresses, and take those over that a file of another master's is at. It has done so when this
    /// returns, if that is possible: what another master is told next may end that one's monitor.
    pub fn listen(&mut self) {
        if self.order_to_listen() {
            self.await_listening(PATIENCE);
        }
    }

    /// The same in two steps, for who has something else to do meanwhile. False if the thread is gone, which it has said.
    pub fn order_to_listen(&mut self) -> bool {
        let _ = self.done.try_recv();
        self.orders.as_ref().is_some_and(|mut orders| orders.write(&LISTEN).is_ok())
    }

    /// Waits until it has done so, or the time is over. Whether there is nothing more to wait for.
    pub fn await_listening(&mut self, time: Duration) -> bool {
        !matches!(self.done.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }

    /// Says how things are.
    pub fn publish(&self, state: MasterState) {
        self.notes.publish(state);
    }

    /// A worker has ended.
    pub fn exited(&self, exit: Exit) {
        self.notes.exited(exit);
    }

    /// What the log should have: each is given once.
    pub fn complaint(&self) -> Option<String> {
        self.complaints.try_recv().ok()
    }

    /// Ends it. In a forked process this only closes what that has inherited.
    pub fn close(&mut self) {
        let (Some(thread), Some(orders)) = (self.thread.take(), self.orders.take()) else { return };
        if self.pid != std::process::id() {
            // A fork does not copy the thread.
            std::mem::forget(thread);
            return;
        }
        // A copy of this that some other process has does not matter.
        let _ = orders.shutdown(Shutdown::Both);
        if self.has_ended_by(Instant::now() + PATIENCE) {
            let _ = thread.join();
        }
    }

    /// Waits for the thread's end, which drops the other end of `done`. Not by `thread::sleep`: after each signal nanosleep(2) goes on
    /// for what was left and the timer's slack, so that signals in a row, which Ruby 3.1 sends its main thread, keep it asleep.
    fn has_ended_by(&self, latest: Instant) -> bool {
        loop {
            match self.done.recv_timeout(latest.saturating_duration_since(Instant::now())) {
                Ok(()) => {}
                Err(end) => return end == RecvTimeoutError::Disconnected,
            }
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.close();
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic").to_owned()
}

fn run(
    orders: io::Result<OwnedFd>,
    settings: &Arc<Settings>,
    viewer: Viewer,
    begun: &impl Fn(Result<(), String>),
    done: &SyncSender<()>,
    complaints: &SyncSender<String>,
) -> io::Result<()> {
    let orders = UnixStream::from(orders?);
    orders.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        let orders = net::UnixStream::from_std(orders)?;
        begun(Ok(()));
        let answers = Arc::new(Answers::new(viewer, settings.token.clone()));
        let mut clients = Clients::new(answers);
        let mut doors = Doors {
            orders,
            settings: Arc::clone(settings),
            unix: None,
            tcp: None,
            retry: None,
            tries: 0,
            said: Vec::new(),
        };
        loop {
            match doors.next().await {
                Event::Listen => {
                    doors.open(complaints);
                    let _ = done.try_send(());
                }
                Event::Unix(stream) => {
                    let door = Door::of_user(&stream);
                    clients.add(stream, door).await;
                }
                Event::Tcp(stream, door) => clients.add(stream, door).await,
                Event::Failure => sleep(PAUSE).await,
                Event::End => {
                    doors.drain(&mut clients).await;
                    return Ok(());
                }
            }
        }
    })
}

enum Event {
    Listen,
    Unix(net::UnixStream),
    Tcp(net::TcpStream, Door),
    Failure,
    End,
}

/// Where clients and orders come from.
struct Doors {
    orders: net::UnixStream,
    settings: Arc<Settings>,
    unix: Option<(Place, UnixListener)>,
    tcp: Option<TcpListener>,
    retry: Option<Pin<Box<Sleep>>>,
    tries: u32,
    /// What was wrong the last time.
    said: Vec<String>,
}

impl Doors {
    fn open(&mut self, complaints: &SyncSender<String>) {
        let mut wrong = Vec::new();
        let mut complain =
            |place: String, error: io::Error| wrong.push(format!("no monitor at {place}: {error}"));
        let settings = Arc::clone(&self.settings);
        if let Some(path) = &settings.path {
            self.open_unix(path).unwrap_or_else(|error| complain(path.display().to_string(), error));
        }
        if let Some(address) = settings.listen {
            self.open_tcp(address).unwrap_or_else(|error| complain(address.to_string(), error));
        }
        // It is tried again and again: what stays wrong is one line.
        for text in wrong.iter().filter(|text| !self.said.contains(text)) {
            let _ = complaints.try_send(text.clone());
        }
        self.said = wrong;
    }

    fn open_unix(&mut self, path: &Path) -> io::Result<()> {
        if self.unix.as_ref().is_some_and(|(place, _)| place.is_ours()) {
            return Ok(());
        }
        self.unix = None;
        let (place, listener) = Place::take(path, self.settings.user.as_ref(), self.settings.patient)?;
        self.unix = Some((place, UnixListener::from_std(listener)?));
        Ok(())
    }

    fn open_tcp(&mut self, address: SocketAddr) -> io::Result<()> {
        self.retry = None;
        if self.tcp.is_some() {
            return Ok(());
        }
        match listen(address).and_then(TcpListener::from_std) {
            Ok(listener) => self.tcp = Some(listener),
            // An old master's monitor ends with that.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                self.retry = Some(Box::pin(sleep(RETRY)));
                self.tries += 1;
                if self.tries == if self.settings.patient { RETRIES } else { 1 } {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn next(&mut self) -> Event {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        let mut space = [0; 1];
        let mut order = ReadBuf::new(&mut space);
        if let Poll::Ready(read) = Pin::new(&mut self.orders).poll_read(context, &mut order) {
            return Poll::Ready(if read.is_ok() && order.filled() == LISTEN {
                Event::Listen
            } else {
                Event::End
            });
        }
        if let Some(Poll::Ready(())) = self.retry.as_mut().map(|retry| retry.as_mut().poll(context)) {
            return Poll::Ready(Event::Listen);
        }
        self.poll_clients(context)
    }

    /// Those that have connected are served: after USR2 they may have found the old master's socket a moment ago.
    async fn drain(mut self, clients: &mut Clients) {
        // For the runtime to look who is there.
        sleep(Duration::from_millis(1)).await;
        for _ in 0..MOST_CLIENTS {
            match poll_fn(|context| Poll::Ready(self.poll_clients(context))).await {
                Poll::Ready(Event::Unix(stream)) => {
                    let door = Door::of_user(&stream);
                    clients.add(stream, door).await;
                }
                Poll::Ready(Event::Tcp(stream, door)) => clients.add(stream, door).await,
                _ => break,
            }
        }
        let _ = timeout(LAST_ANSWERS, clients.answered()).await;
    }

    fn poll_clients(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        if let Some(Poll::Ready(accepted)) =
            self.unix.as_ref().map(|(_, listener)| listener.poll_accept(context))
        {
            return Poll::Ready(accepted.map_or(Event::Failure, |(stream, _)| Event::Unix(stream)));
        }
        if let Some(Poll::Ready(accepted)) = self.tcp.as_ref().map(|listener| listener.poll_accept(context)) {
            let event =
                accepted.map_or(Event::Failure, |(stream, from)| Event::Tcp(stream, Door::of(from.ip())));
            return Poll::Ready(event);
        }
        Poll::Pending
    }
}
