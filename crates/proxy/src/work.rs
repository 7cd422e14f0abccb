//! Requests, streams and tunnels of this process: a process that is to end waits for them, and not for connections.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// All work of this process.
#[derive(Debug, Default)]
pub struct Work {
    /// Requests in progress.
    requests: AtomicUsize,
    /// Whether the process is to end.
    is_ending: AtomicBool,
    lasting: Mutex<Table>,
}

/// What may last for hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A response without a length that goes on, such as an event stream.
    Stream,
    /// A connection that has changed its protocol, such as a WebSocket.
    Tunnel,
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// See [`Kind::Stream`].
    pub streams: usize,
    /// See [`Kind::Tunnel`].
    pub tunnels: usize,
}

#[derive(Debug, Default)]
struct Table {
    counts: Counts,
    next_number: u64,
    /// Streams and tunnels that go on, the oldest one first.
    open: BTreeMap<u64, (Kind, Arc<Order>)>,
}

/// Whether a stream or tunnel is to end, and the task that is to know.
#[derive(Debug, Default)]
struct Order(Mutex<(bool, Option<Waker>)>);

impl Work {
    /// A request has begun.
    pub fn begin_request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// A request has ended, or has become a stream or tunnel.
    pub fn end_request(&self) {
        self.requests.fetch_sub(1, Relaxed);
    }

    /// The number of requests in progress.
    pub fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Each connection ends after its next response.
    pub fn set_ending(&self) {
        self.is_ending.store(true, Relaxed);
    }

    /// See [`set_ending`](Self::set_ending).
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Relaxed)
    }

    /// The number of streams and tunnels.
    pub fn lasting(&self) -> Counts {
        self.table().counts
    }

    /// A stream or tunnel has begun. It ends with the result.
    pub fn begin_lasting(self: &Arc<Self>, kind: Kind) -> Lasting {
        let order = Arc::<Order>::default();
        let mut table = self.table();
        let number = table.next_number;
        table.next_number += 1;
        *table.counts.of(kind) += 1;
        table.open.insert(number, (kind, Arc::clone(&order)));
        drop(table);
        Lasting { work: Arc::clone(self), kind, number, order }
    }

    /// Has the oldest stream or tunnel end. Returns how many others go on; None: all were told to end.
    pub fn end_oldest(&self) -> Option<usize> {
        let mut table = self.table();
        let (_, (_, order)) = table.open.pop_first()?;
        let left = table.open.len();
        drop(table);
        order.give();
        Some(left)
    }

    /// The number of streams and tunnels that were not told to end.
    pub fn open(&self) -> usize {
        self.table().open.len()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.lasting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn of(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Stream => &mut self.streams,
            Kind::Tunnel => &mut self.tunnels,
        }
    }
}

impl Order {
    fn give(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }
}

/// A stream or tunnel of one task.
#[derive(Debug)]
pub struct Lasting {
    work: Arc<Work>,
    kind: Kind,
    number: u64,
    order: Arc<Order>,
}

impl Lasting {
    /// Ready once the stream or tunnel is to end.
    pub fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.order.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0 {
            return Poll::Ready(());
        }
        if !state.1.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.1 = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Returns once the stream or tunnel is to end.
    pub async fn end(&self) {
        poll_fn(|cx| self.poll_end(cx)).await;
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        let mut table = self.work.table();
        *table.counts.of(self.kind) -= 1;
        table.open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_to_end(one: &Lasting) -> bool {
        one.poll_end(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_oldest_ends_first_and_counts_until_it_has_ended() {
        let work = Arc::<Work>::default();
        let [first, second, third] =
            [Kind::Stream, Kind::Tunnel, Kind::Tunnel].map(|kind| work.begin_lasting(kind));
        assert_eq!(work.end_oldest(), Some(2));
        assert_eq!([&first, &second, &third].map(is_to_end), [true, false, false]);
        assert_eq!((work.lasting(), work.open()), (Counts { streams: 1, tunnels: 2 }, 2));
        drop(second);
        assert_eq!(work.end_oldest(), Some(0));
        assert!(is_to_end(&third));
        assert_eq!(work.end_oldest(), None);
        drop((first, third));
        assert_eq!(work.lasting(), Counts::default());
    }

    #[tokio::test]
    async fn a_task_that_waits_is_woken() {
        let work = Arc::<Work>::default();
        let one = work.begin_lasting(Kind::Stream);
        let (ended, told) = tokio::join!(one.end(), async { work.end_oldest() });
        assert_eq!((ended, told), ((), Some(0)));
    }
}
