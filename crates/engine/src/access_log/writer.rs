//! Writes the access log, in a thread of its own.

use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::line::LONGEST;
use crate::scoreboard::{Count, Counters};
use fastrack_sys::{borrow_fd, is_regular, spawn_thread, write_once};

#[derive(Debug, Default)]
struct Desk {
    /// Lines to be written, and how many; the number stays while they are being written.
    lines: Vec<u8>,
    count: u64,
    /// The thread writes.
    is_writing: bool,
    /// An empty buffer, to be used again.
    spare: Vec<u8>,
    /// Lines that could not be written, and why.
    failed: u64,
    error: Option<io::ErrorKind>,
    over: bool,
}

#[derive(Debug, Default)]
struct Shared {
    desk: Mutex<Desk>,
    /// There is something to write, or it has been written.
    changed: Condvar,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Whoever has it locked does nothing that could fail.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, desk: MutexGuard<'a, Desk>) -> MutexGuard<'a, Desk> {
        self.changed.wait(desk).unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    // Never joined: it may wait for a disk for ever.
    _thread: JoinHandle<()>,
    pid: u32,
}

impl Writer {
    /// Starts the thread, with all signals blocked in it. To be called after the last fork of this process's own.
    /// The thread counts the lines that it has written.
    pub fn start(fd: RawFd, counters: Counters) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let its = Arc::clone(&shared);
        let thread = spawn_thread("fastrack log", move || run(&its, fd, &counters))?;
        Ok(Writer { shared, _thread: thread, pid: std::process::id() })
    }

    /// Takes the lines, and leaves an empty buffer. False if the last ones are still being written.
    pub fn give(&mut self, lines: &mut Vec<u8>, count: u64) -> bool {
        // A fork may have copied the lock while the thread had it, and has not copied the thread.
        if self.pid != std::process::id() {
            return false;
        }
        let Ok(mut desk) = self.shared.desk.try_lock() else { return false };
        if desk.is_writing || !desk.lines.is_empty() {
            return false;
        }
        let spare = std::mem::take(&mut desk.spare);
        desk.lines = std::mem::replace(lines, spare);
        desk.count = count;
        drop(desk);
        self.shared.changed.notify_all();
        true
    }

    /// Whether all has been written.
    pub fn is_done(&self) -> bool {
        let desk = self.shared.desk();
        !desk.is_writing && desk.lines.is_empty()
    }

    /// Waits for `millis` milliseconds, or until something has been written.
    pub fn wait(&self, millis: u64) {
        let time = std::time::Duration::from_millis(millis);
        drop(self.shared.changed.wait_timeout(self.shared.desk(), time));
    }

    /// How many lines the thread has yet to write, or is at. It counts them no more, whatever becomes of them.
    pub fn give_up(&self) -> u64 {
        std::mem::take(&mut self.shared.desk().count)
    }

    /// How many lines could not be written since the last call of this.
    pub fn take_failed(&self) -> u64 {
        std::mem::take(&mut self.shared.desk().failed)
    }

    /// Why lines could not be written.
    pub fn error(&self) -> Option<io::ErrorKind> {
        self.shared.desk().error.take()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            self.shared.desk().over = true;
            self.shared.changed.notify_all();
        }
    }
}

fn run(shared: &Shared, fd: RawFd, counters: &Counters) {
    let mut desk = shared.desk();
    let mut is_torn = false;
    loop {
        if !desk.lines.is_empty() {
            desk.is_writing = true;
            let mut lines = std::mem::take(&mut desk.lines);
            drop(desk);
            let failure = write(&lines, fd, &mut is_torn);
            lines.clear();
            desk = shared.desk();
            desk.is_writing = false;
            desk.spare = lines;
            let count = std::mem::take(&mut desk.count);
            let failed = failure.map_or(0, |(failed, _)| failed.min(count));
            counters.add(Count::LogLines, count - failed);
            desk.failed += failed;
            desk.error = failure.map(|(_, error)| error).or(desk.error);
            shared.changed.notify_all();
        } else if desk.over {
            return;
        } else {
            desk = shared.wait(desk);
        }
    }
}

/// Writes whole lines, each part of them with one write(2): those of several workers do not mix. Returns how many could not
/// be written, and why. A full disk may take a part of a line: it ends before the next one.
fn write(lines: &[u8], fd: RawFd, is_torn: &mut bool) -> Option<(u64, io::ErrorKind)> {
    // SAFETY: it stays open until the process ends, as the settings demand: this thread may outlive the engine.
    let file = match unsafe { borrow_fd(fd) } {
        Ok(file) => file,
        Err(error) => return Some((count(lines), error.kind())),
    };
    let is_file = is_regular(file);
    if *is_torn {
        *is_torn = write_once(file, b"\n").is_err();
    }
    let mut rest = lines;
    while !rest.is_empty() {
        let part = if is_file { rest.len() } else { whole_lines(rest) };
        match write_once(file, &rest[..part]) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The reader of a pipe may be slow: this thread waits.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let _ = fastrack_sys::wait_writable(file, 1_000);
            }
            Err(error) => {
                *is_torn |= lines.len() > rest.len() && lines[lines.len() - rest.len() - 1] != b'\n';
                return Some((count(rest), error.kind()));
            }
        }
    }
    None
}

/// As many lines from the beginning as a pipe takes as a whole. No line is longer.
fn whole_lines(lines: &[u8]) -> usize {
    let most = lines.len().min(LONGEST);
    lines[..most].iter().rposition(|byte| *byte == b'\n').map_or(most, |at| at + 1)
}

fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|byte| **byte == b'\n').count() as u64
}
