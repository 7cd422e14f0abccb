//! The thread of the monitor, and the master's handle of it.

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

use crate::answer::{Answers, Transport};
use crate::clients::{Clients, MAX_CLIENTS};
use crate::master::{Exit, MasterState, Published};
use crate::settings::MonitorSettings;
use crate::socket_file::{listen, SocketFile};
use crate::view::Viewer;

/// How long the master waits for the thread to start, to listen, and to end.
pub const THREAD_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause between tries to listen at an address where an old master still listens.
const LISTEN_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The number of tries to listen before the log gets a warning.
const TRIES_BEFORE_WARNING: u32 = 60;

/// The pause after a failed accept(2).
const ACCEPT_FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// Time for the answers to the clients that have connected before the end.
const LAST_ANSWERS_TIMEOUT: Duration = Duration::from_millis(500);

/// The highest number of warnings that wait for the master.
const MAX_WARNINGS: usize = 16;

/// The order to listen.
const LISTEN_ORDER: [u8; 1] = *b"l";

/// The master's handle of the thread. Only start, close and listen wait for the thread.
#[derive(Debug)]
pub struct Monitor {
    published: Arc<Published>,
    orders: Option<UnixStream>,
    /// Gets a message after each order that the thread has carried out.
    done: Receiver<()>,
    warnings: Receiver<String>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Monitor {
    /// Starts the thread, which does not listen before [`listen`](Self::listen). Fails if the thread cannot start.
    pub fn start(settings: MonitorSettings, scoreboard: Scoreboard) -> io::Result<Self> {
        let published = Arc::<Published>::default();
        let settings = Arc::new(settings);
        let (orders, theirs) = UnixStream::pair()?;
        orders.set_nonblocking(true)?;
        let (warn, warnings) = sync_channel(MAX_WARNINGS);
        let (started, start) = sync_channel(1);
        let (did, done) = sync_channel(1);
        let viewer = Viewer::new(Arc::clone(&settings), Arc::clone(&published), scoreboard.clone());
        let work = move |orders: io::Result<OwnedFd>| {
            let started = |result| drop(started.try_send(result));
            let result =
                catch_unwind(AssertUnwindSafe(|| run(orders, &settings, viewer, &started, &did, &warn)));
            let end = match result {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => message(panic.as_ref()),
            };
            started(Err(end.clone()));
            let _ = warn.try_send(format!("the monitor has ended: {end}"));
        };
        let thread = spawn_with_own_descriptors("fastrack monitor", theirs.into(), work)?;
        if let Ok(Err(text)) = start.recv_timeout(THREAD_TIMEOUT) {
            return Err(io::Error::other(text));
        }
        Ok(Monitor {
            published,
            orders: Some(orders),
            done,
            warnings,
            thread: Some(thread),
            pid: std::process::id(),
        })
    }

    /// Makes the thread listen at its addresses, and replace the socket of another master. Waits for the thread,
    /// because the caller may end the other master, and its monitor, next.
    pub fn listen(&mut self) {
        if self.order_to_listen() {
            self.await_listening(THREAD_TIMEOUT);
        }
    }

    /// The first step of [`listen`](Self::listen). Returns false if the thread has ended, which a
    /// [warning](Self::warning) tells.
    pub fn order_to_listen(&mut self) -> bool {
        let _ = self.done.try_recv();
        self.orders.as_ref().is_some_and(|mut orders| orders.write(&LISTEN_ORDER).is_ok())
    }

    /// The second step: waits until the thread listens or has ended. Returns false after `time`.
    pub fn await_listening(&mut self, time: Duration) -> bool {
        !matches!(self.done.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }

    /// Publishes the state of the master.
    pub fn publish(&self, state: MasterState) {
        self.published.publish(state);
    }

    /// The order for a profile that no [profile](Self::publish_profile) has followed yet: the number of the worker, and the seconds.
    pub fn profile_order(&self) -> Option<(usize, u32)> {
        self.published.profile_order()
    }

    /// Publishes a profile, as JSON.
    pub fn publish_profile(&self, is_running: bool, text: &str) {
        self.published.publish_profile(is_running, text);
    }

    /// Publishes the end of a worker.
    pub fn exited(&self, exit: Exit) {
        self.published.exited(exit);
    }

    /// Takes the next warning for the log.
    pub fn warning(&self) -> Option<String> {
        self.warnings.try_recv().ok()
    }

    /// Ends the thread. In a forked process this only closes the inherited descriptors.
    pub fn close(&mut self) {
        let (Some(thread), Some(orders)) = (self.thread.take(), self.orders.take()) else { return };
        if self.pid != std::process::id() {
            // A forked process has no such thread to join.
            std::mem::forget(thread);
            return;
        }
        // A shutdown reaches the thread even if another process has a copy of the socket.
        let _ = orders.shutdown(Shutdown::Both);
        if self.has_ended_by(Instant::now() + THREAD_TIMEOUT) {
            let _ = thread.join();
        }
    }

    /// Waits for the end of the thread, which drops the other end of `done`. Does not use `thread::sleep`: after each
    /// signal, nanosleep(2) continues for the rest of the time and the timer slack. Ruby 3.1 sends its main thread many
    /// signals in a row, which would prolong the sleep without end.
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
    settings: &Arc<MonitorSettings>,
    viewer: Viewer,
    started: &impl Fn(Result<(), String>),
    done: &SyncSender<()>,
    warnings: &SyncSender<String>,
) -> io::Result<()> {
    let orders = UnixStream::from(orders?);
    orders.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        let orders = net::UnixStream::from_std(orders)?;
        started(Ok(()));
        let answers = Arc::new(Answers::new(viewer, settings.token.clone()));
        let mut clients = Clients::new(answers);
        let mut listeners = Listeners {
            orders,
            settings: Arc::clone(settings),
            unix: None,
            tcp: None,
            retry: None,
            tries: 0,
            last_warnings: Vec::new(),
        };
        loop {
            match listeners.next().await {
                Event::Listen => {
                    listeners.open(warnings);
                    let _ = done.try_send(());
                }
                Event::Unix(stream) => {
                    let transport = Transport::of_user(&stream);
                    clients.add(stream, transport).await;
                }
                Event::Tcp(stream, transport) => clients.add(stream, transport).await,
                Event::Failure => sleep(ACCEPT_FAILURE_PAUSE).await,
                Event::End => {
                    listeners.drain(&mut clients).await;
                    return Ok(());
                }
            }
        }
    })
}

