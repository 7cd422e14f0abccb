//! The monitor's addresses.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use fastrack_sys::{Access, AppUser};

/// In bytes: sun_path without its end (unix(7)).
const LONGEST: usize = 107;

/// What tells a file from any other that may get its name: inodes are used again.
type Identity = (u64, u64, i64, i64);

/// A unix socket with a file that only its owner may open.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// The user whose folder it may be in. None: this process acts as itself.
    user: Option<AppUser>,
    file: Identity,
}

impl Place {
    /// Listens there. A socket that is there is replaced in one step: that of a killed master, or, if this one `replaces` another, that
    /// one's.
    pub fn take(path: &Path, user: Option<&AppUser>, replaces: bool) -> io::Result<(Self, UnixListener)> {
        let length = beside(path).as_os_str().len();
        if length > LONGEST {
            let text = format!("the path is {} bytes too long for a socket", length - LONGEST);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (file, listener) = at(path, user, |path| Self::make(path, replaces))?;
        listener.set_nonblocking(true)?;
        Ok((Place { path: path.to_owned(), user: user.cloned(), file }, listener))
    }

    fn make(path: &Path, replaces: bool) -> io::Result<(Identity, UnixListener)> {
        if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists and is not a socket"));
        }
        if !replaces && fastrack_sys::is_listened_at(path) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there"));
        }
        let temporary = beside(path);
        remove_stale(&temporary);
        let listener = fastrack_sys::bind_private(&temporary)?;
        let placed = identity(&temporary).and_then(|file| fs::rename(&temporary, path).map(|()| file));
        if placed.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        Ok((placed?, listener))
    }

    /// Whether the file is still this one, and not a new master's.
    pub fn is_ours(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.file)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = at(&self.path, self.user.as_ref(), |path| {
            if identity(path)? == self.file {
                fs::remove_file(path)?;
            }
            Ok(())
        });
    }
}

/// Its name until it has its own.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    name.into()
}

/// Acts on the file as the user who can change where its path leads, or as root where nobody else can.
fn at<T>(path: &Path, user: Option<&AppUser>, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let Some(user) = user else { return act(path) };
    match user.access(path, false)? {
        Access::Root(path) => act(&path),
        Access::User | Access::OwnDescriptor(_) => user.act(|| act(path))?,
    }
}

fn remove_stale(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        let _ = fs::remove_file(path);
    }
}

fn identity(path: &Path) -> io::Result<Identity> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
}

/// Listens on a port, without waiting for clients.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}
