//! State that only the leading thread uses: listeners, the schedule, the master's pipe, and the end of the run.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;

use fastrack_sys::{Events, Poller};

use super::schedule::Schedule;
use crate::accept::{Listeners, Token};
use crate::control::Control;

/// Why [`Engine::run`](crate::Engine::run) returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The worker has stopped, and all requests that had begun are finished.
    Stopped,
    /// As Stopped, but streams are left. Returned once; the next run waits for the end of the streams.
    Streaming,
    /// The worker has served the requests of its limit.
    Limit,
    /// Paused, between two requests.
    Paused,
    /// This process is a forked child. It has closed its copies of the connections.
    Closed,
    /// The application wants to return first, or the poller has failed.
    Broken,
    /// The application has closed descriptors of the engine's. Other workers have the connections, where that was possible.
    Lost,
    /// Only for threads other than the first: [`Engine::dismiss_threads`](crate::Engine::dismiss_threads) was called, or there are enough
    /// threads.
    Dismissed,
}

/// State that only the leading thread uses.
#[derive(Debug)]
pub(crate) struct Lead {
    pub listeners: Listeners,
    /// Wakes an idle worker: has the listeners, the shared queue, the worker's connections, and the master's pipe.
    pub(super) poller: Arc<Poller>,
    /// The poller's events at the last poll that did not wait.
    pub(super) polled: Events,
    pub schedule: Schedule,
    /// Number of requests still to be served in this run.
    pub left: Option<u64>,
    pub finish: Option<Finish>,
    /// Whether this worker has been idle for a while, and has memory to give back.
    pub has_rested: bool,
    /// Whether [`Finish::Streaming`] has been returned.
    pub(super) is_streaming_told: bool,
    /// Whether this worker stops because the application has closed descriptors.
    pub(super) lost: bool,
    /// The pipe at whose end the master is gone. None without a master.
    pub(super) master: Option<File>,
}

impl Lead {
    pub fn new(listeners: Listeners, poller: Arc<Poller>, master: Option<File>) -> Self {
        Lead {
            listeners,
            poller,
            polled: Events::default(),
            schedule: Schedule::default(),
            left: None,
            finish: None,
            has_rested: false,
            is_streaming_told: false,
            lost: false,
            master,
        }
    }

    /// A run of this number of requests begins.
    pub fn begin_run(&mut self, limit: Option<u64>) {
        self.left = limit;
        self.finish = None;
    }

    /// A request begins at this time.
    pub fn count_request(&mut self, now: u64) {
        self.schedule.count_request(now);
        self.left = self.left.map(|left| left.saturating_sub(1));
    }

    pub(super) fn resume_listeners(&mut self) -> io::Result<()> {
        self.listeners.resume(&self.poller)
    }

    pub(super) fn pause_listeners(&mut self) {
        self.listeners.pause(&self.poller);
    }

    /// Polls without waiting, and handles the events. Returns whether the master is gone.
    pub(super) fn poll(&mut self, control: &Control) -> (io::Result<()>, bool) {
        let result = self.poller.wait(&mut self.polled, Some(0));
        let Lead { polled, listeners, schedule, master, .. } = self;
        (result, note_events(polled, listeners, schedule, master.as_ref(), control))
    }

    /// Handles events of the leader's poller. Returns whether the master is gone.
    pub(super) fn note_events(&mut self, events: &Events, control: &Control) -> bool {
        note_events(events, &mut self.listeners, &mut self.schedule, self.master.as_ref(), control)
    }
}

fn note_events(
    events: &Events,
    listeners: &mut Listeners,
    schedule: &mut Schedule,
    master: Option<&File>,
    control: &Control,
) -> bool {
    let mut is_orphaned = false;
    for event in events.iter() {
        match Token::of(event.token) {
            // A byte wakes this thread. The end of file says that the master is gone.
            Token::Master => is_orphaned |= master.is_some_and(is_at_end),
            Token::Queue => schedule.queue_announced = true,
            Token::Connections => {}
            Token::Notice => control.clear_notice(),
            Token::Listener(index) => listeners.announce(index),
        }
    }
    is_orphaned
}

/// Empties a readable pipe. Returns whether its other end was closed.
fn is_at_end(mut pipe: &File) -> bool {
    match pipe.read(&mut [0; 16]) {
        Ok(length) => length == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    }
}
