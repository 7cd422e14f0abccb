//! The priority of the application's thread in a pause: what it computes then takes no processor from the requests of other workers.

use fastrack_sys::{monotonic_micros, thread_cpu_micros, LowPriority};

/// Microseconds that a pause may last longer than it computes. In the worst case, where other programs keep all processors busy, it
/// would last for seventy times as long, and all that time this worker would serve nobody.
const MOST_LOST: u64 = 50_000;

/// Pauses with the usual priority after one that was kept waiting for longer: so rarely may it happen.
const USUAL: u32 = 1_000;

/// Low where that is allowed and does no harm.
#[derive(Debug, Default)]
pub(super) struct GcPausePriority {
    /// None before the first pause.
    is_allowed: Option<bool>,
    /// While a pause lasts.
    low: Option<Low>,
    /// Pauses to come that are to have the usual one.
    usual: u32,
}

#[derive(Debug)]
struct Low {
    priority: LowPriority,
    /// When it began, and what the thread had computed, in microseconds.
    began: u64,
    computed: u64,
}

impl GcPausePriority {
    /// A pause of this thread begins.
    pub fn begin(&mut self) {
        if self.usual > 0 {
            self.usual -= 1;
        } else if *self.is_allowed.get_or_insert_with(LowPriority::is_allowed) {
            let (began, computed) = (monotonic_micros(), thread_cpu_micros());
            self.low = LowPriority::take().map(|priority| Low { priority, began, computed });
        }
    }

    /// It is over: the thread has its usual priority again.
    pub fn end(&mut self) {
        if let Some(Low { priority, began, computed }) = self.low.take() {
            drop(priority);
            let computed = thread_cpu_micros().saturating_sub(computed);
            self.learn(monotonic_micros().saturating_sub(began).saturating_sub(computed));
        }
    }

    /// A pause has waited for a processor for `lost` microseconds.
    fn learn(&mut self, lost: u64) {
        if lost > MOST_LOST {
            self.usual = USUAL;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_low(priority: &mut GcPausePriority) -> bool {
        priority.begin();
        priority.low.take().is_some()
    }

    #[test]
    fn a_pause_that_waited_for_too_long_is_followed_by_some_with_the_usual_priority() {
        let mut priority = GcPausePriority::default();
        if !LowPriority::is_allowed() {
            return;
        }
        priority.learn(MOST_LOST);
        assert!(is_low(&mut priority) && is_low(&mut priority));
        priority.learn(MOST_LOST + 1);
        assert!((0..USUAL).all(|_| !is_low(&mut priority)));
        assert!(is_low(&mut priority));
    }

    #[test]
    fn none_is_low_where_the_thread_could_not_come_back() {
        assert!(!is_low(&mut GcPausePriority { is_allowed: Some(false), ..GcPausePriority::default() }));
    }
}
