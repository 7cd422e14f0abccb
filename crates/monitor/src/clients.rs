//! The monitor's clients, and what they may cost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout, Instant};

use crate::answer::{Answers, Door};

/// Most connections at one time. One more, and the oldest is closed.
pub const MOST_CLIENTS: usize = 64;

/// For a request and its response.
const TIME: Duration = Duration::from_secs(10);

/// In bytes: the largest request head.
const HEAD: usize = 16 * 1024;

/// Connections accepted in a row, and for how long then none is: whoever connects as fast as he can takes a few hundredths
/// of a core.
const RUN: u32 = 32;
const WINDOW: Duration = Duration::from_millis(50);

/// All that are connected.
pub struct Clients {
    answers: Arc<Answers>,
    present: VecDeque<JoinHandle<()>>,
    window: Instant,
    accepted: u32,
}

impl Clients {
    pub fn new(answers: Arc<Answers>) -> Self {
        Clients { answers, present: VecDeque::new(), window: Instant::now(), accepted: 0 }
    }

    /// Serves one more. Returns when the next may be accepted.
    pub async fn add(&mut self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, door: Door) {
        self.present.retain(|client| !client.is_finished());
        if self.present.len() >= MOST_CLIENTS {
            if let Some(oldest) = self.present.pop_front() {
                oldest.abort();
            }
        }
        self.present.push_back(tokio::spawn(serve(stream, Arc::clone(&self.answers), door)));
        self.pace().await;
    }

    /// Returns when all have their answers.
    pub async fn answered(&mut self) {
        for client in self.present.drain(..) {
            // It has ended, or was aborted.
            let _ = client.await;
        }
    }

    async fn pace(&mut self) {
        if self.window.elapsed() >= WINDOW {
            (self.window, self.accepted) = (Instant::now(), 0);
        }
        self.accepted += 1;
        if self.accepted >= RUN {
            sleep(WINDOW.saturating_sub(self.window.elapsed())).await;
        }
    }
}

/// One connection has one request: so connections can be counted instead of requests.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, answers: Arc<Answers>, door: Door) {
    let service = service_fn(|request| {
        let response = answers.answer(&request, door);
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).max_buf_size(HEAD).header_read_timeout(None);
    // Its errors are the client's.
    let _ = timeout(TIME, http.serve_connection(TokioIo::new(stream), service)).await;
}
