//! The listeners of this process, and the threads that accept their clients. Each thread has a runtime of its own, so no task changes
//! threads, as in a worker of nginx. New settings open and close listeners; clients that are there stay.

use std::io;
use std::net::TcpListener;
use std::sync::mpsc::Sender;
use std::sync::Arc;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{watch, Semaphore};
use tokio::task::JoinHandle;

use crate::acme::Challenges;
use crate::ending::Stop;
use crate::handler::Handler;
use crate::orders::Passed;
use crate::rate::Rate;
use crate::server::{Endpoint, Server};
use crate::settings::{Listener, Settings};
use crate::shares::Shares;
use crate::site::CurrentSite;
use crate::tls::{server_config, Certificates, Contents};
use crate::upstream::Upstream;
use crate::work::Work;

/// Threads that wait for the disk, or compress files, for each thread that serves clients.
const READERS: usize = 8;

/// A thread that serves clients.
#[derive(Debug)]
struct Thread {
    runtime: Handle,
    server: Server,
}

/// A listener whose clients are accepted.
#[derive(Debug)]
struct Listening {
    settings: Listener,
    socket: TcpListener,
    certificates: Option<Arc<Certificates>>,
    endpoint: Arc<Endpoint>,
    /// A task in each thread.
    accepting: Vec<JoinHandle<()>>,
}

/// All listeners of this process.
#[derive(Debug)]
pub struct Listeners {
    threads: Vec<Thread>,
    challenges: Arc<Challenges>,
    exchanges: Arc<Shares>,
    open: Vec<Listening>,
}

impl Listeners {
    /// Starts the threads, which accept nobody yet.
    pub fn start(
        site: &Arc<CurrentSite>,
        challenges: Arc<Challenges>,
        work: &Arc<Work>,
        stopped: &watch::Receiver<Option<Stop>>,
    ) -> Result<Self, String> {
        let settings = site.get().settings.clone();
        let handshakes = Arc::new(Rate::new());
        let exchanges = Shares::new(worker_places());
        let start = |number| {
            let upstream = Upstream::new(settings.upstream.clone(), Arc::clone(&exchanges));
            let server = Server {
                handler: Arc::new(Handler::new(Arc::clone(site), Arc::clone(&challenges), upstream)),
                places: Arc::new(Semaphore::new(places(&settings))),
                handshakes: Arc::clone(&handshakes),
                work: Arc::clone(work),
                stop: stopped.clone(),
            };
            Ok(Thread { runtime: start_thread(number).map_err(|error| error.to_string())?, server })
        };
        let threads = (0..settings.threads.max(1)).map(start).collect::<Result<_, String>>()?;
        Ok(Listeners { threads, challenges, exchanges, open: Vec::new() })
    }

    /// Opens what is not open, and closes what is not wanted: all of it, or nothing. A listener whose settings are others is opened anew. Those
    /// that stay take the certificates of these settings.
    pub fn set(&mut self, wanted: &[Listener], passed: &mut Passed, strict: bool) -> Result<(), String> {
        let fits = |one: &Listening, listener: &Listener| one.settings.is_same(listener);
        let (mut opened, mut renewed) = (Vec::new(), Vec::new());
        for listener in wanted {
            match self.open.iter().find(|one| fits(one, listener)) {
                Some(one) => renewed.extend(one.certificates.clone().zip(contents(listener, passed)?)),
                None => opened.push(self.prepare(listener, passed, strict)?),
            }
        }
        for listening in &mut opened {
            listening.accepting = self.accept(listening)?;
        }
        self.open.retain(|one| {
            let stays = wanted.iter().any(|listener| fits(one, listener));
            if !stays {
                one.accepting.iter().for_each(JoinHandle::abort);
            }
            stays
        });
        self.open.extend(opened);
        renewed.iter().for_each(|(certificates, contents)| certificates.take(contents));
        Ok(())
    }

    /// The certificates of all listeners.
    pub fn certificates(&self) -> impl Iterator<Item = &Arc<Certificates>> {
        self.open.iter().filter_map(|one| one.certificates.as_ref())
    }

