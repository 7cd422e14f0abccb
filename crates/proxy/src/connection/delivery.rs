//! Whether the client takes its response.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use super::InFlight;
use crate::clock::Clock;
use crate::pace::Pace;
use crate::work::{Kind, Lasting};

/// A response on its way to the client.
#[derive(Debug)]
pub struct Delivery {
    request: InFlight,
    is_offered: bool,
    /// The clock of the HTTP/2 stream; None for HTTP/1.1.
    clock: Option<Arc<Clock>>,
}

impl Delivery {
    /// The delivery of the response to `request`, which the client can take now.
    pub fn new(request: InFlight) -> Self {
        let mut delivery = Delivery { request, is_offered: false, clock: Clock::current() };
        delivery.offer(true);
        delivery
    }

    /// How much of the response may wait for the client; None: the client speaks HTTP/1.1.
    pub fn pace(&self) -> Option<Pace> {
        self.clock.as_ref().map(|_| Pace::new(&self.request.connection().taker))
    }

    /// The response becomes a stream.
    pub fn begin_lasting(&mut self) -> Lasting {
        self.request.begin_lasting(Kind::Stream)
    }

    /// Notes that the response has ended in its middle.
    pub fn cut(&self) {
        let connection = self.request.connection();
        connection.is_cut.store(!connection.has_frames(), Relaxed);
    }

    /// Notes whether the client can take a part now. If not, this process waits for the response.
    pub fn offer(&mut self, is_offered: bool) {
        if let Some(clock) = &self.clock {
            return clock.offer(is_offered);
        }
        let connection = self.request.connection();
        if is_offered {
            connection.took();
        }
        match (self.is_offered, is_offered) {
            (false, true) => connection.offered.fetch_add(1, Relaxed),
            (true, false) => connection.offered.fetch_sub(1, Relaxed),
            _ => 0,
        };
        self.is_offered = is_offered;
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.offer(false);
    }
}
