//! One step after the other, from O_PATH to O_PATH (open(2)).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{fstat, fstatfs, open, openat, readlinkat, FileType, Mode, OFlags, Stat, PROC_SUPER_MAGIC};
use rustix::io::Errno;

/// What the kernel follows in one path (path_resolution(7)).
const MOST_LINKS: u32 = 40;

/// Nothing is opened by it: no device starts, no FIFO waits.
const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Folder, name, whether root has laid it out, whether it is in proc(5): a `Place`.
type Found = (OwnedFd, OsString, bool, bool);

pub fn find(path: &Path, last: bool, user: Option<u32>) -> io::Result<Found> {
    let mut walk = Walk { folder: Folder::root(true)?, steps: Vec::new(), user, links: 0 };
    walk.push(path);
    loop {
        match walk.steps.pop() {
            None => return Err(Errno::ISDIR.into()),
            Some(Step::BelongsTo(owner, link)) => walk.check(owner, &link, &walk.folder.stat)?,
            Some(Step::Name(name)) => {
                if let Some(place) = walk.enter(name, last)? {
                    return Ok(place);
                }
            }
        }
    }
}

/// Others may give what is root's further names (link(2)), but not a folder.
fn is_roots(stat: &Stat) -> bool {
    stat.st_uid == 0 && (stat.st_nlink == 1 || FileType::from_raw_mode(stat.st_mode).is_dir())
}

struct Folder {
    fd: OwnedFd,
    stat: Stat,
    path: PathBuf,
    laid_by_root: bool,
}

impl Folder {
    fn root(laid_by_root: bool) -> io::Result<Self> {
        let fd = open("/", LOOK | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Folder { stat: fstat(&fd)?, fd, path: "/".into(), laid_by_root })
    }

    /// Whether only root can have put the entry here, or what is to be made here. To a sticky folder everybody may add, and nobody can
    /// move what is root's.
    fn has_from_root(&self, entry: Option<&Stat>) -> bool {
        let mode = Mode::from_raw_mode(self.stat.st_mode);
        let alone = !mode.intersects(Mode::WGRP | Mode::WOTH);
        let stays = mode.contains(Mode::SVTX) && entry.is_some_and(is_roots);
        self.laid_by_root && self.stat.st_uid == 0 && (alone || stays)
    }
}

enum Step {
    Name(OsString),
    /// What has been reached is to be this user's, or the link is not to be followed.
    BelongsTo(u32, PathBuf),
}

struct Walk {
    folder: Folder,
    /// The next is the last.
    steps: Vec<Step>,
    user: Option<u32>,
    links: u32,
}

impl Walk {
    fn push(&mut self, path: &Path) {
        let names = path.components().rev().filter_map(|component| match component {
            Component::Normal(_) | Component::ParentDir => Some(Step::Name(component.as_os_str().to_owned())),
            _ => None,
        });
        self.steps.extend(names);
    }

    /// Returns the place if this is the last name, and no link that is to be followed.
    fn enter(&mut self, name: OsString, last: bool) -> io::Result<Option<Found>> {
        let is_last = !self.steps.iter().any(|step| matches!(step, Step::Name(_)));
        let entry = match openat(&self.folder.fd, &name, LOOK, Mode::empty()) {
            // Who makes it puts it into this folder.
            Err(Errno::NOENT) if is_last => return self.place(name, None, false).map(Some),
            entry => entry?,
        };
        let stat = fstat(&entry)?;
        if !FileType::from_raw_mode(stat.st_mode).is_symlink() {
            return if is_last {
                self.place(name, Some(&stat), false).map(Some)
            } else {
                self.descend(&name, entry, stat)
            };
        }
        if is_last && !last {
            return self.place(name, Some(&stat), false).map(Some);
        }
        self.follow(name, &entry, &stat, is_last)
    }

    fn descend(&mut self, name: &OsStr, fd: OwnedFd, stat: Stat) -> io::Result<Option<Found>> {
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        let laid_by_root = self.folder.has_from_root(Some(&stat));
        self.folder = Folder { fd, stat, path: self.folder.path.join(name), laid_by_root };
        Ok(None)
    }

    fn follow(
        &mut self,
        name: OsString,
        link: &OwnedFd,
        stat: &Stat,
        is_last: bool,
    ) -> io::Result<Option<Found>> {
        self.links += 1;
        if self.links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        let laid_by_root = self.folder.has_from_root(Some(stat));
        if !laid_by_root && !is_roots(stat) {
            self.steps.push(Step::BelongsTo(stat.st_uid, self.folder.path.join(&name)));
        }
        if fstatfs(link)?.f_type == PROC_SUPER_MAGIC {
            let target = openat(&self.folder.fd, &name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            let stat = fstat(&target)?;
            if is_last {
                return self.place(name, Some(&stat), true).map(Some);
            }
            // Where that is, nobody has looked.
            self.folder.laid_by_root &= laid_by_root && name.as_bytes() == b"self";
            return self.descend(&name, target, stat);
        }
        let target = readlinkat(link, "", Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            self.folder = Folder::root(laid_by_root)?;
        }
        self.folder.laid_by_root &= laid_by_root;
        self.push(target);
        Ok(None)
    }

    fn place(&mut self, name: OsString, file: Option<&Stat>, in_proc: bool) -> io::Result<Found> {
        // None: what will be there belongs to who may write to the folder.
        let reached = file.unwrap_or(&self.folder.stat);
        for step in &self.steps {
            if let Step::BelongsTo(owner, link) = step {
                self.check(*owner, link, reached)?;
            }
        }
        let laid_by_root = self.folder.has_from_root(file);
        let folder = self.folder.fd.try_clone()?;
        Ok((folder, name, laid_by_root, in_proc))
    }

    fn check(&self, owner: u32, link: &Path, reached: &Stat) -> io::Result<()> {
        // A further name of root's own link (owner 0) does not tell who has put it there.
        if self.user == Some(reached.st_uid) || (owner != 0 && reached.st_uid == owner) {
            return Ok(());
        }
        let text =
            format!("root does not follow {}, a link of user {owner} to what is not theirs", link.display());
        Err(io::Error::other(text))
    }
}
