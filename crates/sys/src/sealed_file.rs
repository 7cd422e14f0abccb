//! Copies of secret files, for another process.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Bytes of one copy where the kernel does not copy by itself.
const PIECE: usize = 4096;

/// Copies what files have from their beginnings on, one after the other, into an anonymous file that nobody can change any more, close-on-exec.
/// Returns it with the number of bytes of each. Of a file that is longer than `most` bytes the first `most + 1` are copied.
///
/// The bytes leave no trace in the memory of this process, which its children inherit.
pub fn sealed_copy(files: &[BorrowedFd<'_>], most: u64) -> io::Result<(OwnedFd, Vec<u64>)> {
    let target = new_file()?;
    let mut end = 0;
    let mut sizes = Vec::with_capacity(files.len());
    for file in files {
        let file = File::from(file.try_clone_to_owned()?);
        let size = copy(&file, &target, end, most + 1)?;
        end += size;
        sizes.push(size);
    }
    seal(&target)?;
    Ok((target.into(), sizes))
}

fn copy(file: &File, target: &File, at: u64, most: u64) -> io::Result<u64> {
    let mut done = 0;
    while done < most {
        match copy_piece(file, done, target, at + done, (most - done) as usize)? {
            0 => break,
            copied => done += copied as u64,
        }
    }
    Ok(done)
}

fn copy_piece(file: &File, from: u64, target: &File, to: u64, most: usize) -> io::Result<usize> {
    #[cfg(not(portable))]
    {
        use rustix::io::Errno;
        rustix::fs::seek(target, rustix::fs::SeekFrom::Start(to))?;
        match rustix::fs::sendfile(target, file, Some(&mut { from }), most) {
            // File systems that cannot.
            Err(Errno::INVAL | Errno::NOSYS) => {}
            result => return Ok(result?),
        }
    }
    copy_by_memory(file, from, target, to, most)
}

fn copy_by_memory(file: &File, from: u64, target: &File, to: u64, most: usize) -> io::Result<usize> {
    let mut piece = [0; PIECE];
    let result = file.read_at(&mut piece[..most.min(PIECE)], from);
    let result = result.and_then(|read| target.write_all_at(&piece[..read], to).map(|()| read));
    piece.fill(0);
    // Keeps the compiler from leaving the zeroes out.
    std::hint::black_box(&mut piece);
    result
}

#[cfg(not(portable))]
fn new_file() -> io::Result<File> {
    use rustix::fs::{memfd_create, MemfdFlags};
    Ok(memfd_create(c"fastrack", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into())
}

#[cfg(not(portable))]
fn seal(file: &File) -> io::Result<()> {
    use rustix::fs::{fcntl_add_seals, SealFlags};
    Ok(fcntl_add_seals(file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?)
}

#[cfg(portable)]
fn new_file() -> io::Result<File> {
    tempfile::tempfile()
}

/// These systems have no such files.
#[cfg(portable)]
#[allow(clippy::unnecessary_wraps, reason = "it can fail elsewhere")]
fn seal(_file: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    fn file(text: &str) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        // The descriptor is at the end of what was written.
        file.write_all(text.as_bytes()).expect("its text");
        file
    }

    fn text(file: &File, size: u64) -> String {
        let mut bytes = vec![0; size as usize];
        file.read_exact_at(&mut bytes, 0).expect("its bytes");
        String::from_utf8(bytes).expect("its text")
    }

    #[test]
    fn the_copy_has_the_files_one_after_the_other() {
        let long = "0123456789".repeat(1000);
        let files = [file("first\n"), file(""), file(&long), file("last")];
        let descriptors: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let (copy, sizes) = sealed_copy(&descriptors, 10_000).expect("a copy");
        assert_eq!(sizes, [6, 0, 10_000, 4]);
        assert_eq!(text(&copy.into(), 10_010), format!("first\n{long}last"));
    }

    #[test]
    fn of_a_file_that_is_too_long_a_byte_too_many_tells() {
        let (copy, sizes) = sealed_copy(&[file("12345").as_fd(), file("ab").as_fd()], 3).expect("a copy");
        assert_eq!((sizes, text(&copy.into(), 6)), (vec![4, 2], "1234ab".to_owned()));
    }

    #[test]
    fn memory_does_what_the_kernel_does() {
        let (source, target) = (file("0123456789"), file("abc"));
        assert_eq!(copy_by_memory(&source, 2, &target, 3, 5).expect("a copy"), 5);
        assert_eq!(copy_by_memory(&source, 10, &target, 8, 5).expect("the end"), 0);
        assert_eq!(text(&target, 8), "abc23456");
    }

    #[cfg(not(portable))]
    #[test]
    fn nobody_can_change_the_copy() {
        let (copy, _) = sealed_copy(&[file("key").as_fd()], 10).expect("a copy");
        let copy = File::from(copy);
        copy.write_at(b"x", 0).expect_err("sealed");
        copy.set_len(1).expect_err("sealed");
        assert_eq!(text(&copy, 3), "key");
    }
}
