//! Passes bytes between a client and a worker whose connections have changed their protocol.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{split, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::work::Lasting;

/// Bytes that are passed at once, each way.
const PIECE: usize = 8 * 1024;

/// How long the app may still write once it reads the end.
const TIME_TO_CLOSE: Duration = Duration::from_secs(1);

/// How long a client may be silent whose app has ended its side.
const LAST_SILENCE: Duration = Duration::from_secs(30);

/// How long a client gets to close once the end was sent. A close with unread bytes would be a reset.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// Why one way of a tunnel has ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The sender has ended its side.
    Sender,
    /// The sender's connection is lost.
    SenderLost,
    /// The receiver takes nothing more.
    ReceiverLost,
}

/// Passes bytes both ways until both sides have ended, one is lost, or `tunnel` is to end. Then the app reads the end, and has a second for
/// its last words.
pub async fn pass<C, W>(client: C, worker: W, tunnel: &Lasting)
where
    C: AsyncRead + AsyncWrite,
    W: AsyncRead + AsyncWrite,
{
    let (mut from_client, mut to_client) = split(client);
    let (mut from_worker, mut to_worker) = split(worker);
    let has_read = AtomicBool::new(false);
    let up = async {
        let end = tokio::select! {
            end = copy(&mut from_client, &mut to_worker, &has_read) => end,
            () = tunnel.end() => End::Sender,
        };
        let _ = to_worker.shutdown().await;
        end == End::SenderLost
    };
    let down = async {
        let end = copy(&mut from_worker, &mut to_client, &AtomicBool::new(false)).await;
        let _ = to_client.shutdown().await;
        end == End::ReceiverLost
    };
    let both = async {
        let (mut up, mut down) = (pin!(up), pin!(down));
        tokio::select! {
            is_lost = &mut up => is_lost || down.await,
            is_lost = &mut down => is_lost || timeout_when_silent(up, &has_read).await,
        }
    };
    let is_lost = tokio::select! {
        is_lost = both => is_lost,
        () = async { tunnel.end().await; sleep(TIME_TO_CLOSE).await } => false,
    };
    if !is_lost {
        let goodbye = async {
            let _ = to_client.shutdown().await;
            let _ = copy(&mut from_client, &mut tokio::io::sink(), &has_read).await;
        };
        let _ = timeout(LAST_MOMENT, goodbye).await;
    }
}

/// Waits for the client, until it has sent nothing for too long.
async fn timeout_when_silent(up: impl Future<Output = bool>, has_read: &AtomicBool) -> bool {
    let silence = async {
        while has_read.swap(false, Relaxed) {
            sleep(LAST_SILENCE).await;
        }
    };
    has_read.store(true, Relaxed);
    tokio::select! {
        is_lost = up => is_lost,
        () = silence => false,
    }
}

/// Copies until an end, and notes when bytes were read.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    has_read: &AtomicBool,
) -> End {
    let mut piece = vec![0; PIECE];
    loop {
        let count = match from.read(&mut piece).await {
            Ok(0) => return End::Sender,
            Ok(count) => count,
            Err(_) => return End::SenderLost,
        };
        has_read.store(true, Relaxed);
        if to.write_all(&piece[..count]).await.is_err() || to.flush().await.is_err() {
            return End::ReceiverLost;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{duplex, DuplexStream};

    use super::*;
    use crate::work::{Kind, Work};

    /// A client, its worker, and the tunnel between them.
    fn tunnel(work: &Arc<Work>) -> (DuplexStream, DuplexStream, tokio::task::JoinHandle<()>) {
        let ((client, near), (worker, far)) = (duplex(64), duplex(64));
        let lasting = work.begin_lasting(Kind::Tunnel);
        (client, worker, tokio::spawn(async move { pass(near, far, &lasting).await }))
    }

    async fn rest(stream: &mut DuplexStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("a text");
        text
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_has_ended_still_gets_what_the_other_sends() {
        let work = Arc::default();
        let (mut client, mut worker, task) = tunnel(&work);
        client.write_all(b"request").await.expect("written");
        client.shutdown().await.expect("shut down");
        assert_eq!(rest(&mut worker).await, "request");
        sleep(Duration::from_secs(3600)).await;
        worker.write_all(b"response").await.expect("written");
        drop(worker);
        assert_eq!(rest(&mut client).await, "response");
        task.await.expect("ended");
    }

    #[tokio::test(start_paused = true)]
    async fn the_app_reads_the_end_and_has_a_second_for_its_last_words() {
        let work = Arc::default();
        let (mut client, mut worker, task) = tunnel(&work);
        assert_eq!(work.end_oldest(), Some(0));
        assert_eq!(rest(&mut worker).await, "");
        worker.write_all(b"goodbye").await.expect("written");
        // The app keeps its side open.
        assert_eq!(rest(&mut client).await, "goodbye");
        drop(client);
        task.await.expect("ended");
        assert_eq!(work.lasting(), Default::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_closes_is_left_when_it_is_silent() {
        let work = Arc::default();
        let (mut client, mut worker, task) = tunnel(&work);
        worker.shutdown().await.expect("shut down");
        assert_eq!(rest(&mut client).await, "");
        for _ in 0..3 {
            sleep(LAST_SILENCE / 2).await;
            client.write_all(b"!").await.expect("written");
        }
        drop(task.await);
        assert_eq!(rest(&mut worker).await, "!!!");
        assert_eq!(work.lasting(), Default::default());
    }
}
