//! Sending files without reading them into memory first.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

#[cfg(not(portable))]
use crate::signals::without_sigpipe;

/// The size of one copy, in bytes, for a file that sendfile(2) cannot send. The buffer is on the stack.
const COPY_SIZE: usize = 16 * 1024;

/// Opens a regular file for reading. Returns the file and its length in bytes; None for other files, because a read
/// from a pipe could block. None also for a file without blocks, because the kernel generates such a file when it is
/// read, with another length (proc(5), sysfs(5)).
pub fn open_regular(path: &Path) -> io::Result<Option<(File, u64)>> {
    // Without the flag, opening a FIFO waits for a writer (fifo(7)). Regular files ignore the flag.
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let data = file.metadata()?;
    Ok((data.is_file() && data.blocks() > 0).then_some((file, data.len())))
}

/// Sends up to `most` bytes of a file from `offset` on, as many as the socket accepts at once. Uses sendfile(2) on
/// Linux if the file system supports it.
///
/// Returns 0 at the end of the file. Fails with WouldBlock if the socket is full.
pub fn send_file(socket: BorrowedFd<'_>, file: &File, offset: u64, most: usize) -> io::Result<usize> {
    #[cfg(not(portable))]
    match without_sigpipe(|| rustix::fs::sendfile(socket, file, Some(&mut { offset }), most)) {
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
        result => return Ok(result?),
    }
    copy(socket, file, offset, most)
}

fn copy(socket: BorrowedFd<'_>, file: &File, offset: u64, most: usize) -> io::Result<usize> {
    let mut buffer = [0; COPY_SIZE];
    match file.read_at(&mut buffer[..most.min(COPY_SIZE)], offset)? {
        0 => Ok(0),
        got => crate::socket::send(socket, &buffer[..got]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::send_more;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    type Way = fn(BorrowedFd<'_>, &File, u64, usize) -> io::Result<usize>;

    #[test]
    fn a_part_of_a_file_arrives_after_what_was_sent_before() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"0123456789").expect("write");
        for way in [send_file as Way, copy] {
            let (near, mut far) = UnixStream::pair().expect("a pair");
            assert_eq!(send_more(near.as_fd(), b"> ").expect("send"), 2);
            assert_eq!(way(near.as_fd(), &file, 3, 4).expect("send"), 4);
            assert_eq!(way(near.as_fd(), &file, 8, 100).expect("send"), 2);
            assert_eq!(way(near.as_fd(), &file, 10, 1).expect("the end"), 0);
            drop(near);
            let mut text = String::new();
            far.read_to_string(&mut text).expect("read");
            assert_eq!(text, "> 345689");
        }
    }

    #[test]
    fn a_socket_that_takes_nothing_would_block() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[1; 100_000]).expect("write");
        for way in [send_file as Way, copy] {
            let (near, _far) = UnixStream::pair().expect("a pair");
            near.set_nonblocking(true).expect("nonblocking");
            let error = loop {
                if let Err(error) = way(near.as_fd(), &file, 0, 100_000) {
                    break error;
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    }

    /// In a separate process, because the signal would end the test.
    #[cfg(not(portable))]
    #[test]
    fn a_peer_that_is_gone_raises_no_signal() {
        use nix::sys::signal::{signal, SigHandler, SigSet, Signal};
        use nix::sys::wait::{waitpid, WaitStatus};
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"0123456789").expect("write");
        let (near, far) = UnixStream::pair().expect("a pair");
        drop(far);
        // SAFETY: the child makes only system calls before it exits.
        match unsafe { nix::unistd::fork() }.expect("a child") {
            nix::unistd::ForkResult::Child => {
                // SAFETY: SIG_DFL is no handler, and the child has no other thread.
                let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
                let slices = [std::io::IoSlice::new(b"a"), std::io::IoSlice::new(b"b")];
                let is_gone = |result: io::Result<usize>| {
                    result.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
                };
                let all = is_gone(send_file(near.as_fd(), &file, 0, 10))
                    && is_gone(copy(near.as_fd(), &file, 0, 10))
                    && is_gone(crate::socket::writev(near.as_fd(), &slices));
                let is_open = SigSet::thread_get_mask().is_ok_and(|mask| !mask.contains(Signal::SIGPIPE));
                // SAFETY: _exit ends the process in any state.
                unsafe { nix::libc::_exit(i32::from(!(all && is_open))) }
            }
            nix::unistd::ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
            }
        }
    }

    #[test]
    fn only_a_regular_file_is_opened_and_opening_never_blocks() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, b"12345").expect("write");
        assert_eq!(open_regular(&file).expect("open").expect("regular").1, 5);
        assert!(open_regular(folder.path()).expect("open").is_none());
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a fifo");
        assert!(open_regular(&fifo).expect("open").is_none());
        open_regular(&folder.path().join("none")).expect_err("nothing there");
        #[cfg(target_os = "linux")]
        for made_up in ["/proc/self/status", "/sys/devices/system/cpu/online"] {
            assert!(open_regular(Path::new(made_up)).expect("open").is_none());
        }
    }
}
