//! Files of a root master in directories that the app's user may write to.
//!
//! The app's user could replace a log, a pid file or a socket by a link, a FIFO or another file. So the master acts in
//! such directories with the user's ids, and the kernel refuses files that the user may not open. The master acts as
//! root only if root owns all directories of the path and the user may write to none of them.

use std::io;
use std::path::Path;

mod access;
#[cfg(target_os = "linux")]
mod linux;

pub use access::Access;

/// The user that workers run as, with the ids that the kernel checks (credentials(7)).
#[derive(Clone, Debug)]
pub struct AppUser {
    #[cfg(target_os = "linux")]
    ids: linux::Ids,
}

impl AppUser {
    /// Looks up the groups of the user (getgrouplist(3)), as initgroups(3) does in a worker.
    ///
    /// # Errors
    /// The errors of getgrouplist(3).
    #[cfg(target_os = "linux")]
    pub fn new(name: &str, uid: u32, gid: u32) -> io::Result<Self> {
        Ok(AppUser { ids: linux::Ids::new(name, uid, gid)? })
    }

    /// Decides as which user to act on a file, which need not exist.
    ///
    /// # Arguments
    /// * `path`: an absolute path.
    /// * `follow`: whether the file itself may be a link that root owns.
    ///
    /// # Errors
    /// The errors of lstat(2) for a missing directory; ELOOP.
    #[cfg(target_os = "linux")]
    pub fn access(&self, path: &Path, follow: bool) -> io::Result<Access> {
        linux::access(&self.ids, path, follow)
    }

    /// Calls `work` with the effective ids of the user, on this thread alone. Aborts the process (abort(3)) if the ids
    /// of root cannot be restored.
    ///
    /// # Errors
    /// EPERM without CAP_SETUID and CAP_SETGID. `work` is not called in that case.
    #[cfg(target_os = "linux")]
    pub fn act<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        self.ids.act(work)
    }

    /// Other systems than Linux have no ids per thread, so root acts as root.
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
