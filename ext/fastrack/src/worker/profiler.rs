//! Samples the threads that have requests, for `fastrack profile`. Nothing of this runs, and no memory is used, unless a profile was asked
//! for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastrack_engine::{Control, GvlEvent};
use fastrack_sys::spawn_thread;

use crate::worker::stack_capture;

/// 99 samples a second, which no timer of an app keeps step with.
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / 99);

/// Time in which a thread says where it is, in milliseconds.
const FRAMES_TIME: u64 = 50;

/// Time after which a profile ends that nobody has ended.
const LONGEST: Duration = Duration::from_secs(310);

/// Most different stacks. Later ones count as one.
const MAX_STACKS: usize = 2_000;

/// How often each stack was seen. A stack is the thread's state, if that is known, and its frames, the innermost first.
type Stacks = HashMap<(Option<GvlEvent>, Vec<u8>), u64>;

/// The profile in progress, if there is one.
#[derive(Debug, Default)]
pub(super) struct Profiler(Mutex<Option<Running>>);

#[derive(Debug)]
struct Running {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Stacks>,
}

impl Profiler {
    /// Begins a profile. False if there is one, or if the system has no thread to give.
    pub fn begin(&self, control: &Arc<Control>) -> bool {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_some() {
            return false;
        }
        let ends = Arc::new(AtomicBool::new(false));
        let (control, its) = (Arc::clone(control), Arc::clone(&ends));
        let thread = spawn_thread("fastrack profile", move || sample(&control, &its));
        *running = thread.ok().map(|thread| Running { ends, thread });
        running.is_some()
    }

    /// Ends the profile, and returns how often each stack was seen. None if there is no profile.
    pub fn end(&self) -> Option<Vec<(u64, Option<&'static str>, String)>> {
        let Running { ends, thread } = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        ends.store(true, Ordering::SeqCst);
        thread.thread().unpark();
        let stacks = thread.join().unwrap_or_default();
        let text = |((gvl, frames), count): ((Option<GvlEvent>, Vec<u8>), u64)| {
            (count, gvl.map(state), String::from_utf8_lossy(&frames).into_owned())
        };
        Some(stacks.into_iter().map(text).collect())
    }
}

fn state(gvl: GvlEvent) -> &'static str {
    match gvl {
        GvlEvent::Resumed => "(runs)",
        GvlEvent::Ready => "(waits for the GVL)",
        GvlEvent::Suspended => "(off the GVL)",
    }
}

fn sample(control: &Control, ends: &AtomicBool) -> Stacks {
    let (mut stacks, begun) = (Stacks::new(), Instant::now());
    let mut next = begun;
    while !ends.load(Ordering::SeqCst) && begun.elapsed() < LONGEST {
        for (thread, gvl) in control.threads_with_requests() {
            let Some(frames) = stack_capture::of(thread, FRAMES_TIME) else { continue };
            let is_full = stacks.len() >= MAX_STACKS;
            let key = (gvl, frames);
            match stacks.get_mut(&key) {
                Some(count) => *count += 1,
                None if is_full => *stacks.entry((None, Vec::new())).or_default() += 1,
                None => drop(stacks.insert(key, 1)),
            }
        }
        // Samples that were missed are not made up for.
        next = (next + INTERVAL).max(Instant::now());
        std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
    }
    stacks
}
