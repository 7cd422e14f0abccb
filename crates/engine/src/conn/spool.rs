//! Room for the unsent rest of a response after the application has passed it: in memory, or in a file.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use crate::control::Control;
use crate::settings::{own_descriptors, Settings};

/// Directories for temporary files on every system.
const COMMON_DIRECTORIES: [&str; 2] = ["/tmp", "/var/tmp"];

/// Bytes of finished responses that a worker keeps in memory for slow clients.
const MAX_UNSENT_IN_MEMORY: usize = 32 * 1024 * 1024;

/// A rest of a response up to this length always stays in memory, in bytes: an idle connection takes as much.
pub(super) const SHORT_REST: usize = 16 * 1024;

/// Makes spools: files without a name, which vanish with the process.
#[derive(Clone, Debug)]
pub(crate) struct Spooling {
    directory: PathBuf,
    /// The longest spool of a response, in bytes.
    pub most: u64,
    /// Descriptors from this number on are reserved for the application: the kernel assigns the lowest free number.
    reserved: usize,
    /// Bytes of responses with [reserved](Self::reserve_memory) memory.
    in_memory: Arc<AtomicUsize>,
}

impl Spooling {
    pub fn new(settings: &Settings) -> Self {
        // A longer file would end the process (SIGXFSZ, setrlimit(2)).
        let most = settings.max_response_spool.min(fastrack_sys::file_size_limit());
        Spooling {
            directory: settings.tmpdir.clone(),
            most,
            reserved: own_descriptors(),
            in_memory: Arc::default(),
        }
    }

    pub fn create(&self, control: &Arc<Control>) -> io::Result<(File, Tracked)> {
        let file = self.new_file()?;
        let fd = file.as_raw_fd();
        if usize::try_from(fd).is_ok_and(|fd| fd >= self.reserved) {
            return Err(fastrack_sys::too_many_open_files());
        }
        control.track_fd(fd);
        Ok((file, Tracked { fd, control: Arc::clone(control) }))
    }

    /// Makes the directory again if it was removed. Falls back to the common directories if it cannot be used.
    fn new_file(&self) -> io::Result<File> {
        let mut made = tempfile::tempfile_in(&self.directory);
        let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        if made.as_ref().is_err_and(is_gone) && DirBuilder::new().mode(0o700).create(&self.directory).is_ok()
        {
            made = tempfile::tempfile_in(&self.directory);
        }
        made.or_else(|error| {
            COMMON_DIRECTORIES.iter().find_map(|other| tempfile::tempfile_in(other).ok()).ok_or(error)
        })
    }

    /// Reserves room in memory for the rest of a response. None if the rests of all clients would exceed the limit.
    pub fn reserve_memory(&self, bytes: usize) -> Option<MemoryReservation> {
        let room =
            |reserved: usize| reserved.checked_add(bytes).filter(|total| *total <= MAX_UNSENT_IN_MEMORY);
        self.in_memory.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(MemoryReservation { bytes, in_memory: Arc::clone(&self.in_memory) })
    }

    /// The log line for a spool that cannot be made or written.
    pub fn explain(&self, error: &io::Error) -> String {
        format!(
            "cannot keep the rest of a response in {} ({error}): workers have to wait for slow clients",
            self.directory.display()
        )
    }
}

/// Makes a forked child close this descriptor too. Must be dropped before the descriptor is closed.
#[derive(Debug)]
pub(crate) struct Tracked {
    fd: RawFd,
    control: Arc<Control>,
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.control.untrack_fd(self.fd);
    }
}

/// Reserved room in memory for the rest of a response. Drop releases the room.
#[derive(Debug)]
pub(crate) struct MemoryReservation {
    bytes: usize,
    in_memory: Arc<AtomicUsize>,
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.in_memory.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::RequestSettings;

    #[test]
    fn the_last_descriptors_are_reserved_for_the_application() {
        let control = Arc::new(Control::new(-1, [], &RequestSettings::default()).expect("a control"));
        let spooling = Spooling::new(&Settings::default());
        spooling.create(&control).expect("there are enough");
        let error = Spooling { reserved: 0, ..spooling }.create(&control).expect_err("none is left");
        assert!(fastrack_sys::is_out_of_fds(&error) && control.tracked_fds() == 0);
    }

    #[test]
    fn a_directory_that_was_removed_is_made_again_and_one_that_cannot_be_is_replaced() {
        let control = Arc::new(Control::new(-1, [], &RequestSettings::default()).expect("a control"));
        let top = tempfile::tempdir().expect("a directory");
        let file = top.path().join("file");
        std::fs::write(&file, "").expect("a file");
        for (directory, is_made) in [(top.path().join("a"), true), (file.join("c"), false)] {
            let settings = Settings { tmpdir: directory.clone(), ..Settings::default() };
            Spooling::new(&settings).create(&control).expect("a spool");
            assert_eq!(directory.is_dir(), is_made);
        }
    }

    #[test]
    fn all_responses_share_the_room_in_memory_and_release_it() {
        let spooling = Spooling::new(&Settings::default());
        let most = spooling.reserve_memory(MAX_UNSENT_IN_MEMORY).expect("all of it");
        assert!(
            spooling.clone().reserve_memory(1).is_none() && spooling.reserve_memory(usize::MAX).is_none()
        );
        drop(most);
        let halves = [(); 2].map(|()| spooling.reserve_memory(MAX_UNSENT_IN_MEMORY / 2));
        assert!(halves.iter().all(Option::is_some) && spooling.reserve_memory(1).is_none());
    }
}