enum Event {
    Listen,
    Unix(net::UnixStream),
    Tcp(net::TcpStream, Transport),
    Failure,
    End,
}

/// The sources of clients and orders.
struct Listeners {
    orders: net::UnixStream,
    settings: Arc<MonitorSettings>,
    unix: Option<(SocketFile, UnixListener)>,
    tcp: Option<TcpListener>,
    retry: Option<Pin<Box<Sleep>>>,
    tries: u32,
    /// The warnings of the last try to listen.
    last_warnings: Vec<String>,
}

impl Listeners {
    fn open(&mut self, warnings: &SyncSender<String>) {
        let mut found = Vec::new();
        let mut warn =
            |address: String, error: io::Error| found.push(format!("no monitor at {address}: {error}"));
        let settings = Arc::clone(&self.settings);
        if let Some(path) = &settings.path {
            self.open_unix(path).unwrap_or_else(|error| warn(path.display().to_string(), error));
        }
        if let Some(address) = settings.listen {
            self.open_tcp(address).unwrap_or_else(|error| warn(address.to_string(), error));
        }
        // Each retry finds the same problems, which are logged once.
        for text in found.iter().filter(|text| !self.last_warnings.contains(text)) {
            let _ = warnings.try_send(text.clone());
        }
        self.last_warnings = found;
    }

    fn open_unix(&mut self, path: &Path) -> io::Result<()> {
        if self.unix.as_ref().is_some_and(|(file, _)| file.is_ours()) {
            return Ok(());
        }
        self.unix = None;
        let (file, listener) = SocketFile::create(path, self.settings.user.as_ref(), self.settings.replaces)?;
        self.unix = Some((file, UnixListener::from_std(listener)?));
        Ok(())
    }

    fn open_tcp(&mut self, address: SocketAddr) -> io::Result<()> {
        self.retry = None;
        if self.tcp.is_some() {
            return Ok(());
        }
        match listen(address).and_then(TcpListener::from_std) {
            Ok(listener) => self.tcp = Some(listener),
            // The monitor of an old master ends with that master.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                self.retry = Some(Box::pin(sleep(LISTEN_RETRY_INTERVAL)));
                self.tries += 1;
                if self.tries == if self.settings.replaces { TRIES_BEFORE_WARNING } else { 1 } {
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
            return Poll::Ready(if read.is_ok() && order.filled() == LISTEN_ORDER {
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

    /// Serves the clients that have connected already: after USR2 a client may have connected to the old master's
    /// socket.
    async fn drain(mut self, clients: &mut Clients) {
        // Lets the runtime poll the listeners.
        sleep(Duration::from_millis(1)).await;
        for _ in 0..MAX_CLIENTS {
            match poll_fn(|context| Poll::Ready(self.poll_clients(context))).await {
                Poll::Ready(Event::Unix(stream)) => {
                    let transport = Transport::of_user(&stream);
                    clients.add(stream, transport).await;
                }
                Poll::Ready(Event::Tcp(stream, transport)) => clients.add(stream, transport).await,
                _ => break,
            }
        }
        let _ = timeout(LAST_ANSWERS_TIMEOUT, clients.answered()).await;
    }

    fn poll_clients(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        if let Some(Poll::Ready(accepted)) =
            self.unix.as_ref().map(|(_, listener)| listener.poll_accept(context))
        {
            return Poll::Ready(accepted.map_or(Event::Failure, |(stream, _)| Event::Unix(stream)));
        }
        if let Some(Poll::Ready(accepted)) = self.tcp.as_ref().map(|listener| listener.poll_accept(context)) {
            let event = accepted
                .map_or(Event::Failure, |(stream, from)| Event::Tcp(stream, Transport::of(from.ip())));
            return Poll::Ready(event);
        }
        Poll::Pending
    }
}
