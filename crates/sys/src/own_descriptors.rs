//! A thread with its own table of descriptors.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use crate::thread::spawn_thread;

/// Starts a thread that has its own table of file descriptors (CLONE_FILES, clone(2)). Only `kept` is open in the
/// table, and `/dev/null` as stdin, stdout and stderr. So a fork of another thread does not inherit the descriptors of
/// this thread, and this thread does not keep the files of other threads open. All signals are blocked in the thread.
///
/// `work` gets an error if the system has no such tables or forbids them. The table is shared in that case.
///
/// `work` must not contain a descriptor, or pass one to another thread, because the same number is another file there.
/// This includes wakers, which write to a descriptor. Rust cannot check this rule; a violation mixes up files.
pub fn spawn_with_own_descriptors(
    name: &str,
    kept: OwnedFd,
    work: impl FnOnce(io::Result<OwnedFd>) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let number = kept.as_raw_fd();
    let (report, reported) = sync_channel(1);
    let work = move || {
        let separated = backend::separate(&kept);
        let _ = report.send(separated.is_ok());
        work(separated.map(|()| kept));
    };
    let thread = spawn_thread(name, work)?;
    if reported.recv() == Ok(true) {
        // SAFETY: the number was that of `kept` in this table too. `kept` owns only the descriptor in the thread's
        // table now, so nothing owns this one.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
    Ok(thread)
}

#[cfg(not(portable))]
mod backend {
    use std::fs::File;
    use std::io;
    use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

    use nix::errno::Errno;
    use nix::libc;

    pub fn separate(kept: &OwnedFd) -> io::Result<()> {
        let kept = kept.as_raw_fd().unsigned_abs();
        // Linux before 5.9 has no close_range(2). Containers that forbid unshare(2) often allow close_range(2).
        if close_range(kept + 1, u32::MAX, libc::CLOSE_RANGE_UNSHARE).is_ok() {
            if kept > 0 {
                close_range(0, kept - 1, 0)?;
            }
        } else {
            unshare()?;
            close_listed(kept)?;
        }
        while File::options().read(true).write(true).open("/dev/null")?.into_raw_fd() < libc::STDERR_FILENO {}
        Ok(())
    }

    fn close_range(first: u32, last: u32, flags: libc::c_uint) -> io::Result<()> {
        // SAFETY: the call has no pointers. It closes descriptors only in the thread's own table, which the flag
        // creates if needed; by the contract of `spawn_with_own_descriptors` nothing in the thread owns them.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
        Ok(Errno::result(result).map(drop)?)
    }

    fn unshare() -> io::Result<()> {
        // SAFETY: unshare(2) accepts any flags, and closes nothing.
        let result = unsafe { libc::unshare(libc::CLONE_FILES) };
        Ok(Errno::result(result).map(drop)?)
    }

    fn close_listed(kept: u32) -> io::Result<()> {
        let names = std::fs::read_dir("/proc/thread-self/fd")?.flatten().map(|entry| entry.file_name());
        let open: Vec<i32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
        for fd in open.into_iter().filter(|fd| fd.unsigned_abs() != kept) {
            // SAFETY: nothing owns the descriptor in the thread's own table. The descriptor of the directory itself is
            // closed already.
            unsafe { libc::close(fd) };
        }
        Ok(())
    }
}

#[cfg(portable)]
mod backend {
    pub fn separate(_kept: &std::os::fd::OwnedFd) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

#[cfg(all(test, not(portable)))]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_thread_has_only_the_kept_descriptor_and_other_threads_do_not_have_it() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let (mut other, copy) = UnixStream::pair().expect("a pair");
        let number = copy.as_raw_fd();
        let thread = spawn_with_own_descriptors("test", theirs.into(), move |kept| {
            let kept = kept.expect("a table of its own");
            let open = |number: i32| std::fs::read_link(format!("/proc/thread-self/fd/{number}"));
            assert!(open(number).is_err(), "the other pair is closed here");
            assert_eq!(open(2).expect("stderr").to_str(), Some("/dev/null"));
            let mut kept = UnixStream::from(kept);
            kept.write_all(b"here").expect("a write");
            kept.read_to_end(&mut Vec::new()).expect("the end");
        });
        let thread = thread.expect("a thread");
        let mut text = [0; 4];
        ours.read_exact(&mut text).expect("a text");
        drop(copy);
        // The thread has no copy, so the peer sees the end.
        assert_eq!(other.read(&mut text).expect("the end"), 0);
        drop(ours);
        thread.join().expect("the thread");
    }

    #[test]
    fn the_kept_descriptor_is_closed_when_the_thread_ends() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(crate::patience::patience())).expect("a timeout");
        let thread = spawn_with_own_descriptors("test", theirs.into(), drop).expect("a thread");
        assert_eq!(ours.read(&mut [0; 4]).expect("the end"), 0);
        thread.join().expect("the thread");
    }
}
