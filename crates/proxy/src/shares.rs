//! Something scarce that clients share, such as connections to workers.
//!
//! Beyond its first one, a client may hold a quarter of what is left for all others. So a lone client gets a fifth, each next one a fifth of
//! the rest, and eight of them leave a sixth, however long they hold it (dynamic thresholds, Choudhury and Hahne 1998).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Of what is free, a client may hold one part in so many.
const PARTS: usize = 4;

/// One client's part. Changes only while the shares are locked.
#[derive(Debug, Default)]
pub struct Share(AtomicUsize);

impl Share {
    fn held(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// What is shared.
#[derive(Debug)]
pub struct Shares {
    state: Mutex<State>,
    amount: usize,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// The least that was free since the last look.
    least: usize,
    /// Clients that wait for one each, the first one first.
    waiting: VecDeque<(Arc<Share>, oneshot::Sender<Part>)>,
}

/// What a client holds, until it is dropped.
#[derive(Debug)]
pub struct Part {
    shares: Arc<Shares>,
    share: Arc<Share>,
    amount: usize,
}

impl Shares {
    /// So much to be shared.
    pub fn new(amount: usize) -> Arc<Self> {
        Arc::new(Shares {
            state: Mutex::new(State { free: amount, least: amount, waiting: VecDeque::new() }),
            amount,
        })
    }

    /// So much is held by all clients together now, and was at most since the last call.
    pub fn held(&self) -> (usize, usize) {
        let mut state = self.state();
        let (free, least) = (state.free, state.least);
        state.least = free;
        (self.amount - free, self.amount - least)
    }

    /// So much is shared.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// So much for this client; None: the client would hold too much.
    pub fn try_take(self: &Arc<Self>, share: &Arc<Share>, amount: usize) -> Option<Part> {
        self.try_take_from(&mut self.state(), share, amount)
    }

    /// One for this client, as soon as the client may hold it. Of those that wait, the client that holds the fewest is first.
    pub async fn take(self: &Arc<Self>, share: &Arc<Share>) -> Option<Part> {
        let receiver = {
            let mut state = self.state();
            if let Some(part) = self.try_take_from(&mut state, share, 1) {
                return Some(part);
            }
            let (sender, receiver) = oneshot::channel();
            state.waiting.push_back((Arc::clone(share), sender));
            receiver
        };
        receiver.await.ok()
    }

    fn try_take_from(self: &Arc<Self>, state: &mut State, share: &Arc<Share>, amount: usize) -> Option<Part> {
        let held = share.held();
        let needed = if held == 0 { amount } else { (held + amount).saturating_mul(PARTS) };
        if needed > state.free {
            return None;
        }
        state.free -= amount;
        state.least = state.least.min(state.free);
        share.0.fetch_add(amount, Relaxed);
        Some(Part { shares: Arc::clone(self), share: Arc::clone(share), amount })
    }

    /// A part for the next client that waits, and where to send it.
    fn next(self: &Arc<Self>) -> Option<(Part, oneshot::Sender<Part>)> {
        let mut state = self.state();
        state.waiting.retain(|(_, sender)| !sender.is_closed());
        let next = (0..state.waiting.len()).min_by_key(|index| state.waiting[*index].0.held())?;
        let share = Arc::clone(&state.waiting[next].0);
        let part = self.try_take_from(&mut state, &share, 1)?;
        state.waiting.remove(next).map(|(_, sender)| (part, sender))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let is_awaited = {
            let mut state = self.shares.state();
            state.free += self.amount;
            self.share.0.fetch_sub(self.amount, Relaxed);
            !state.waiting.is_empty()
        };
        // Unlocked: a client that has left in this moment drops its part at once.
        while let Some((part, sender)) = is_awaited.then(|| self.shares.next()).flatten() {
            let _ = sender.send(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Arc<Share> {
        Arc::default()
    }

    fn take_all(shares: &Arc<Shares>, client: &Arc<Share>) -> Vec<Part> {
        std::iter::from_fn(|| shares.try_take(client, 1)).collect()
    }

    #[test]
    fn a_client_holds_a_quarter_of_what_it_leaves_for_others() {
        let shares = Shares::new(100);
        let clients: Vec<_> = (0..8).map(|_| take_all(&shares, &client())).collect();
        let held: Vec<_> = clients.iter().map(Vec::len).collect();
        assert_eq!(held, [20, 16, 13, 10, 8, 6, 5, 4]);
        drop(clients);
        assert_eq!(shares.state().free, 100);
    }

    #[test]
    fn clients_with_one_request_each_use_all() {
        let shares = Shares::new(10);
        let parts: Vec<_> = (0..10).filter_map(|_| shares.try_take(&client(), 1)).collect();
        assert_eq!(parts.len(), 10);
        assert!(shares.try_take(&client(), 1).is_none());
    }

    #[tokio::test]
    async fn of_those_that_wait_the_client_that_holds_the_fewest_is_first() {
        let shares = Shares::new(9);
        let [greedy, modest] = [client(), client()];
        let wait = |client: &Arc<Share>| {
            let (shares, client) = (Arc::clone(&shares), Arc::clone(client));
            tokio::spawn(async move { shares.take(&client).await })
        };
        let mut held: Vec<_> = (0..8).filter_map(|_| shares.try_take(&client(), 1)).collect();
        let own = shares.try_take(&greedy, 1);
        let (greedys, gone, modests) = (wait(&greedy), wait(&modest), wait(&modest));
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.is_err());
        held.pop();
        let part = modests.await.expect("no panic").expect("a part");
        held.truncate(1);
        tokio::task::yield_now().await;
        assert!(!greedys.is_finished(), "it would leave too little for others");
        drop((held, part));
        assert!(greedys.await.expect("no panic").is_some());
        drop(own);
        assert_eq!(shares.state().free, 9);
    }
}
