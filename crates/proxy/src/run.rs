//! The process: its threads, what the master tells it, and its end.

use std::net::TcpListener;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{watch, Semaphore};
use tokio::time::{interval, sleep, Instant};

use crate::access_log::AccessLog;
use crate::acme::{self, Challenges};
use crate::control::{self, Order};
use crate::ending::{End, Ending, Step, Stop};
use crate::handler::Handler;
use crate::memory::Trim;
use crate::rate::Rate;
use crate::server::{Endpoint, Server};
use crate::settings::Settings;
use crate::shares::Shares;
use crate::site::{CurrentSite, Site};
use crate::stats;
use crate::tls::{server_config, Certificates};
use crate::upstream::Upstream;
use crate::work::{Counts, Work};

/// How often the files of certificates are looked at, and counters are told.
const LOOK: Duration = Duration::from_secs(1);

/// The listening sockets.
type Listening = Vec<(TcpListener, Arc<Endpoint>)>;

/// Orders of the master.
type Orders = UnboundedReceiver<Order<Settings>>;

/// Threads that wait for the disk, or compress files, for each thread that serves clients.
const READERS: usize = 8;

/// Checks the settings on standard input, as a start would.
pub fn check() -> Result<(), String> {
    let settings: Settings = control::first_settings().ok_or("no settings")??;
    // Certificates by ACME are not there before the first start.
    let is_there = |listener: &&crate::settings::Listener| {
        !listener.certificates.is_empty()
            && (settings.acme.is_none() || listener.certificates.iter().all(|(cert, _)| cert.exists()))
    };
    for listener in settings.listeners.iter().filter(is_there) {
        let certificates = Certificates::load(listener.certificates.clone())?;
        certificates.warnings(now()).iter().for_each(|warning| control::warn(warning));
    }
    Site::new(settings)?.warnings().iter().for_each(|warning| control::warn(warning));
    Ok(())
}

/// Serves until the master orders the end, or has ended itself.
pub fn run() -> Result<(), String> {
    let settings: Settings = control::first_settings().ok_or("no settings")??;
    settings.acme.as_ref().map_or(Ok(()), acme::prepare)?;
    let certificates = load_certificates(&settings)?;
    certificates
        .iter()
        .flatten()
        .flat_map(|one| one.warnings(now()))
        .for_each(|warning| control::warn(&warning));
    let sockets = take_sockets(&settings)?;
    let log = settings.access_log.as_ref().map(AccessLog::start).transpose();
    let log = log.map_err(|error| format!("cannot use the access log: {error}"))?;
    let challenges = Arc::<Challenges>::default();
    let endpoints = endpoints(&settings, &certificates, &challenges)?;
    let site = Arc::new(CurrentSite::new(Site::new(settings)?));
    let (stop, stopped) = watch::channel(None);
    let listening: Vec<(TcpListener, Arc<Endpoint>)> = sockets.into_iter().zip(endpoints).collect();
    let work = Arc::<Work>::default();
    let exchanges = Shares::new(worker_places(), |connection| &connection.exchanges);
    start_threads(&site, &challenges, &log, &exchanges, &listening, &work, &stopped)?;
    control::ready();
    let process = Process { site, certificates, challenges, log, exchanges, work, stop };
    process.runtime()?.block_on(process.lead(listening))
}

fn load_certificates(settings: &Settings) -> Result<Vec<Option<Arc<Certificates>>>, String> {
    let load = |files: &Vec<_>| (!files.is_empty()).then(|| Certificates::load(files.clone())).transpose();
    settings.listeners.iter().map(|listener| load(&listener.certificates)).collect()
}

/// The listening sockets, as the master has passed them.
fn take_sockets(settings: &Settings) -> Result<Vec<TcpListener>, String> {
    let mut passed = listenfd::ListenFd::from_env();
    let take = |index| {
        let socket = passed.take_tcp_listener(index).map_err(|error| error.to_string())?;
        let socket: TcpListener = socket.ok_or_else(|| format!("the listener {index} is missing"))?;
        socket.set_nonblocking(true).map_err(|error| error.to_string())?;
        Ok(socket)
    };
    (0..settings.listeners.len()).map(take).collect()
}

