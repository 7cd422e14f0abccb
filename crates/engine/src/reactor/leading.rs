//! What the thread that leads does besides answering requests: it notes what has woken it, and sees when the loop is over.

use std::io;

use fastrack_sys::Events;

use super::lead::Finish;
use super::Reactor;
use crate::accept::Client;
use crate::settings::SHORTAGE_PAUSE;

const LOST: &str =
    "the app has closed sockets or other descriptors of the server: this worker ends and is replaced";

impl Reactor {
    /// Whether it was told to stop, and has not [begun](Self::end_accepting) to.
    pub fn is_stop_due(&self) -> bool {
        let is_done = self.lead.finish.is_some() || self.lead.left == Some(0);
        self.control.is_stopping() && !self.is_stopping() && !is_done
    }

    pub fn finished(&mut self) -> Option<Finish> {
        if self.lead.finish.is_some() {
            return self.lead.finish;
        }
        if self.lead.left == Some(0) {
            return Some(Finish::Limit);
        }
        if self.is_stopping() && self.is_stopped() && self.is_rest_done() {
            return Some(if self.lead.lost { Finish::Lost } else { Finish::Stopped });
        }
        self.control.take_pause().then_some(Finish::Paused)
    }

    /// Whether no other thread has a request, which may leave something to send.
    pub(super) fn is_rest_done(&self) -> bool {
        self.threads.is_idle()
    }

    /// Stops accepting. Only clients that are here already are waited for, each for a while.
    pub fn end_accepting(&mut self) {
        if self.control.is_draining() {
            // Nobody else will accept them: they would be cut off with the last listener.
            self.lead.listeners.accept_backlog().into_iter().for_each(|client| self.admit(client));
        }
        // The kernel has woken only this worker for those (EPOLLEXCLUSIVE, epoll_ctl(2)). One for each listener.
        while self.lead.listeners.is_client_announced() {
            let Ok(Some(client)) = self.lead.listeners.accept() else { break };
            self.admit(client);
        }
        self.lead.listeners.close(&self.lead.poller, &self.control);
        if let Some(queue_handle) = self.queue_handle().filter(|_| self.lead.is_orphaned) {
            queue_handle.end_master();
        }
        self.begin_stop();
        let Some(queue_handle) = self.queue_handle() else { return };
        // It fails only if the queue is not registered.
        let _ = self.lead.poller.remove(queue_handle.receiver());
        if !queue_handle.has_successor() {
            self.drain_queue();
        } else if !queue_handle.is_another_serving() {
            self.answer_queued();
        } else if self.lead.schedule.queue_announced {
            // As with a client that was announced to this worker alone.
            self.pass_on_queued();
        }
        self.lead.schedule.queue_announced = false;
    }

    /// The poller has failed.
    pub fn fail(&mut self, error: &io::Error) {
        if fastrack_sys::is_lost_fd(error) {
            self.stop_lost();
            self.hand_off_all();
            self.lead.finish = Some(Finish::Lost);
        } else if fastrack_sys::is_shortage(error) {
            // There will be memory again, and the connections are here.
            self.warn_of_shortage("wait", error);
            fastrack_sys::sleep(SHORTAGE_PAUSE);
        } else {
            self.warn(format!("cannot wait: {error}"));
            self.lead.finish = Some(Finish::Broken);
        }
    }

    /// The application has closed descriptors that are the engine's, all sockets for example. It stops: without them it
    /// would only look as if it served.
    pub(super) fn stop_lost(&mut self) {
        if !std::mem::replace(&mut self.lead.lost, true) {
            self.warn(LOST.into());
        }
        self.control.stop();
    }
    fn admit(&mut self, client: Client) {
        let (connection, step) = self.greet(client);
        let next = self.enter(connection, step);
        self.queue_if_ready(next);
    }

    /// Polls the listeners and the queue, without waiting.
    pub(super) fn poll_listeners(&mut self) -> io::Result<()> {
        let result = self.lead.poller.wait(&mut self.lead.polled, Some(0));
        let is_orphaned = self.lead.announce_polled(&self.control);
        self.note_orphaned(is_orphaned);
        result
    }

    /// Takes note of what has ended a wait.
    pub fn announce(&mut self, events: &Events) {
        let is_orphaned = self.lead.announce(events, &self.control);
        self.note_orphaned(is_orphaned);
    }

    /// If the master is gone its other workers also end: from now on this is like the end of the whole server.
    #[inline]
    fn note_orphaned(&mut self, is_orphaned: bool) {
        if !is_orphaned {
            return;
        }
        self.lead.is_orphaned = true;
        self.control.drain();
        // It would be reported for ever.
        if let Some(master) = self.lead.master.take() {
            let _ = self.lead.poller.remove(&master);
        }
        self.lead.finish = self.lead.finish.or(Some(Finish::Orphaned));
    }
}
