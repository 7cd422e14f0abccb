//! What stands for the load of the machine's processors.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_HIGH: AtomicBool = AtomicBool::new(false);

/// From now on all processors are busy, or not.
pub fn set_high(is_high: bool) {
    IS_HIGH.store(is_high, Ordering::SeqCst);
}

#[derive(Debug)]
pub struct Load;

impl Load {
    pub fn new(_is_wanted: bool) -> Self {
        Load
    }

    pub fn inherited_fds(&self) -> std::iter::Empty<i32> {
        std::iter::empty()
    }

    pub fn idle_processors(&self) -> usize {
        usize::from(!self.is_high())
    }

    pub fn is_busy(&self) -> bool {
        self.is_high()
    }

    pub fn is_high(&self) -> bool {
        IS_HIGH.load(Ordering::SeqCst)
    }
}
