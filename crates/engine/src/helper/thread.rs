//! The helper's thread: its start and its end.

use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{park, Builder, JoinHandle};

use fastrack_sys::{with_signals_blocked, Events};

use super::lookout::Lookout;
use super::shared::Shared;
use crate::control::Control;
use crate::watch::Watchdog;

/// How long to wait for the reactor when the process is ending, in milliseconds: the crashed thread may have it.
const LAST_WAIT: u64 = 50;

/// The thread's stack, in bytes: it calls nothing deep.
const STACK: usize = 128 * 1024;

#[derive(Debug)]
pub(crate) struct Helper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Helper {
    /// Starts the thread, with all signals blocked in it. To be called after the last fork of this process's own.
    pub fn start(shared: Arc<Shared>, control: Arc<Control>, watchdog: Watchdog) -> io::Result<Self> {
        let its = Arc::clone(&shared);
        let work = move || {
            if catch_unwind(AssertUnwindSafe(|| run(&its, &control, &watchdog))).is_err() {
                // The message is out. Connections may be in any state: the master starts another worker.
                std::process::abort();
            }
        };
        let builder = Builder::new().name("fastrack helper".into()).stack_size(STACK);
        let thread = with_signals_blocked(|| builder.spawn(work))?;
        Ok(Helper { shared, thread: Some(thread), pid: std::process::id() })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.pid != std::process::id() {
            // A fork does not copy the thread, and the timer is the parent's.
            std::mem::forget(thread);
            return;
        }
        self.shared.end();
        // It cannot have panicked: that ends the process.
        let _ = thread.join();
    }
}

fn run(shared: &Shared, control: &Control, watchdog: &Watchdog) {
    let mut events = Events::default();
    let mut lookout = Lookout::new(shared, control, watchdog);
    loop {
        let fired = shared.timer().wait(&mut events, lookout.next_look());
        if shared.has_ended() {
            return;
        }
        if shared.is_hand_off_requested() {
            // A thread has crashed, and the process ends as soon as this is done. From here on, touch nothing.
            shared.hand_off_all(LAST_WAIT);
            shared.set_handed_off();
            loop {
                park();
            }
        }
        lookout.woken(fired);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::shared::tests::shared;
    use crate::watch::WatchSettings;
    use std::time::{Duration, Instant};

    #[test]
    fn a_long_request_is_noticed_however_many_short_ones_came_before() {
        let shared = Arc::new(shared());
        let control = Arc::new(Control::new(-1, [], &WatchSettings::default()).expect("a control"));
        let helper = Helper::start(Arc::clone(&shared), control, Watchdog::new(None)).expect("a thread");
        for round in 0..40_u64 {
            for cycle in 0..200 {
                shared.set_busy();
                shared.begin(false);
                shared.begin(true);
                // As long as it takes the helper to look, more or less.
                let until =
                    Instant::now() + Duration::from_micros((round * 200 + cycle) % 1100 / 10 * (cycle % 11));
                while Instant::now() < until {}
                shared.set_idle();
            }
            shared.take_long_request();
            shared.set_busy();
            shared.begin(true);
            let start = Instant::now();
            while !shared.take_long_request() {
                assert!(start.elapsed() < Duration::from_secs(20), "round {round}");
                std::thread::yield_now();
            }
            shared.set_idle();
        }
        drop(helper);
    }
}
