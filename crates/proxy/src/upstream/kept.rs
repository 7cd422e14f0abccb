//! Connections to workers between requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, Instant};

use super::MAX_IDLE_TIME;
use crate::worker_socket::WorkerSocket;

/// Interval of looks for connections that have grown old, or that their workers have closed.
const LOOK: Duration = Duration::from_secs(5);

/// Connections with the times of their last use. The oldest one comes first.
type Connections = VecDeque<(Arc<WorkerSocket>, Instant)>;

/// The connections of one thread that have no request.
#[derive(Clone, Debug)]
pub struct Kept(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    connections: Mutex<Connections>,
    /// The most of them.
    most: usize,
    /// Whether a task looks for those of no use.
    is_watched: AtomicBool,
}

impl Kept {
    /// None, and later at most so many.
    pub fn new(most: usize) -> Self {
        Kept(Arc::new(Shared { connections: Mutex::default(), most, is_watched: AtomicBool::new(false) }))
    }

    /// A connection of at most this age that can take a request now: the newest one, so that the others grow old.
    pub fn take(&self, max_age: Duration) -> Option<Arc<WorkerSocket>> {
        let mut kept = self.connections();
        kept.retain_young(max_age);
        // The workers have closed the others, or are about to.
        std::iter::from_fn(|| kept.pop_back()).map(|(socket, _)| socket).find(|socket| socket.is_idle())
    }

    /// Keeps a connection whose response has ended.
    pub fn give_back(&self, socket: Arc<WorkerSocket>) {
        let mut kept = self.connections();
        if kept.len() < self.0.most {
            kept.push_back((socket, Instant::now()));
            if !self.0.is_watched.swap(true, Relaxed) {
                tokio::spawn(self.clone().watch());
            }
        }
    }

    /// Closes connections of no use until there are none.
    async fn watch(self) {
        loop {
            sleep(LOOK).await;
            let mut kept = self.connections();
            kept.retain_young(MAX_IDLE_TIME);
            kept.retain(|(socket, _)| socket.is_idle());
            if kept.is_empty() {
                kept.shrink_to_fit();
                self.0.is_watched.store(false, Relaxed);
                return;
            }
        }
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.0.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

trait Ages {
    /// Closes connections of this age.
    fn retain_young(&mut self, max_age: Duration);
}

impl Ages for Connections {
    fn retain_young(&mut self, max_age: Duration) {
        let now = Instant::now();
        while self.front().is_some_and(|(_, used)| now - *used >= max_age) {
            self.pop_front();
        }
    }
}
