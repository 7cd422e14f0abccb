//! A thread with a descriptor table of its own.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use crate::thread::spawn_thread;

/// Starts a thread that has its own table of file descriptors (CLONE_FILES, clone(2)), in which only `kept` is open, and
/// `/dev/null` as stdin, stdout and stderr. What it opens, no other thread's fork passes on; and what the other threads
/// have open, it does not keep open. All signals are blocked in it.
///
/// `work` gets an error where the system has no such thing, or forbids it; the table is the common one then.
///
/// `work` brings no descriptor with it, and gives none to other threads: the same number is another file there. Wakers that
/// write to a descriptor also count. Rust cannot check that; whoever gets it wrong mixes up files.
pub fn spawn_with_own_descriptors(
    name: &str,
    kept: OwnedFd,
    work: impl FnOnce(io::Result<OwnedFd>) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let number = kept.as_raw_fd();
    let (tell, told) = sync_channel(1);
    let work = move || {
        let separated = backend::separate(&kept);
        let _ = tell.send(separated.is_ok());
        work(separated.map(|()| kept));
    };
    let thread = spawn_thread(name, work)?;
    if told.recv() == Ok(true) {
        // SAFETY: it was `kept`'s also in this table, and nothing owns it here since the thread has a table of its own.
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
        // Before Linux 5.9 there is no close_range. Containers that forbid unshare(2) may well allow this.
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
        // SAFETY: it has no pointers. Whose descriptors are closed is the contract of `spawn_with_own_descriptors`: the table is
        // this thread's own, or becomes so by the flag.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
        Ok(Errno::result(result).map(drop)?)
    }

    fn unshare() -> io::Result<()> {
        // SAFETY: it takes any flags; see above for the descriptors.
        let result = unsafe { libc::unshare(libc::CLONE_FILES) };
        Ok(Errno::result(result).map(drop)?)
    }

    fn close_listed(kept: u32) -> io::Result<()> {
        let names = std::fs::read_dir("/proc/thread-self/fd")?.flatten().map(|entry| entry.file_name());
        let open: Vec<i32> = names.filter_map(|name| name.to_str()?.parse().ok()).collect();
        for fd in open.into_iter().filter(|fd| fd.unsigned_abs() != kept) {
            // SAFETY: the table is this thread's own, where nothing owns it. That of the list itself is closed by now.
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
    fn a_thread_has_only_the_descriptor_that_it_keeps_and_the_others_none_of_its_own() {
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
        // Nobody else has it: this is its end.
        assert_eq!(other.read(&mut text).expect("the end"), 0);
        drop(ours);
        thread.join().expect("the thread");
    }

    #[test]
    fn what_the_thread_keeps_is_closed_when_it_ends_for_nobody_else_has_it() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(crate::patience::patience())).expect("a timeout");
        let thread = spawn_with_own_descriptors("test", theirs.into(), drop).expect("a thread");
        assert_eq!(ours.read(&mut [0; 4]).expect("the end"), 0);
        thread.join().expect("the thread");
    }
}
