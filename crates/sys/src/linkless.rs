//! Opening a file by a path without links, of which a part may become a link at any time.

use std::fs::File;
use std::io;
use std::path::{Component, Path};

use rustix::fs::{open, openat, Mode, OFlags};

/// Without NONBLOCK, opening a FIFO waits for a writer (fifo(7)). Regular files ignore the flag.
pub(crate) const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The flag of open(2) that follows no link in any part of a path.
#[cfg(target_vendor = "apple")]
const NO_LINKS: Option<OFlags> = Some(OFlags::NOFOLLOW_ANY);
#[cfg(not(target_vendor = "apple"))]
const NO_LINKS: Option<OFlags> = None;

/// How a folder is opened for the next part of a path. PATH needs no right to read the folder.
#[cfg(target_os = "linux")]
const FOLDER: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const FOLDER: OFlags = OFlags::RDONLY;

/// Opens a file for reading by a path as canonicalize(3) returns it. Follows no link in any part of the path: so the kernel opens the file
/// that has this path, whatever somebody has put there in the meantime, or fails.
pub fn open_without_links(path: &Path) -> io::Result<File> {
    #[cfg(not(portable))]
    {
        use rustix::fs::{openat2, ResolveFlags, CWD};
        use rustix::io::Errno;

        match openat2(CWD, path, FILE, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            // Linux before 5.6, and containers whose list of system calls is as old.
            Err(Errno::NOSYS | Errno::PERM) => {}
            result => return Ok(result?.into()),
        }
    }
    match NO_LINKS {
        Some(flag) => Ok(open(path, (FILE - OFlags::NOFOLLOW) | flag, Mode::empty())?.into()),
        None => by_parts(path),
    }
}

/// Opens one folder of the path after the other.
fn by_parts(path: &Path) -> io::Result<File> {
    let flags = FOLDER | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut parts = path.components();
    let (Some(Component::RootDir), Some(Component::Normal(name))) = (parts.next(), parts.next_back()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut folder = open("/", flags, Mode::empty())?;
    for part in parts {
        folder = openat(&folder, part.as_os_str(), flags, Mode::empty())?;
    }
    Ok(openat(&folder, name, FILE, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    type Way = fn(&Path) -> io::Result<File>;

    #[test]
    fn a_file_is_opened_and_no_link_is_followed_on_the_way() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("a path");
        fs::create_dir(root.join("folder")).expect("a folder");
        fs::write(root.join("folder/file"), "text").expect("a file");
        symlink("folder/file", root.join("link")).expect("a link");
        symlink("folder", root.join("way")).expect("a link");
        symlink(root.join("folder"), root.join("whole")).expect("a link");
        nix::unistd::mkfifo(&root.join("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a fifo");
        for way in [open_without_links as Way, by_parts] {
            let mut text = String::new();
            way(&root.join("folder/file")).expect("a file").read_to_string(&mut text).expect("text");
            assert_eq!(text, "text");
            for name in ["link", "way/file", "whole/file", "none", "folder/none", "folder/file/none"] {
                way(&root.join(name)).expect_err(name);
            }
            // It has no writer.
            way(&root.join("fifo")).expect("a fifo");
        }
        by_parts(Path::new("/")).expect_err("no file");
        by_parts(Path::new("file")).expect_err("no whole path");
    }
}
