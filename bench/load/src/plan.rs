//! Which request comes as the n-th, and after what pause.
//!
//! Both depend on the seed and on n alone, never on when an answer came or on whose connection: every
//! server is asked the same requests in the same order, and so has the same work.

use std::time::Duration;

use fastrand::Rng;

/// One request that is to be made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ticket {
    /// Its number, from 0.
    pub number: u64,
    /// Which of the kinds, by index.
    pub kind: usize,
    /// The client's pause before it.
    pub pause: Duration,
    /// Which of the routers it comes by, and which of the router's idle connections: shares, from 0 to 1.
    pub router: f64,
    pub connection: f64,
}

/// Gives out the tickets.
#[derive(Debug)]
pub struct Plan {
    weights: Vec<u32>,
    random: Rng,
    next: u64,
}

impl Plan {
    /// The requests that this seed gives.
    pub fn new(weights: Vec<u32>, seed: u64) -> Self {
        Self { weights, random: Rng::with_seed(seed), next: 0 }
    }

    /// The next request to be made, after an exponential pause with this mean.
    pub fn take(&mut self, mean_pause: Duration) -> Ticket {
        let number = self.next;
        self.next += 1;
        // The inverse of the exponential distribution's function; 1 - f64() is never 0.
        let pause = mean_pause.mul_f64(-(1.0 - self.random.f64()).ln());
        Ticket { number, kind: self.kind(), pause, router: self.random.f64(), connection: self.random.f64() }
    }

    fn kind(&mut self) -> usize {
        let total: u32 = self.weights.iter().sum();
        let mut left = self.random.u32(..total);
        let taken = |&weight: &u32| {
            let taken = left < weight;
            left = left.saturating_sub(weight);
            taken
        };
        self.weights.iter().position(taken).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(seed: u64, count: usize) -> Vec<Ticket> {
        let mut plan = Plan::new(vec![95, 5], seed);
        (0..count).map(|_| plan.take(Duration::from_millis(40))).collect()
    }

    #[test]
    fn is_the_same_for_the_same_seed_only() {
        assert_eq!(tickets(7, 100), tickets(7, 100));
        assert_ne!(tickets(7, 100), tickets(8, 100));
    }

    #[test]
    fn keeps_to_the_weights_and_to_the_mean_pause() {
        let tickets = tickets(1, 20_000);
        let slow = tickets.iter().filter(|ticket| ticket.kind == 1).count();
        // 1000 with a standard deviation of 31; the mean of 40 ms has one of 0.28.
        assert!((850..1150).contains(&slow), "{slow}");
        let mean = tickets.iter().map(|ticket| ticket.pause.as_secs_f64()).sum::<f64>() / 20_000.0;
        assert!((0.0385..0.0415).contains(&mean), "{mean}");
    }
}
