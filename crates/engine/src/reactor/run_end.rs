//! The end of a run of the engine, and how a stopping worker releases its listeners and the shared queue.

use std::io;

use super::lead::Finish;
use super::Reactor;
use crate::accept::Client;
use crate::settings::SHORTAGE_PAUSE;

const LOST_DESCRIPTORS: &str =
    "the app has closed sockets or other descriptors of the server: this worker ends and is replaced";

impl Reactor {
    /// Whether the worker was told to stop, and has not [begun](Self::end_accepting) to stop.
    pub fn is_stop_due(&self) -> bool {
        let is_done = self.lead.finish.is_some() || self.lead.left == Some(0);
        self.control.is_stopping() && !self.is_stopping() && !is_done
    }

    /// Whether the master is gone, and this worker has not [begun](Self::end_accepting) to stop. The helper does not leave that to the
    /// leader, whose request may last: a new server could not have the address.
    pub fn is_orphan_accepting(&self) -> bool {
        self.control.is_orphan() && !self.is_stopping()
    }

    /// Why the run is over; None if it goes on.
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
        if self.is_stopping() && self.has_only_streams() {
            self.lead.is_streaming_told = true;
            return Some(Finish::Streaming);
        }
        self.control.take_pause().then_some(Finish::Paused)
    }

    /// Whether no other thread has a request or stream, which may leave something to send.
    pub(super) fn is_rest_done(&self) -> bool {
        self.threads.is_idle() && self.threads.streams.is_empty()
    }

    /// Whether only streams are left, and [`Finish::Streaming`] has not been returned yet.
    pub(super) fn has_only_streams(&self) -> bool {
        let is_told = self.lead.is_streaming_told || self.lead.lost;
        let is_any = !is_told && !self.threads.streams.is_empty();
        is_any && self.threads.is_idle() && self.has_nothing_here()
    }

    /// Stops accepting. From then on the worker waits only for clients that it has.
    pub fn end_accepting(&mut self) {
        if self.control.is_draining() {
            // No other worker will accept the clients in the backlog. They would be cut off with the last listener.
            self.lead.listeners.accept_backlog().into_iter().for_each(|client| self.accept_and_queue(client));
        }
        // The kernel has woken only this worker for the first client of each listener (EPOLLEXCLUSIVE, epoll_ctl(2)).
        while self.lead.listeners.is_client_announced() {
            let Ok(Some(client)) = self.lead.listeners.accept() else { break };
            self.accept_and_queue(client);
        }
        self.lead.listeners.close(&self.lead.poller, &self.control);
        if let Some(queue_handle) = self.queue_handle().filter(|_| self.control.is_orphan()) {
            queue_handle.end_master();
        }
        self.begin_stop();
        let Some(queue_handle) = self.queue_handle() else { return };
        // The removal fails only if the queue is not registered.
        let _ = self.lead.poller.remove(queue_handle.receiver());
        if !queue_handle.has_successor() {
            self.take_all_over();
        } else if !queue_handle.is_another_serving() {
            self.take_each_over();
        } else if self.lead.schedule.queue_announced {
            // The kernel may have woken only this worker for a connection in the queue.
            self.take_one_over();
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
            // Memory will be free again, and the connections are here.
            self.logging.warn_of_failure("wait", error);
            fastrack_sys::sleep(SHORTAGE_PAUSE);
        } else {
            self.warn(format!("cannot wait: {error}"));
            self.lead.finish = Some(Finish::Broken);
        }
    }

    /// The application has closed descriptors of the engine's, for example all sockets. The worker stops: without the descriptors it would
    /// only seem to serve.
    pub(super) fn stop_lost(&mut self) {
        if !std::mem::replace(&mut self.lead.lost, true) {
            self.warn(LOST_DESCRIPTORS.into());
        }
        self.control.stop();
    }

    /// Accepts a client while stopping. This worker serves the client's request.
    fn accept_and_queue(&mut self, client: Client) {
        let (connection, step) = self.read_first(client);
        let next = self.settle_new(connection, step);
        self.queue_if_ready(next);
    }
}
