//! Where the rest of a response goes that the application has passed, and the client has not taken.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

use crate::control::Control;
use crate::settings::{own_descriptors, Settings};

/// Makes spools: files without a name, which vanish with the process.
#[derive(Clone, Debug)]
pub(crate) struct Spooling {
    directory: PathBuf,
    /// How much of a response goes to its spool, in bytes.
    pub most: u64,
    /// A descriptor with this number or a greater one is left to the application: the kernel gives the lowest that is free.
    reserved: usize,
}

impl Spooling {
    pub fn new(settings: &Settings) -> Self {
        // To write more would end the process (SIGXFSZ, setrlimit(2)).
        let most = settings.max_response_spool.min(fastrack_sys::file_size_limit());
        Spooling { directory: settings.tmpdir.clone(), most, reserved: own_descriptors() }
    }

    pub fn create(&self, control: &Arc<Control>) -> io::Result<(File, Tracked)> {
        let file = tempfile::tempfile_in(&self.directory)?;
        let fd = file.as_raw_fd();
        if usize::try_from(fd).is_ok_and(|fd| fd >= self.reserved) {
            return Err(fastrack_sys::too_many_open_files());
        }
        control.track_fd(fd);
        Ok((file, Tracked { fd, control: Arc::clone(control) }))
    }

    /// What the log says when a spool cannot be made or written.
    pub fn explain(&self, error: &io::Error) -> String {
        format!(
            "cannot keep the rest of a response in {} ({error}): workers have to wait for slow clients",
            self.directory.display()
        )
    }
}

/// A forked child also lets go of this descriptor until this is dropped. To be dropped before the descriptor is closed.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_state::RequestSettings;

    #[test]
    fn the_last_descriptors_are_the_applications() {
        let control = Arc::new(Control::new(-1, [], &RequestSettings::default()).expect("a control"));
        let spooling = Spooling::new(&Settings::default());
        spooling.create(&control).expect("there are enough");
        let error = Spooling { reserved: 0, ..spooling }.create(&control).expect_err("none is left");
        assert!(fastrack_sys::is_out_of_fds(&error) && control.tracked_fds() == 0);
    }
}
