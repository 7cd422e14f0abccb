//! A guess at whether somebody waits in the backlog.
//!
//! An accept4(2) that finds nobody is dear: Linux makes the new socket before
//! it looks (3.4 microseconds, a fifth of a whole request), where asking
//! the poller takes 0.13. So the poller is asked first, except
//! while clients have kept coming: then a request takes no call beyond its own.

/// Clients that must have been there at once, one after another, for the next one to be taken for granted.
const ROW: u32 = 32;

#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// The poller has said that somebody waits.
    announced: bool,
    /// Clients in a row for which nobody had to wait.
    row: u32,
}

impl Backlog {
    /// Whether to accept without asking the poller first.
    pub fn is_likely(&self) -> bool {
        self.announced || self.row >= ROW
    }

    /// Whether the poller has said so, and nobody has looked since.
    pub fn is_announced(&self) -> bool {
        self.announced
    }

    /// The poller says that somebody waits.
    pub fn announce(&mut self) {
        self.announced = true;
    }

    /// A client was accepted.
    pub fn found(&mut self) {
        self.announced = false;
        self.row = self.row.saturating_add(1);
    }

    /// Nobody was there, whatever was announced; or the worker had to wait.
    pub fn missed(&mut self) {
        *self = Backlog::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_taken_for_granted_only_after_a_row_of_them() {
        let mut backlog = Backlog::default();
        for _ in 0..ROW {
            assert!(!backlog.is_likely());
            backlog.announce();
            assert!(backlog.is_likely());
            backlog.found();
        }
        assert!(backlog.is_likely());
        backlog.missed();
        assert!(!backlog.is_likely());
    }
}
