//! Children of this process, forked or adopted, by what the kernel knows of them: a pid in a text may be any process's.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::libc;
use rustix::process::{waitid, Pid, WaitId, WaitIdOptions};

/// Whether a process is a child of this one that nobody has waited for: the pid is its own as long as this is so.
pub fn is_child(pid: i32) -> bool {
    positive(pid).is_some_and(|pid| is_own(WaitId::Pid(pid)))
}

fn positive(pid: i32) -> Option<Pid> {
    (pid > 0).then(|| Pid::from_raw(pid)).flatten()
}

/// WNOWAIT leaves the process as it is. A process that still runs is no error.
fn is_own(child: WaitId<'_>) -> bool {
    waitid(child, WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT).is_ok()
}

/// A descriptor that stands for a child, whatever becomes of its pid (pidfd_open(2)). None if the process is no child, and where the kernel
/// has no such descriptors.
#[cfg(target_os = "linux")]
pub fn hold_child(pid: i32) -> Option<OwnedFd> {
    use std::os::fd::AsFd;

    let pid = positive(pid)?;
    let held = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
    is_own(WaitId::PidFd(held.as_fd())).then_some(held)
}

/// None: other systems have no such descriptors.
#[cfg(not(target_os = "linux"))]
pub fn hold_child(_pid: i32) -> Option<OwnedFd> {
    None
}

/// Sends a signal to the process that a descriptor stands for (pidfd_send_signal(2)).
#[cfg(target_os = "linux")]
pub fn signal_child(child: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let (null, no_flags) = (std::ptr::null::<libc::siginfo_t>(), 0);
    // SAFETY: the descriptor is open, and the call reads no memory if there is no siginfo_t.
    let result =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, child.as_raw_fd(), signal, null, no_flags) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Other systems have no such descriptors.
#[cfg(not(target_os = "linux"))]
pub fn signal_child(_child: BorrowedFd<'_>, _signal: i32) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_known_until_it_is_waited_for_and_no_other_process_is() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        assert!(is_child(pid));
        for stranger in [0, -1, 1, std::process::id() as i32, i32::MAX] {
            assert!(!is_child(stranger), "{stranger}");
            assert!(hold_child(stranger).is_none(), "{stranger}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_child(pid));
        assert!(hold_child(pid).is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_signal_reaches_the_held_child_and_nobody_after_its_end() {
        use std::os::fd::AsFd;
        use std::os::unix::process::ExitStatusExt;

        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let held = hold_child(child.id() as i32);
        let signal = || {
            held.as_ref()
                .map(|held| signal_child(held.as_fd(), libc::SIGTERM).map_err(|error| error.raw_os_error()))
        };
        let sent = signal();
        child.kill().unwrap();
        let status = child.wait().unwrap();
        // An old kernel has no such descriptors.
        if held.is_some() {
            assert_eq!(sent, Some(Ok(())));
            assert_eq!(status.signal(), Some(libc::SIGTERM));
            assert_eq!(signal(), Some(Err(Some(libc::ESRCH))));
        }
    }
}
