//! Opening files of a folder, and of no other.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use super::path::is_public;

/// Whether a call may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No: it fails with WouldBlock instead.
    Never,
    /// Yes: it runs on a thread that has no clients.
    Allowed,
}

/// Facts by which another file, or another content, shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Bytes.
    pub length: u64,
    /// When the content changed: seconds since 1970, and nanoseconds.
    pub modified: (i64, i64),
    inode: (u64, u64),
}

impl Stamp {
    /// The facts of an open file; None if it has no name any more, or is no regular file.
    fn of(file: &File) -> io::Result<Option<Stamp>> {
        let data = file.metadata()?;
        let stamp = Stamp {
            length: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
            inode: (data.dev(), data.ino()),
        };
        Ok((data.is_file() && data.nlink() > 0).then_some(stamp))
    }
}

/// An open file, and its facts when it was opened.
#[derive(Debug)]
pub struct Opened {
    /// Read by offsets, since many responses share it.
    pub file: File,
    /// Of the open file itself, not of its path.
    pub stamp: Stamp,
}

impl Opened {
    /// None if the file is no regular one.
    fn new(file: File) -> io::Result<Option<Self>> {
        Ok(Stamp::of(&file)?.map(|stamp| Opened { file, stamp }))
    }

    /// Whether the content is what it was. A file that was removed keeps its content.
    pub fn has_same_content(&self) -> bool {
        let data = self.file.metadata();
        data.is_ok_and(|data| {
            (data.len(), (data.mtime(), data.mtime_nsec())) == (self.stamp.length, self.stamp.modified)
        })
    }

    /// Whether the file is what it was, and still has a name. A file that another one has replaced has none.
    pub fn is_same(&self) -> bool {
        matches!(Stamp::of(&self.file), Ok(Some(stamp)) if stamp == self.stamp)
    }
}

/// Links whose refusal is logged, and names that a search for them looks at.
const MOST_REFUSALS: usize = 32;
const MOST_NAMES: usize = 20_000;

/// A folder, without links in its path.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    /// Folders to which links may lead, without links in their paths.
    links: Vec<PathBuf>,
    /// Links whose refusal was logged.
    refused: Mutex<HashSet<PathBuf>>,
}

impl Folder {
    /// Fails if there is no such folder.
    pub fn new(root: &Path, links: &[PathBuf]) -> io::Result<Self> {
        let links = links.iter().map(|link| real_folder(link)).collect::<io::Result<_>>()?;
        Ok(Folder { root: real_folder(root)?, links, refused: Mutex::default() })
    }

    /// Opens the file with this name below the folder; None: there is no such file for the public.
    ///
    /// A link in the folder counts if its target is also in the folder, or in one of the folders for links. The folder's owner may put a
    /// link anywhere at any time, so the file is opened by a path in which the kernel follows none.
    pub fn open(&self, name: &Path, wait: Wait) -> io::Result<Option<Opened>> {
        let path = self.root.join(name);
        if wait == Wait::Allowed {
            return self.open_by_links(&path);
        }
        match fastrack_sys::open_cached(&path) {
            Ok(file) => Opened::new(file),
            Err(error) if may_be_link(&error) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => refused(error, &path),
        }
    }

    /// Opens the file with this whole path; None: it is not below the folder.
    pub fn open_path(&self, path: &Path, wait: Wait) -> io::Result<Option<Opened>> {
        match path.strip_prefix(&self.root) {
            Ok(name) if is_public(name) => self.open(name, wait),
            _ if wait == Wait::Never => Err(io::ErrorKind::WouldBlock.into()),
            _ => self.open_by_links(path),
        }
    }

    fn open_by_links(&self, path: &Path) -> io::Result<Option<Opened>> {
        let Ok(found) = path.canonicalize() else { return Ok(None) };
        if !self.has(&found) {
            self.log_refusal(path);
            return Ok(None);
        }
        match fastrack_sys::open_without_links(&found) {
            Ok(file) => Opened::new(file),
            Err(error) => refused(error, &found),
        }
    }

    /// Whether a path without links is one for the public.
    fn has(&self, path: &Path) -> bool {
        let mut folders = self.links.iter().chain([&self.root]);
        folders.any(|folder| path.strip_prefix(folder).is_ok_and(is_public))
    }

    /// Logs, once, the link because of which a path below the folder is not served.
    fn log_refusal(&self, path: &Path) {
        let Some((link, target)) = self.link_out(path) else { return };
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() < MOST_REFUSALS && !refused.contains(&link) {
            crate::control::warn(&refusal(&link, &target));
            refused.insert(link);
        }
    }

    /// The first link on the way to a path below the folder that leads out, and its target.
    fn link_out(&self, path: &Path) -> Option<(PathBuf, PathBuf)> {
        let mut way = self.root.clone();
        for part in path.strip_prefix(&self.root).ok()? {
            way.push(part);
            if fs::symlink_metadata(&way).ok()?.is_symlink() {
                let target = way.canonicalize().ok()?;
                let is_inside =
                    self.links.iter().chain([&self.root]).any(|folder| target.starts_with(folder));
                if !is_inside {
                    return Some((way, target));
                }
            }
        }
        None
    }

    /// Links in the folder that lead out, with their targets, as far as a search that follows none finds them.
    pub fn refused_links(&self) -> Vec<(PathBuf, PathBuf)> {
        let (mut folders, mut found, mut seen) = (vec![self.root.clone()], Vec::new(), 0);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                seen += 1;
                if seen > MOST_NAMES || found.len() >= MOST_REFUSALS {
                    return found;
                }
                let path = entry.path();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(path),
                    Ok(kind) if kind.is_symlink() => found.extend(self.link_out(&path)),
                    _ => {}
                }
            }
        }
        found
    }
}

fn real_folder(path: &Path) -> io::Result<PathBuf> {
    let found = path.canonicalize()?;
    if found.is_dir() {
        Ok(found)
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}

/// The sentence about a link that leads out of the folder.
pub fn refusal(link: &Path, target: &Path) -> String {
    let (link, target) = (link.display(), target.display());
    format!("{link} leads out of public_files, to {target}: its files are left to the app, unless public_links names their folder")
}

/// Whether a path with a link in it may fail like this. Where the kernel has no call for paths without links, a link in the middle is ENOTDIR.
fn may_be_link(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
        || [Errno::LOOP, Errno::NOTDIR].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// A file that cannot be opened is none, unless only a descriptor or memory is missing. The kernel asks for the descriptor first.
fn refused(error: io::Error, path: &Path) -> io::Result<Option<Opened>> {
    let is_shortage = fastrack_sys::is_out_of_fds(&error) || fastrack_sys::is_shortage(&error);
    if is_shortage && fs::symlink_metadata(path).is_ok() {
        return Err(error);
    }
    Ok(None)
}
