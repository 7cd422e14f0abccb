//! Files that are sent as they are.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nix::libc;

/// What is sent at once of a file that has to be read first: it stands on the stack.
const COPIED: usize = 16 * 1024;

/// Opens a regular file for reading, and says how long it is, in bytes; None for anything else, such as a pipe, whose
/// reader would have to wait.
pub fn open_regular(path: &Path) -> io::Result<Option<(File, u64)>> {
    // Without O_NONBLOCK the open of a FIFO waits for a writer (fifo(7)); for a regular file it means nothing.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let data = file.metadata()?;
    Ok(data.is_file().then_some((file, data.len())))
}

/// Sends what the socket takes at once, at most `most` bytes, of a file from `offset` on, without the bytes passing
/// through this process where that can be had (sendfile(2)).
///
/// 0 means that the file ends there. Fails with WouldBlock when the socket takes nothing now.
pub fn send_file(socket: BorrowedFd<'_>, file: &File, offset: u64, most: usize) -> io::Result<usize> {
    match pass(socket, file, offset, most) {
        // Not every file system has pages to give (sendfile(2), EINVAL).
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
            copy(socket, file, offset, most)
        }
        result => result,
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn pass(socket: BorrowedFd<'_>, file: &File, offset: u64, most: usize) -> io::Result<usize> {
    let mut offset = libc::off64_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: both descriptors are borrowed, and so open; the offset outlives the call.
    let sent =
        unsafe { libc::sendfile64(socket.as_raw_fd(), file.as_fd().as_raw_fd(), &raw mut offset, most) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn pass(_: BorrowedFd<'_>, _: &File, _: u64, _: usize) -> io::Result<usize> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

fn copy(socket: BorrowedFd<'_>, file: &File, offset: u64, most: usize) -> io::Result<usize> {
    let mut buffer = [0; COPIED];
    let most = most.min(COPIED);
    let got = file.read_at(&mut buffer[..most], offset)?;
    if got == 0 {
        return Ok(0);
    }
    Ok(nix::unistd::write(socket, &buffer[..got])?)
}

/// Sends bytes that others follow at once, so that the system need not send a packet for these alone (MSG_MORE,
/// send(2)).
pub fn send_more(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let flags = libc::MSG_MORE;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let flags = 0;
    // SAFETY: the descriptor is borrowed, and so open; the pointer is valid for the length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
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

    #[test]
    fn only_a_regular_file_is_opened_and_nobody_waits_for_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, b"12345").expect("write");
        assert_eq!(open_regular(&file).expect("open").expect("regular").1, 5);
        assert!(open_regular(folder.path()).expect("open").is_none());
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a fifo");
        assert!(open_regular(&fifo).expect("open").is_none());
        open_regular(&folder.path().join("none")).expect_err("nothing there");
    }
}
