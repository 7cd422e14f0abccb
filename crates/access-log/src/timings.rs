//! How the time of a request is divided.

/// The times of a request, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// How long the request waited for the application, without the time for its body.
    pub queue: u64,
    /// How long the server waited for the body after the head.
    pub upload: u64,
    /// Time in the application, without [`send`](Self::send).
    pub app: u64,
    /// The division of [`app`](Self::app) by Ruby's GVL; None before Ruby 3.2, which reports no GVL events.
    pub gvl: Option<GvlTimings>,
    /// How long the application's thread waited for a client that was slow to take the response.
    pub send: u64,
}

/// How a thread's time in a request is divided by Ruby's GVL, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GvlTimings {
    /// The thread waited for the GVL.
    pub wait: u64,
    /// The thread had the GVL.
    pub running: u64,
    /// The thread had released the GVL: it waited for a database, a disk or another server.
    pub off: u64,
}

impl Timings {
    /// The times with their names, in the order of a request.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let gvl =
            self.gvl.map(|gvl| [("gvl_wait", gvl.wait), ("running", gvl.running), ("off_gvl", gvl.off)]);
        [("queue", self.queue), ("upload", self.upload), ("app", self.app)]
            .into_iter()
            .chain(gvl.into_iter().flatten())
            .chain([("send", self.send)])
    }
}
