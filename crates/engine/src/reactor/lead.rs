//! What only the thread needs that leads: new clients, the shared queue, the master's end, and what ends the loop.

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
    /// Stopped; all that had begun is finished.
    Stopped,
    /// It has served as many requests as it was to.
    Limit,
    /// Paused, between two requests.
    Paused,
    /// The master is gone. The next run can [stop](crate::Control::stop) as with the whole server.
    Orphaned,
    /// This is a forked child, which has let go of the connections.
    Closed,
    /// The application wants to return first, or the poller has failed.
    Broken,
    /// The application has closed descriptors of the engine's. Other workers have the connections, where that was possible.
    Lost,
    /// [`Engine::dismiss_threads`](crate::Engine::dismiss_threads) was called, or there are enough threads: only for those besides the
    /// first.
    Dismissed,
}

/// What only the thread has that leads.
#[derive(Debug)]
pub(crate) struct Lead {
    pub listeners: Listeners,
    /// Wakes an idle worker: listeners, the shared queue, its own connections, the master's end.
    pub(super) poller: Arc<Poller>,
    /// Of the last look at that, without a wait.
    pub(super) polled: Events,
    pub schedule: Schedule,
    /// Requests still to be served in this run.
    pub left: Option<u64>,
    pub finish: Option<Finish>,
    /// Idle for a while, with memory to give back.
    pub has_rested: bool,
    /// Stopped because the application has closed descriptors.
    pub(super) lost: bool,
    /// A pipe, until it is at its end, or nothing.
    pub(super) master: Option<File>,
    pub(super) is_orphaned: bool,
}

impl Lead {
    pub fn new(listeners: Listeners, poller: Arc<Poller>, master: Option<File>) -> Self {
        Lead {
            listeners,
            poller,
            polled: Events::default(),
            schedule: Schedule::new(),
            left: None,
            finish: None,
            has_rested: false,
            lost: false,
            master,
            is_orphaned: false,
        }
    }

    /// A run begins, of that many requests.
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
    /// Takes note of events. Whether the master is gone.
    pub(super) fn announce(&mut self, events: &Events, control: &Control) -> bool {
        let Lead { listeners, schedule, master, .. } = self;
        note_events(events, listeners, schedule, master.as_ref(), control)
    }

    /// The same of the last poll.
    pub(super) fn announce_polled(&mut self, control: &Control) -> bool {
        let Lead { polled, listeners, schedule, master, .. } = self;
        note_events(polled, listeners, schedule, master.as_ref(), control)
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
            // A byte has woken this thread; the end of file says that the master is gone.
            Token::Master => is_orphaned |= master.is_some_and(is_at_end),
            Token::Queue => schedule.queue_announced = true,
            Token::Connections => {}
            Token::Notice => control.clear_notice(),
            Token::Listener(index) => listeners.announce(index),
        }
    }
    is_orphaned
}

/// Empties a pipe that is readable, and says whether its other end was closed.
fn is_at_end(mut pipe: &File) -> bool {
    match pipe.read(&mut [0; 16]) {
        Ok(length) => length == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    }
}
