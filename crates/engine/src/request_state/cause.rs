//! Why workers are replaced.

/// Why a worker was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Cause {
    /// It had answered as many requests as it was to.
    RequestLimit,
    /// HUP.
    Reload,
    /// Its successor shares the memory of one that has served.
    Refork,
    /// Its memory.
    Memory,
    /// A request exceeded its time limit.
    RequestTimeout,
    /// The master killed it, because it stood still or did not end in time.
    WorkerTimeout,
    /// A signal killed it: a crash, or the kernel when memory ran out.
    Signal,
    /// It exited by itself with a status other than 0.
    Failure,
    /// It was not ready in time, or exited before.
    Boot,
    /// Any other reason: the application called exit, or somebody has sent it TERM.
    Exit,
}

impl Cause {
    /// All of them, in their order.
    pub const ALL: [Cause; 10] = [
        Cause::RequestLimit,
        Cause::Reload,
        Cause::Refork,
        Cause::Memory,
        Cause::RequestTimeout,
        Cause::WorkerTimeout,
        Cause::Signal,
        Cause::Failure,
        Cause::Boot,
        Cause::Exit,
    ];

    /// For logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Cause::RequestLimit => "request_limit",
            Cause::Reload => "reload",
            Cause::Refork => "refork",
            Cause::Memory => "memory",
            Cause::RequestTimeout => "request_timeout",
            Cause::WorkerTimeout => "worker_timeout",
            Cause::Signal => "signal",
            Cause::Failure => "failure",
            Cause::Boot => "boot",
            Cause::Exit => "exit",
        }
    }
}
