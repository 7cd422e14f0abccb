//! Which request comes as the n-th, and after what pause.
//!
//! Both depend on the seed and on n alone, never on when an answer came or on whose connection: every
//! server is asked the same requests in the same order, and so has the same work.

use std::time::Duration;

use crate::options::Kind;

/// One request that is to be made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ticket {
    /// Its number, from 0.
    pub number: u64,
    /// Which of the kinds, by index.
    pub kind: usize,
    /// The client's pause before it.
    pub pause: Duration,
}

/// Gives out the tickets.
#[derive(Debug)]
pub struct Plan {
    weights: Vec<u32>,
    seed: u64,
    next: u64,
}

impl Plan {
    /// The requests that this seed gives.
    pub fn new(kinds: &[Kind], seed: u64) -> Self {
        Self { weights: kinds.iter().map(|kind| kind.weight).collect(), seed, next: 0 }
    }

    /// The next request to be made, after an exponential pause with this mean.
    pub fn take(&mut self, mean_pause: Duration) -> Ticket {
        let number = self.next;
        self.next += 1;
        let uniform = |stream| uniform(self.seed, stream, number);
        // The inverse of the exponential distribution's function; 1 - u is never 0.
        let pause = mean_pause.mul_f64(-(1.0 - uniform(1)).ln());
        Ticket { number, kind: self.kind(uniform(0)), pause }
    }

    fn kind(&self, uniform: f64) -> usize {
        let total: u64 = self.weights.iter().map(|&weight| u64::from(weight)).sum();
        let mut left = uniform * total as f64;
        for (kind, &weight) in self.weights.iter().enumerate() {
            left -= f64::from(weight);
            if left < 0.0 {
                return kind;
            }
        }
        self.weights.len() - 1
    }
}

/// A number in [0, 1) for each seed, stream and number.
pub fn uniform(seed: u64, stream: u64, number: u64) -> f64 {
    let bits = mixed(mixed(mixed(seed).wrapping_add(stream)).wrapping_add(number));
    // The upper 53 bits are what an f64 can hold.
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// A step of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64) -> Plan {
        let kinds = [("/fast", 95), ("/slow", 5)].map(|(path, weight)| Kind { path: path.into(), weight });
        Plan::new(&kinds, seed)
    }

    fn tickets(seed: u64, count: usize) -> Vec<Ticket> {
        let mut plan = plan(seed);
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
        let longer = tickets.iter().filter(|ticket| ticket.pause > Duration::from_millis(80)).count();
        // exp(-2) of them.
        assert!((2_400..3_000).contains(&longer), "{longer}");
    }
}
