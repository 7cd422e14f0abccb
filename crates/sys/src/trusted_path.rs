//! Where a path leads when root may follow only links that give nothing away.
//!
//! A server's user who may write to a folder on the way can put a link there, and have a process of root's create, append to, or give
//! him a file that is not his. So root follows a link that root has made, or one that leads to what belongs to its owner anyway (nginx
//! has it as `disable_symlinks if_not_owner`). Every step starts at the folder that was found before it (openat(2)): what is moved
//! meanwhile changes nothing.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

#[cfg(target_os = "linux")]
mod linux;

/// A file's folder and its name there. The file need not exist.
#[derive(Debug)]
pub struct Place {
    /// Opened with O_PATH.
    pub folder: OwnedFd,
    /// Without a slash.
    pub name: OsString,
    /// Nobody but root can have chosen the file: each folder down to it is root's, and no other user may write there.
    pub laid_by_root: bool,
    /// It is a link in proc(5), such as `/proc/self/fd/1`, which leads to the file only if the kernel follows it.
    pub in_proc: bool,
}

impl Place {
    /// A path by which the folder cannot be exchanged meanwhile, for the thread that has found the place: it may have descriptors of
    /// its own (proc(5), `/proc/thread-self`).
    pub fn path(&self) -> PathBuf {
        Path::new("/proc/thread-self/fd").join(self.folder.as_raw_fd().to_string()).join(&self.name)
    }

    /// Where a file that is named by this path is to be made or removed. None where the path itself will do: in a process that is
    /// not root's, which has nothing to give away, and where there is no `/proc`, as on other systems than Linux.
    ///
    /// # Errors
    /// Those of [`find_place`].
    pub fn pinned(path: &Path) -> io::Result<Option<Self>> {
        if !geteuid().is_root() || !Path::new("/proc/thread-self/fd").is_dir() {
            return Ok(None);
        }
        find_place(&std::path::absolute(path)?, false, None).map(Some)
    }
}

/// Follows a path from the root folder.
///
/// # Errors
/// Unsupported, on systems other than Linux. Those of openat(2); and, without an errno, a sentence about the link that is not to be followed.
///
/// # Arguments
/// * `path`: absolute.
/// * `last`: whether the last name is also followed if it is a link.
/// * `user`: whom the file will belong to, other than root. A link of anybody's may lead to what is his.
#[cfg(target_os = "linux")]
pub fn find_place(path: &Path, last: bool, user: Option<u32>) -> io::Result<Place> {
    let (folder, name, laid_by_root, in_proc) = linux::find(path, last, user)?;
    Ok(Place { folder, name, laid_by_root, in_proc })
}

/// See Linux's.
#[cfg(not(target_os = "linux"))]
pub fn find_place(_path: &Path, _last: bool, _user: Option<u32>) -> io::Result<Place> {
    Err(io::ErrorKind::Unsupported.into())
}
