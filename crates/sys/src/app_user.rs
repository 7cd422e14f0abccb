//! Files of a master that root runs, in folders that the user of its app may write to.
//!
//! That user may put a link, a FIFO or another file in the place of a log, a pid file or a socket. So root acts there with the
//! user's ids, and the kernel decides: what the user may not open, root does not open for him. Root acts as root only where all
//! folders on the way are root's own and the user may write to none of them.

use std::io;
use std::path::Path;

mod access;
#[cfg(target_os = "linux")]
mod linux;

pub use access::Access;

/// The user that workers run as, with the ids that the kernel compares (credentials(7)).
#[derive(Clone, Debug)]
pub struct AppUser {
    #[cfg(target_os = "linux")]
    ids: linux::Ids,
}

impl AppUser {
    /// Looks up the user's groups (getgrouplist(3)), as initgroups(3) does in a worker.
    ///
    /// # Errors
    /// Those of getgrouplist(3).
    #[cfg(target_os = "linux")]
    pub fn new(name: &str, uid: u32, gid: u32) -> io::Result<Self> {
        Ok(AppUser { ids: linux::Ids::new(name, uid, gid)? })
    }

    /// Finds out as whom to act on a file, which need not exist.
    ///
    /// # Arguments
    /// * `path`: absolute.
    /// * `follow`: whether the file itself may be a link of root's.
    ///
    /// # Errors
    /// Those of lstat(2), for a folder that is missing; ELOOP.
    #[cfg(target_os = "linux")]
    pub fn access(&self, path: &Path, follow: bool) -> io::Result<Access> {
        linux::access(&self.ids, path, follow)
    }

    /// Calls `work` with the user's effective ids, on this thread alone: the other threads of the process stay root's. The process
    /// ends (abort(3)) if root's ids cannot be had back.
    ///
    /// # Errors
    /// EPERM without CAP_SETUID and CAP_SETGID; `work` is not called then.
    #[cfg(target_os = "linux")]
    pub fn act<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        self.ids.act(work)
    }

    /// Without Linux's ids for each thread, root acts as root.
    ///
    /// # Errors
    /// None.
    #[cfg(not(target_os = "linux"))]
    pub fn new(_name: &str, _uid: u32, _gid: u32) -> io::Result<Self> {
        Ok(AppUser {})
    }

    /// See [`AppUser::new`].
    ///
    /// # Errors
    /// None.
    #[cfg(not(target_os = "linux"))]
    pub fn access(&self, path: &Path, _follow: bool) -> io::Result<Access> {
        Ok(Access::Root(path.to_owned()))
    }

    /// See [`AppUser::new`].
    ///
    /// # Errors
    /// None.
    #[cfg(not(target_os = "linux"))]
    pub fn act<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        Ok(work())
    }
}
