//! A client's request, until its last part has been sent.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use super::Connection;
use crate::shares::Part;
use crate::work::{Kind, Lasting};

/// A request in progress, or the stream or tunnel that it has become.
#[derive(Debug)]
pub struct InFlight {
    connection: Arc<Connection>,
    is_lasting: bool,
    part: Option<Arc<Part>>,
}

impl InFlight {
    /// A request that its connection has counted.
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        InFlight { connection, is_lasting: false, part: None }
    }

    /// The connection of its client.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Keeps the client's part of something scarce as long as the request lasts.
    pub fn keep(&mut self, part: Part) {
        self.part = Some(Arc::new(part));
    }

    /// The client's connection becomes a tunnel: bytes come after the server's end, too.
    pub fn becomes_tunnel(&self) {
        self.connection.is_tunnel.store(true, Relaxed);
    }

    /// The request becomes a stream or tunnel, which is no work that a process finishes before it ends.
    pub fn begin_lasting(&mut self, kind: Kind) -> Lasting {
        let work = &self.connection.place.work;
        if !std::mem::replace(&mut self.is_lasting, true) {
            work.end_request();
        }
        work.begin_lasting(kind)
    }
}

impl Clone for InFlight {
    /// The request lasts until all copies are gone.
    fn clone(&self) -> Self {
        self.connection.requests.fetch_add(1, Relaxed);
        if !self.is_lasting {
            self.connection.place.work.begin_request();
        }
        InFlight {
            connection: Arc::clone(&self.connection),
            is_lasting: self.is_lasting,
            part: self.part.clone(),
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.connection.wait_from_now();
        if self.connection.requests.fetch_sub(1, Relaxed) == 1 {
            *self.connection.worker.lock().unwrap_or_else(PoisonError::into_inner) = None;
            self.connection.notes.wake();
        }
        if !self.is_lasting {
            self.connection.place.work.end_request();
        }
    }
}
