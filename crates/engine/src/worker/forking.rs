//! Forks by the application, while the engine has connections.

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::control::Control;
use crate::reactor::Reactor;
use crate::shared::Shared;

/// Time to wait for the helper, in milliseconds. The helper may be ending the process.
const FORK_HELPER_TIME: u64 = 1_000;

/// Time to wait for the reactor after the helper has finished with it, in milliseconds. No other thread waits with the lock.
const FORK_REACTOR_TIME: u64 = 10;

/// Lets the application fork. Belongs to the process that made it.
#[derive(Debug)]
pub struct Forking {
    shared: Arc<Shared>,
    control: Arc<Control>,
    pid: u32,
}

impl Forking {
    pub(super) fn new(shared: Arc<Shared>, control: Arc<Control>) -> Self {
        Forking { shared, control, pid: std::process::id() }
    }

    /// Runs `fork` while the helper changes nothing: the helper may have taken a connection off the list of descriptors that a child
    /// [closes](Control::close), and not have closed the connection yet. The connections' files are also on that list.
    ///
    /// The reactor is not locked during the fork. A fork may run code of the application's, which may give the GVL to the thread that runs
    /// the engine.
    pub fn run<T>(&self, fork: impl FnOnce() -> T) -> T {
        if self.control.is_closed() {
            return fork();
        }
        let _not_driving = self.shared.keep_from_driving(FORK_HELPER_TIME);
        let reactor = self.shared.reactor_within(FORK_REACTOR_TIME);
        let files: Vec<RawFd> = reactor.iter().flat_map(|reactor| Reactor::files(reactor)).collect();
        drop(reactor);
        files.iter().for_each(|fd| self.control.track_fd(*fd));
        let result = fork();
        if self.pid == std::process::id() {
            files.iter().for_each(|fd| self.control.untrack_fd(*fd));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::RequestSettings;
    use crate::shared::tests::shared;
    use std::sync::mpsc::channel;

    #[test]
    fn a_fork_waits_for_the_helper_and_the_helper_for_the_fork() {
        let shared = Arc::new(shared());
        let control = Arc::new(Control::new(-1, [], &RequestSettings::default()).expect("a control"));
        let forking = Forking::new(Arc::clone(&shared), control);
        let (sender, receiver) = channel();
        std::thread::scope(|scope| {
            let driving = shared.keep_from_driving(1).expect("nobody drives");
            scope.spawn(|| {
                let seen = || (shared.keep_from_driving(1).is_none(), shared.try_reactor().is_some());
                forking.run(|| sender.send(seen()))
            });
            receiver.recv_timeout(std::time::Duration::from_millis(20)).expect_err("it waits");
            drop(driving);
            // The thread that runs the engine may continue.
            assert_eq!(receiver.recv().expect("it goes on"), (true, true));
        });
        assert!(shared.keep_from_driving(1).is_some());
    }
}