fn endpoints(
    settings: &Settings,
    certificates: &[Option<Arc<Certificates>>],
    challenges: &Arc<Challenges>,
) -> Result<Vec<Arc<Endpoint>>, String> {
    let endpoint = |(listener, certificates): (&crate::settings::Listener, &Option<Arc<Certificates>>)| {
        let tls = certificates
            .as_ref()
            .map(|one| server_config(Arc::clone(one), Arc::clone(challenges) as _))
            .transpose();
        Ok(Arc::new(Endpoint {
            name: listener.name.as_str().into(),
            tls: tls.map_err(|error| format!("TLS cannot be used: {error}"))?,
            redirect_to: listener.redirect_to,
            proxy_protocol: listener.proxy_protocol,
        }))
    };
    settings.listeners.iter().zip(certificates).map(endpoint).collect()
}

/// Starts the threads that serve clients. Each thread has a runtime of its own, so no task changes threads, as in a worker of nginx.
/// Returns when all threads accept clients.
fn start_threads(
    site: &Arc<CurrentSite>,
    challenges: &Arc<Challenges>,
    log: &Option<Arc<AccessLog>>,
    exchanges: &Arc<Shares>,
    listening: &[(TcpListener, Arc<Endpoint>)],
    work: &Arc<Work>,
    stopped: &watch::Receiver<Option<Stop>>,
) -> Result<(), String> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    let settings = site.get().settings.clone();
    let handshakes = Arc::new(Rate::new());
    for number in 0..settings.threads.max(1) {
        let server = Server {
            handler: Arc::new(Handler::new(
                Arc::clone(site),
                Arc::clone(challenges),
                Upstream::new(settings.upstream.clone(), Arc::clone(exchanges)),
                log.clone(),
            )),
            places: Arc::new(Semaphore::new(places(&settings))),
            handshakes: Arc::clone(&handshakes),
            work: Arc::clone(work),
            stop: stopped.clone(),
        };
        let copy = |(socket, endpoint): &(TcpListener, Arc<Endpoint>)| {
            Ok((socket.try_clone()?, Arc::clone(endpoint)))
        };
        let own = listening
            .iter()
            .map(copy)
            .collect::<std::io::Result<Vec<_>>>()
            .map_err(|error| error.to_string())?;
        let ready = ready.clone();
        let run = move || serve(&server, own, &ready);
        std::thread::Builder::new()
            .name(format!("clients {number}"))
            .spawn(run)
            .map_err(|error| error.to_string())?;
    }
    drop(ready);
    // Each thread reports that it is ready, or its error.
    is_ready.iter().take(settings.threads.max(1)).collect()
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

fn serve(server: &Server, listening: Vec<(TcpListener, Arc<Endpoint>)>, ready: &Sender<Result<(), String>>) {
    let accept = || -> std::io::Result<Runtime> {
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(READERS).build()?;
        let entered = runtime.enter();
        for (socket, endpoint) in listening {
            let listener = tokio::net::TcpListener::from_std(socket)?;
            runtime.spawn(server.clone().accept(listener, endpoint));
        }
        drop(entered);
        Ok(runtime)
    };
    match accept() {
        Ok(runtime) => {
            let _ = ready.send(Ok(()));
            // The thread runs until the process ends.
            runtime.block_on(std::future::pending())
        }
        Err(error) => drop(ready.send(Err(error.to_string()))),
    }
}

/// The first thread's parts for leading the process.
struct Process {
    site: Arc<CurrentSite>,
    certificates: Vec<Option<Arc<Certificates>>>,
    challenges: Arc<Challenges>,
    log: Option<Arc<AccessLog>>,
    exchanges: Arc<Shares>,
    work: Arc<Work>,
    stop: watch::Sender<Option<Stop>>,
}

impl Process {
    fn runtime(&self) -> Result<Runtime, String> {
        Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
    }