    /// Connections to workers that have requests, and the most since the last call.
    pub fn exchanges(&self) -> (usize, usize) {
        self.exchanges.held()
    }

    /// Accepts nobody any more.
    pub fn close(&mut self) {
        self.open.clear();
    }

    fn prepare(&self, listener: &Listener, passed: &mut Passed, strict: bool) -> Result<Listening, String> {
        let index = listener.descriptor.ok_or("a listener has no descriptor")?;
        let socket = TcpListener::from(passed.take(index)?);
        socket.set_nonblocking(true).map_err(|error| error.to_string())?;
        let certificates = certificates(listener, passed, strict)?;
        let tls = certificates
            .as_ref()
            .map(|one| server_config(Arc::clone(one), Arc::clone(&self.challenges) as _))
            .transpose()
            .map_err(|error| format!("TLS cannot be used: {error}"))?;
        let endpoint = Arc::new(Endpoint {
            name: listener.name.as_str().into(),
            tls,
            redirect_to: listener.redirect_to,
            proxy_protocol: listener.proxy_protocol,
        });
        Ok(Listening { settings: listener.clone(), socket, certificates, endpoint, accepting: Vec::new() })
    }

    fn accept(&self, listening: &Listening) -> Result<Vec<JoinHandle<()>>, String> {
        let accept = |thread: &Thread| -> io::Result<JoinHandle<()>> {
            let _entered = thread.runtime.enter();
            let listener = tokio::net::TcpListener::from_std(listening.socket.try_clone()?)?;
            let endpoint = Arc::clone(&listening.endpoint);
            Ok(thread.runtime.spawn(thread.server.clone().accept(listener, endpoint)))
        };
        let accepting = self.threads.iter().map(accept).collect::<io::Result<_>>();
        accepting.map_err(|error| format!("cannot listen on {}: {error}", listening.settings.name))
    }
}

/// What the files of a listener's certificates have; None without TLS.
fn contents(listener: &Listener, passed: &mut Passed) -> Result<Option<Contents>, String> {
    listener.certificates.as_ref().map(|files| files.contents(passed)).transpose()
}

/// The certificates of a new listener; None without TLS. Without strictness there may be none that can be used: then the listener refuses
/// handshakes, until others come.
fn certificates(
    listener: &Listener,
    passed: &mut Passed,
    strict: bool,
) -> Result<Option<Arc<Certificates>>, String> {
    let Some(contents) = contents(listener, passed)? else { return Ok(None) };
    let kept = listener.kept_certificates.as_ref().map(|files| files.contents(passed)).transpose()?;
    if strict && kept.is_none() {
        return Certificates::of(&contents).map(Some);
    }
    Ok(Some(Certificates::of_any(&contents, kept.as_ref(), &listener.name)))
}

/// Starts a thread, and returns when it can serve.
fn start_thread(number: usize) -> io::Result<Handle> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    let run = move || serve(&ready);
    std::thread::Builder::new().name(format!("clients {number}")).spawn(run)?;
    is_ready.recv().map_err(io::Error::other)?
}

fn serve(ready: &Sender<io::Result<Handle>>) {
    let runtime: io::Result<Runtime> =
        Builder::new_current_thread().enable_all().max_blocking_threads(READERS).build();
    match runtime {
        Ok(runtime) => {
            let _ = ready.send(Ok(runtime.handle().clone()));
            // The thread runs until the process ends.
            runtime.block_on(std::future::pending())
        }
        Err(error) => drop(ready.send(Err(error))),
    }
}

/// Clients that a thread may have. A quarter of the descriptors is left for connections to workers, and for files. Otherwise requests of
/// present clients would fail.
fn places(settings: &Settings) -> usize {
    let clients = fastrack_sys::fd_limit() / 4 * 3;
    settings.max_connections.min(clients / settings.threads.max(1)).max(1)
}

/// Connections to workers that clients may have at once. An eighth of the descriptors that clients leave, but at least 16, is for files, the log
/// and the like.
fn worker_places() -> usize {
    let rest = fastrack_sys::fd_limit() / 4;
    rest.saturating_sub((rest / 8).max(16)).max(1)
}
