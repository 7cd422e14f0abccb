//! The process: what the master tells it, and its end.

use std::os::fd::IntoRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::time::{interval, sleep, Instant};

use crate::access_log::{self, AccessLog};
use crate::acme::{self, Challenges};
use crate::control;
use crate::ending::{End, Ending, Step, Stop};
use crate::listening::Listeners;
use crate::memory::Trim;
use crate::orders::{Order, Orders, Passed};
use crate::settings::Settings;
use crate::site::{CurrentSite, Site};
use crate::stats;
use crate::tls::Certificates;
use crate::work::{Counts, Work};

/// How often the files of certificates are looked at, and counters are told.
const LOOK: Duration = Duration::from_secs(1);

/// Checks the settings on standard input, as a start would.
pub fn check() -> Result<(), String> {
    let (settings, mut passed): (Settings, _) = Orders::default().first().ok_or("no settings")??;
    // Certificates by ACME are not there before the first start.
    let files = settings.listeners.iter().filter_map(|listener| listener.certificates.as_ref());
    for files in files.filter(|files| !files.are_to_come()) {
        Certificates::of(&files.contents(&mut passed)?)?.warn();
    }
    Site::new(settings, None)?.warnings().iter().for_each(|warning| control::warn(warning));
    Ok(())
}

/// Serves until the master orders the end, or has ended itself.
pub fn run() -> Result<(), String> {
    hide();
    let mut orders = Orders::default();
    let Some(first) = orders.first() else { return Ok(()) };
    let (settings, passed) = first?;
    let mut process = Process::start(settings, passed)?;
    control::ready();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    runtime.block_on(process.lead(orders))
}

/// Keeps processes of the same user from reading this one's memory and descriptors: ptrace(2), pidfd_getfd(2), core dumps.
fn hide() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{set_dumpable_behavior, DumpableBehavior};
        // Fails nowhere on Linux (PR_SET_DUMPABLE).
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// The first thread's parts for leading the process.
struct Process {
    site: Arc<CurrentSite>,
    listeners: Listeners,
    challenges: Arc<Challenges>,
    work: Arc<Work>,
    stop: watch::Sender<Option<Stop>>,
}

impl Process {
    fn start(mut settings: Settings, mut passed: Passed) -> Result<Self, String> {
        settings.acme.as_ref().map_or(Ok(()), acme::prepare)?;
        if let Some(index) = settings.upstream_descriptor {
            // Open as long as the process lives.
            settings.upstream = format!("/proc/self/fd/{}", passed.take(index)?.into_raw_fd()).into();
        }
        let (wanted, strict) = (settings.listeners.clone(), settings.strict);
        let site = Arc::new(CurrentSite::new(site(settings, &mut passed)?));
        let (challenges, work) = (Arc::<Challenges>::default(), Arc::<Work>::default());
        let (stop, stopped) = watch::channel(None);
        let mut listeners = Listeners::start(&site, Arc::clone(&challenges), &work, &stopped)?;
        listeners.set(&wanted, &mut passed, strict)?;
        listeners.certificates().for_each(|one| one.warn());
        Ok(Process { site, listeners, challenges, work, stop })
    }

    /// Follows the master until the process is to end, then waits for the requests.
    async fn lead(&mut self, orders: Orders) -> Result<(), String> {
        let mut orders = orders.follow().map_err(|error| error.to_string())?;
        if let Some(settings) = self.site.get().settings.acme.clone() {
            tokio::spawn(acme::keep(settings, Arc::clone(&self.challenges)));
        }
        let mut look = interval(LOOK);
        let mut told = serde_json::Value::Null;
        let mut trim = Trim::new();
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Settings(Ok((settings, passed)))) => self.apply(settings, passed),
                    Some(Order::Settings(Err(error))) => control::error(&error),
                    Some(Order::Ping) => control::pong(),
                    Some(Order::End(end)) => break self.end(end, orders).await,
                    None => {
                        let end = End::within(self.site.get().settings.graceful_timeout);
                        break self.end(end, orders).await;
                    }
                },
                _ = look.tick() => {
                    self.listeners.certificates().for_each(|one| {
                        one.look();
                        one.warn();
                    });
                    self.tell(&mut told);
                    let (clients, (now, most)) = (stats::OPEN.load(Relaxed) as usize, self.listeners.exchanges());
                    trim.look(clients + now, clients + most);
                }
            }
        }
        Ok(())
    }

    /// Applies new settings, all of them or none.
    fn apply(&mut self, settings: Settings, mut passed: Passed) {
        let number = settings.number;
        match self.try_apply(settings, &mut passed) {
            Ok(()) => control::applied(number),
            Err(error) => control::refused(number, &format!("the proxy keeps its settings: {error}")),
        }
    }

    fn try_apply(&mut self, settings: Settings, passed: &mut Passed) -> Result<(), String> {
        let (wanted, strict) = (settings.listeners.clone(), settings.strict);
        let site = site(settings, passed)?;
        self.listeners.set(&wanted, passed, strict)?;
        self.site.set(site);
        Ok(())
    }

    /// Takes the logs of new settings.
    fn take_logs(&self, settings: Settings, mut passed: Passed) {
        let number = settings.number;
        match site(settings, &mut passed) {
            Ok(site) => self.site.set(site),
            Err(error) => control::error(&error),
        }
        control::applied(number);
    }

    /// Tells the counters that have changed.
    fn tell(&self, told: &mut serde_json::Value) {
        let mut now = stats::json();
        let ends: Vec<i64> = self.listeners.certificates().filter_map(|one| one.not_after()).collect();
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
    async fn end(&mut self, end: End, mut orders: UnboundedReceiver<Order<Settings>>) {
        self.listeners.close();
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
                    Some(Order::Ping) => control::pong(),
                    Some(Order::Settings(Ok((settings, passed)))) => self.take_logs(settings, passed),
                    Some(Order::Settings(Err(error))) => control::error(&error),
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
        self.site.get().log.iter().for_each(|log| log.finish());
    }
}

/// The site of these settings, with the descriptors of its logs.
fn site(settings: Settings, passed: &mut Passed) -> Result<Site, String> {
    let start = |log: &access_log::Settings| {
        AccessLog::start(log, passed.take(log.descriptor)?)
            .map_err(|error| format!("cannot use the access log: {error}"))
    };
    let log = settings.access_log.as_ref().map(start).transpose()?;
    if let Some(index) = settings.stderr {
        rustix::stdio::dup2_stderr(passed.take(index)?).map_err(|error| error.to_string())?;
    }
    Site::new(settings, log)
}