    /// Follows the master until the process is to end, then waits for the requests.
    async fn lead(&self, listening: Listening) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        let mut orders = control::all_orders().map_err(failed)?;
        if let Some(settings) = self.site.get().settings.acme.clone() {
            tokio::spawn(acme::keep(settings, Arc::clone(&self.challenges)));
        }
        let mut look = interval(LOOK);
        let mut stamps = self.stamps();
        let mut told = serde_json::Value::Null;
        let mut trim = Trim::new();
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Settings(Ok(settings))) => self.apply(settings),
                    Some(Order::Settings(Err(error))) => control::error(&error),
                    Some(Order::Reopen) => self.log.iter().for_each(|log| log.reopen()),
                    Some(Order::Ping) => control::pong(),
                    Some(Order::End(end)) => break self.end(end, listening, orders).await,
                    None => {
                        let end = End::within(self.site.get().settings.graceful_timeout);
                        break self.end(end, listening, orders).await;
                    }
                },
                _ = look.tick() => {
                    let found = self.stamps();
                    if found != stamps {
                        stamps = found;
                        self.reload(None);
                    }
                    self.tell(&mut told);
                    let (clients, (now, most)) = (stats::OPEN.load(Relaxed) as usize, self.exchanges.held());
                    trim.look(clients + now, clients + most);
                }
            }
        }
        Ok(())
    }

    fn stamps(&self) -> Vec<impl PartialEq> {
        self.certificates.iter().flatten().map(|one| one.stamp()).collect::<Vec<_>>()
    }

    /// Applies new settings, all of them or none.
    fn apply(&self, settings: Settings) {
        let (number, listeners) = (settings.number, settings.listeners.clone());
        match Site::new(settings) {
            Ok(site) => {
                self.site.set(site);
                self.reload(Some(&listeners));
                control::applied(number);
            }
            Err(error) => control::refused(number, &format!("the proxy keeps its settings: {error}")),
        }
    }

    /// Loads the certificates anew: the files that new settings name, or the same.
    fn reload(&self, listeners: Option<&[crate::settings::Listener]>) {
        for (index, certificates) in self.certificates.iter().enumerate() {
            let Some(certificates) = certificates else { continue };
            let named = listeners
                .and_then(|listeners| listeners.get(index))
                .map(|listener| listener.certificates.clone());
            let files = named.filter(|files| !files.is_empty()).unwrap_or_else(|| certificates.files());
            match certificates.reload(files) {
                Ok(()) => certificates.warnings(now()).iter().for_each(|warning| control::warn(warning)),
                Err(error) => control::error(&format!("the certificates stay as they are: {error}")),
            }
        }
    }

    /// Tells the counters that have changed.
    fn tell(&self, told: &mut serde_json::Value) {
        let mut now = stats::json();
        let ends: Vec<i64> = self.certificates.iter().flatten().filter_map(|one| one.not_after()).collect();
        let Counts { streams, tunnels } = self.work.lasting();
        now["streams"] = streams.into();
        now["tunnels"] = tunnels.into();
        now["certificate_not_after"] = ends.into_iter().min().into();
        if now != *told {
            control::stats(&now);
            *told = now;
        }
    }

    /// Accepts nobody any more, and waits for the work of the clients that are there. A later order counts instead.
    async fn end(&self, end: End, listening: Listening, mut orders: Orders) {
        drop(listening);
        let mut ending = self.begin_end(end);
        let (mut look, mut told) = (interval(LOOK), serde_json::Value::Null);
        let mut has_master = true;
        loop {
            let pause = match ending.step(Instant::now(), stats::OPEN.load(Relaxed), &self.work) {
                Step::Wait(pause) => pause,
                Step::Tell(left) => {
                    control::lingering(left);
                    continue;
                }
                Step::Over { is_cut } => break self.finish(is_cut),
            };
            tokio::select! {
                order = orders.recv(), if has_master => match order {
                    Some(Order::End(end)) => ending = self.begin_end(end),
                    Some(Order::Reopen) => self.log.iter().for_each(|log| log.reopen()),
                    Some(Order::Ping) => control::pong(),
                    Some(Order::Settings(_)) => {}
                    None => {
                        has_master = false;
                        ending = self.begin_end(End::within(self.site.get().settings.graceful_timeout));
                    }
                },
                _ = look.tick() => self.tell(&mut told),
                () = sleep(pause) => {}
            }
        }
    }

    fn begin_end(&self, end: End) -> Ending {
        let ending = Ending::new(end, Instant::now());
        self.work.set_ending();
        let _ = self.stop.send(Some(ending.stop()));
        ending
    }

    fn finish(&self, is_cut: bool) {
        if is_cut {
            let (requests, Counts { streams, tunnels }) = (self.work.requests(), self.work.lasting());
            control::inform(&format!(
                "cut at the end: {requests} requests, {streams} streams, {tunnels} sockets"
            ));
        }
        self.log.iter().for_each(|log| log.finish());
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}
