//! Whether the machine has a processor to spare.

#[cfg(not(portable))]
use std::fs::File;
use std::os::fd::RawFd;

#[cfg(not(portable))]
use std::os::{fd::AsRawFd, unix::fs::FileExt};

/// The machine's processors, and how many threads of all its processes want one.
#[derive(Debug)]
pub struct Processors {
    #[cfg(not(portable))]
    load: Load,
    online: u32,
}

/// Of proc_loadavg(5).
#[cfg(not(portable))]
#[derive(Debug)]
enum Load {
    Unknown,
    Open(File),
    /// To be opened for each look.
    Closed,
}

#[cfg(not(portable))]
const LOAD: &str = "/proc/loadavg";

impl Processors {
    /// They are counted now. Where this process may use only some of them (cgroup, affinity), what the others do says nothing.
    pub fn new() -> Self {
        let online = online();
        Processors {
            #[cfg(not(portable))]
            load: File::open(LOAD).ok().filter(|_| has_all(online)).map_or(Load::Unknown, Load::Open),
            online,
        }
    }

    /// The same for few looks: no descriptor stays open.
    pub fn closed() -> Self {
        let online = online();
        Processors {
            #[cfg(not(portable))]
            load: if has_all(online) { Load::Closed } else { Load::Unknown },
            online,
        }
    }

    /// How many there are; 1 where nobody asks.
    pub fn online(&self) -> usize {
        self.online as usize
    }

    /// The descriptors that a forked child inherits.
    pub fn raw_fds(&self) -> impl Iterator<Item = RawFd> + use<> {
        #[cfg(not(portable))]
        return match &self.load {
            Load::Open(file) => Some(file.as_raw_fd()).into_iter(),
            Load::Unknown | Load::Closed => None.into_iter(),
        };
        #[cfg(portable)]
        return std::iter::empty();
    }

    /// How many are idle, and the current thread's own; 0 if threads wait for one. None where the system does not tell.
    pub fn spare(&self) -> Option<u32> {
        self.runnable().map(|runnable| (self.online + 1).saturating_sub(runnable))
    }

    /// How many threads of all processes compute or would like to, the current one among them (proc_loadavg(5)).
    #[cfg(not(portable))]
    fn runnable(&self) -> Option<u32> {
        let mut text = [0; 64];
        let length = match &self.load {
            Load::Unknown => return None,
            Load::Open(file) => file.read_at(&mut text, 0),
            Load::Closed => File::open(LOAD).ok()?.read_at(&mut text, 0),
        };
        let length = length.ok()?;
        runnable_of(&text[..length])
    }

    #[cfg(portable)]
    fn runnable(&self) -> Option<u32> {
        None
    }
}

impl Default for Processors {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(portable))]
fn online() -> u32 {
    let count = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN);
    count.ok().flatten().and_then(|count| u32::try_from(count).ok()).unwrap_or(1)
}

/// Nobody asks: see `runnable`.
#[cfg(portable)]
fn online() -> u32 {
    1
}

#[cfg(not(portable))]
fn has_all(online: u32) -> bool {
    std::thread::available_parallelism().is_ok_and(|usable| usable.get() >= online as usize)
}

/// The fourth field's first number, as in `0.20 0.18 0.12 1/80 11206`.
#[cfg(not(portable))]
fn runnable_of(text: &[u8]) -> Option<u32> {
    let field = text.split(|byte| *byte == b' ').nth(3)?;
    let number = field.split(|byte| *byte == b'/').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
#[cfg(not(portable))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::patience::until;

    #[test]
    fn none_is_spare_while_more_threads_compute_than_there_are_processors() {
        let (processors, closed) = (Processors::new(), Processors::closed());
        if !has_all(processors.online) {
            assert_eq!((processors.spare(), closed.spare()), (None, None));
            return;
        }
        assert!(processors.online > 0 && processors.runnable().is_some_and(|runnable| runnable > 0));
        assert_eq!((processors.raw_fds().count(), closed.raw_fds().count()), (1, 0));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..=processors.online {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            until(|| (processors.spare(), closed.spare()) == (Some(0), Some(0)));
            is_over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn what_is_no_load_says_nothing() {
        assert_eq!(runnable_of(b"0.20 0.18 0.12 1/80 11206\n"), Some(1));
        for text in ["", "0.20 0.18 0.12", "a b c d/80 1", "a b c /80 1"] {
            assert_eq!(runnable_of(text.as_bytes()), None, "{text}");
        }
    }
}
