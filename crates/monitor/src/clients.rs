//! The clients of the monitor, and limits of their cost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout, Instant};

use crate::answer::{Answers, Transport};

/// The highest number of connections at one time. A further client replaces the oldest.
pub const MAX_CLIENTS: usize = 64;

/// Time for a request and its response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest head of a request, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// Connections accepted within one [`ACCEPT_WINDOW`]. With this limit, a client that connects as fast as possible takes
/// a few hundredths of a core. Bench: `bench/instructions` (worker with monitor).
const MAX_ACCEPTS_PER_WINDOW: u32 = 32;
const ACCEPT_WINDOW: Duration = Duration::from_millis(50);

/// The connected clients.
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

    /// Serves a client. Returns when the next one may be accepted.
    pub async fn add(
        &mut self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        transport: Transport,
    ) {
        self.present.retain(|client| !client.is_finished());
        if self.present.len() >= MAX_CLIENTS {
            if let Some(oldest) = self.present.pop_front() {
                oldest.abort();
            }
        }
        self.present.push_back(tokio::spawn(serve(stream, Arc::clone(&self.answers), transport)));
        self.pace().await;
    }

    /// Returns when all clients have their answers.
    pub async fn answered(&mut self) {
        for client in self.present.drain(..) {
            // An error means that the task was aborted.
            let _ = client.await;
        }
    }

    async fn pace(&mut self) {
        if self.window.elapsed() >= ACCEPT_WINDOW {
            (self.window, self.accepted) = (Instant::now(), 0);
        }
        self.accepted += 1;
        if self.accepted >= MAX_ACCEPTS_PER_WINDOW {
            sleep(ACCEPT_WINDOW.saturating_sub(self.window.elapsed())).await;
        }
    }
}

/// Serves one connection with one request, so that limits of connections also limit requests.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, answers: Arc<Answers>, transport: Transport) {
    let service = service_fn(|request| {
        let response = answers.answer(&request, transport);
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).max_buf_size(MAX_HEAD).header_read_timeout(None);
    // Errors concern only this client.
    let _ = timeout(REQUEST_TIMEOUT, http.serve_connection(TokioIo::new(stream), service)).await;
}
