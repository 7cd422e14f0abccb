//! Acting as another user on one thread: Linux has ids per thread (credentials(7)).

use std::ffi::{CString, OsStr, OsString};
use std::fs::{metadata, read_link, symlink_metadata, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use nix::unistd::getgrouplist;
use rustix::fs::{accessat, Access as Mode, AtFlags, CWD};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups, Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::access::Access;

/// The number of links that the kernel follows in one path (path_resolution(7)).
const MAX_LINKS: u32 = 40;

#[derive(Clone, Debug)]
pub struct Ids {
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
}

impl Ids {
    pub fn new(name: &str, uid: u32, gid: u32) -> io::Result<Self> {
        let name = CString::new(name)?;
        let groups = getgrouplist(&name, gid.into())?;
        let groups = groups.into_iter().map(|group| Gid::from_raw(group.as_raw())).collect();
        Ok(Ids { user: Uid::from_raw(uid), group: Gid::from_raw(gid), groups })
    }

    /// The real and the saved user stay root, so that the app's user can neither signal nor trace the thread, and so
    /// that the thread can restore its ids. Without an effective root the thread has no effective capabilities
    /// (capabilities(7)).
    pub fn act<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        let _before = Before { user: geteuid(), group: getegid(), groups: getgroups()? };
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(None, self.group, None)?;
        set_thread_res_uid(None, self.user, None)?;
        Ok(work())
    }
}

/// The ids of the thread, which drop restores.
struct Before {
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
}

impl Drop for Before {
    fn drop(&mut self) {
        // The user comes first, because only root may set groups.
        let back = set_thread_res_uid(None, self.user, None)
            .and_then(|()| set_thread_res_gid(None, self.group, None))
            .and_then(|()| set_thread_groups(&self.groups));
        if back.is_err() {
            // A master with the ids of the app's user can neither serve nor write its logs.
            std::process::abort();
        }
    }
}

/// Follows the path from one directory to the next while only root may change each directory. So no other user can
/// change the checked part of the path.
pub fn access(ids: &Ids, path: &Path, follow: bool) -> io::Result<Access> {
    let mut folder = PathBuf::from("/");
    let mut names = names_of(path);
    let mut links = 0;
    while let Some(name) = names.pop() {
        if name == ".." {
            folder.pop();
            continue;
        }
        if !is_roots_alone(ids, &folder)? {
            return Ok(Access::User);
        }
        let entry = folder.join(&name);
        let found = match symlink_metadata(&entry) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && names.is_empty() => {
                return Ok(Access::Root(entry))
            }
            // A network file system that does not trust root.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(Access::User),
            found => found?,
        };
        if !found.is_symlink() || (names.is_empty() && !follow) {
            folder = entry;
            continue;
        }
        if folder.starts_with("/proc") && name != *"self" && name != *"thread-self" {
            return Ok(if names.is_empty() { own_descriptor(&folder, &name) } else { Access::User });
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = read_link(&entry)?;
        if target.is_absolute() {
            folder = PathBuf::from("/");
        }
        names.extend(names_of(&target));
    }
    Ok(Access::Root(folder))
}

/// The names of the path, last one first.
fn names_of(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        _ => None,
    });
    names.collect()
}

/// The text of a link in proc(5) is not its target: only the kernel can follow it.
fn own_descriptor(folder: &Path, name: &OsStr) -> Access {
    let own = Path::new("/proc").join(std::process::id().to_string()).join("fd");
    let number = std::str::from_utf8(name.as_bytes()).ok().and_then(|name| name.parse().ok());
    number.filter(|_| folder == own).map_or(Access::User, Access::OwnDescriptor)
}

/// Whether root owns the directory, and the user can neither write to it nor change its mode.
fn is_roots_alone(ids: &Ids, folder: &Path) -> io::Result<bool> {
    let found = metadata(folder)?;
    if found.uid() != 0 || found.mode() & 0o002 != 0 {
        return Ok(false);
    }
    // If a group or an access control list (acl(5)) may write, the kernel decides whether that includes the user.
    Ok(found.mode() & 0o020 == 0 || ids.act(|| is_reachable_and_closed(folder, &found))?)
}

/// Whether the user of this thread can reach the directory by its path and cannot write to it. An unreachable directory
/// could be the working directory of a process of the user.
fn is_reachable_and_closed(folder: &Path, found: &Metadata) -> bool {
    let reached = metadata(folder).is_ok_and(|seen| seen.ino() == found.ino() && seen.dev() == found.dev());
    // Linux before 5.8 has no such call (ENOSYS).
    let written = accessat(CWD, folder, Mode::WRITE_OK, AtFlags::EACCESS);
    reached && matches!(written, Err(Errno::ACCESS | Errno::ROFS))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// None if the tests do not run as root.
    fn nobody() -> Option<Ids> {
        geteuid().is_root().then(|| Ids::new("nobody", 65534, 65534).expect("groups"))
    }

    #[test]
    fn one_thread_acts_as_the_user_and_gets_its_ids_back() {
        let Some(ids) = nobody() else { return };
        let others = || std::thread::spawn(geteuid).join().expect("a thread");
        let folder = tempfile::tempdir().expect("a folder");
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "root's").expect("a file");
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("its mode");
        let before = (geteuid(), getegid(), getgroups().expect("groups"));
        let (reading, within) = ids.act(|| (std::fs::read(&secret), geteuid())).expect("the user's ids");
        assert_eq!(reading.map_err(|error| error.kind()), Err(io::ErrorKind::PermissionDenied));
        assert_eq!(within.as_raw(), 65534);
        assert_eq!((geteuid(), getegid(), getgroups().expect("groups")), before);
        assert!(std::fs::read(&secret).is_ok() && others().is_root());
    }

    #[test]
    fn root_acts_as_root_in_its_own_folders() {
        let Some(ids) = nobody() else { return };
        assert_eq!(
            access(&ids, Path::new("/etc/fastrack.new"), true).expect("access"),
            Access::Root("/etc/fastrack.new".into())
        );
        assert_eq!(
            access(&ids, Path::new("/usr/../etc/./passwd"), true).expect("access"),
            Access::Root("/etc/passwd".into())
        );
        assert_eq!(access(&ids, Path::new("/dev/stderr"), true).expect("access"), Access::OwnDescriptor(2));
        assert_eq!(access(&ids, Path::new("/proc/1/fd/1"), true).expect("access"), Access::User);
        let missing = access(&ids, Path::new("/etc/fastrack.missing/log"), true);
        assert_eq!(missing.map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
    }

    #[test]
    fn the_user_acts_in_a_folder_that_others_may_write_to() {
        let Some(ids) = nobody() else { return };
        let folder = tempfile::tempdir().expect("a folder");
        // All users may write to /tmp.
        assert_eq!(access(&ids, &folder.path().join("log"), true).expect("access"), Access::User);
    }
}
