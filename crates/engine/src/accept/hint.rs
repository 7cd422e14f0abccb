//! Whether to call accept4(2) without asking the poller first.
//!
//! An accept4(2) without a client is expensive: Linux allocates the new socket before it looks at the backlog (3.4
//! microseconds, a fifth of a whole request). Asking the poller takes 0.13. So the poller is asked first, except while
//! clients arrive without a break.

/// Successful accepts in a row after which the next accept4(2) does not wait for the poller. Bench: workload
/// `hello-tcp`.
const ACCEPTS_IN_A_ROW: u32 = 32;

#[derive(Debug, Default)]
pub(super) struct AcceptHint {
    /// The poller has reported a client.
    announced: bool,
    streak: u32,
}

impl AcceptHint {
    /// Whether to accept without asking the poller first.
    pub fn is_worth_trying(&self) -> bool {
        self.announced || self.streak >= ACCEPTS_IN_A_ROW
    }

    pub fn is_announced(&self) -> bool {
        self.announced
    }

    pub fn announce(&mut self) {
        self.announced = true;
    }

    pub fn accepted(&mut self) {
        self.announced = false;
        self.streak = self.streak.saturating_add(1);
    }

    pub fn found_nobody(&mut self) {
        *self = AcceptHint::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_is_called_without_the_poller_only_after_many_clients_in_a_row() {
        let mut hint = AcceptHint::default();
        for _ in 0..ACCEPTS_IN_A_ROW {
            assert!(!hint.is_worth_trying());
            hint.announce();
            assert!(hint.is_worth_trying());
            hint.accepted();
        }
        assert!(hint.is_worth_trying());
        hint.found_nobody();
        assert!(!hint.is_worth_trying());
    }
}
