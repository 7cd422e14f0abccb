//! The engine's `admission` with an application's lock that is always free, or always in use.

use std::sync::atomic::{AtomicBool, Ordering};

use loom::sync::Arc;

use crate::clock::Clock;
use crate::kernel::Timer;

#[allow(dead_code)]
#[path = "../../src/admission/app_threads.rs"]
mod app_threads;
#[allow(dead_code)]
#[path = "../../src/admission/baton.rs"]
mod baton;
#[allow(dead_code)]
#[path = "../../src/admission/room.rs"]
mod room;
#[allow(dead_code)]
#[path = "../../src/admission/streams.rs"]
mod streams;

pub(crate) use app_threads::{AppThreads, Turn};
pub(crate) use baton::{is_busy, Baton, Threads, MAIN};
pub(crate) use room::Room;
use streams::Streams;

static IS_LOCK_USED: AtomicBool = AtomicBool::new(false);

/// Says whether the application's lock is in use from now on.
pub fn set_lock_used(is_used: bool) {
    IS_LOCK_USED.store(is_used, Ordering::SeqCst);
}

#[derive(Debug, Default)]
pub struct Activity;

impl Activity {
    pub fn new(_usage: Arc<GvlUsage>) -> Self {
        Activity
    }

    pub fn begin_request(&self, _clock: &impl Clock) {}

    pub fn end_request(&self, _clock: &impl Clock) {}

    pub fn begin_stream(&self, _clock: &impl Clock) {}

    pub fn is_in_request(&self) -> bool {
        false
    }

    pub fn is_stream(&self) -> bool {
        false
    }

    pub fn is_runnable(&self) -> bool {
        false
    }
}

#[derive(Debug, Default)]
pub struct GvlUsage(());

impl GvlUsage {
    pub fn reports_gvl_events(&self) -> bool {
        true
    }

    pub fn has_credit(&self, _now: u64) -> bool {
        !IS_LOCK_USED.load(Ordering::SeqCst)
    }

    pub fn time_until_credit(&self, _now: u64) -> Option<u64> {
        self.has_credit(0).then_some(0)
    }

    pub fn timer(&self) -> Option<&Timer> {
        None
    }

    pub fn set_awaited(&self, _is_awaited: bool) -> bool {
        false
    }
}
