use super::*;
use crate::watched::{Stream, Watched};
use hyper::body::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TIMES: Times =
    Times { head: Duration::from_secs(30), idle: Duration::from_secs(95), write: Duration::from_secs(60) };

pub fn connection() -> Arc<Connection> {
    let places = Arc::new(tokio::sync::Semaphore::new(1));
    let place = Place::new(places.try_acquire_owned().expect("a place"), Arc::default());
    Connection::new(([127, 0, 0, 1], 1).into(), false, "localhost:80".into(), None, place)
}

#[tokio::test(start_paused = true)]
async fn the_first_head_has_the_time_of_a_head() {
    let connection = connection();
    assert_eq!(connection.time_left(TIMES), Some(TIMES.head));
    tokio::time::advance(Duration::from_secs(29)).await;
    assert_eq!(connection.time_left(TIMES), Some(Duration::from_secs(1)));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(connection.time_left(TIMES), None);
}

#[tokio::test(start_paused = true)]
async fn a_request_may_last_and_then_the_connection_may_be_idle() {
    let connection = connection();
    let request = connection.begin_request(Version::HTTP_11);
    tokio::time::advance(Duration::from_secs(1000)).await;
    assert_eq!(connection.time_left(TIMES), Some(TIMES.head));
    drop(request);
    assert_eq!(connection.time_left(TIMES), Some(TIMES.head));
    tokio::time::advance(Duration::from_secs(94)).await;
    assert_eq!(connection.time_left(TIMES), Some(Duration::from_secs(1)));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(connection.time_left(TIMES), None);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_of_a_response_has_the_time_of_a_write() {
    let connection = connection();
    let mut delivery = Delivery::new(connection.begin_request(Version::HTTP_11));
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(connection.time_left(TIMES), Some(Duration::from_secs(1)));
    let wrote = |result| connection.wrote(&result, || Some(0));
    wrote(Poll::Ready(Ok(1)));
    assert_eq!(connection.time_left(TIMES), Some(Duration::from_secs(1)), "the socket was not full");
    wrote(Poll::Pending);
    wrote(Poll::Ready(Ok(1)));
    assert_eq!(connection.time_left(TIMES), Some(TIMES.head));
    delivery.offer(false);
    tokio::time::advance(Duration::from_secs(1000)).await;
    assert_eq!(connection.time_left(TIMES), Some(TIMES.head), "the app has the next part");
    delivery.offer(true);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(connection.time_left(TIMES), None);
    drop(delivery);
    assert_eq!(connection.offered.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_quiet_between_requests_only() {
    let connection = connection();
    let second = Duration::from_secs(1);
    tokio::time::advance(second).await;
    assert!(!connection.is_quiet(second), "the first head may have begun");
    let request = connection.begin_request(Version::HTTP_11);
    tokio::time::advance(second).await;
    assert!(!connection.is_quiet(second), "a request is in progress");
    drop(request);
    assert!(!connection.is_quiet(second), "the wait has begun only");
    tokio::time::advance(second).await;
    assert!(connection.is_quiet(second));
    connection.is_sending.store(true, Relaxed);
    assert!(!connection.is_quiet(second), "the client has not taken the response");
    connection.is_sending.store(false, Relaxed);
    connection.set_owes_body(true);
    assert!(!connection.is_quiet(second), "the next bytes are of a body");
    connection.set_owes_body(false);
    assert!(connection.is_quiet(second));
    connection.received();
    tokio::time::advance(second).await;
    assert!(!connection.is_quiet(second), "a head has begun");
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_not_quiet_after_the_servers_end() {
    let connection = connection();
    drop(connection.begin_request(Version::HTTP_11));
    connection.end();
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(!connection.is_quiet(Duration::from_secs(1)));
}

#[tokio::test]
async fn bytes_that_were_given_back_are_read_first_and_are_a_head() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut client =
        TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
    let (stream, _) = listener.accept().await.expect("a client");
    let connection = connection();
    drop(connection.begin_request(Version::HTTP_11));
    let watched = Watched::new(Stream::Plain(stream), Arc::clone(&connection));
    let mut watched = watched.give_back(Bytes::from_static(b"GE"));
    assert!(connection.is_partial.load(Relaxed));
    watched.wait().await;
    client.write_all(b"T").await.expect("a byte");
    let mut bytes = [0; 3];
    watched.read_exact(&mut bytes).await.expect("bytes");
    assert_eq!(&bytes, b"GET");
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_of_a_later_head_begins_its_time() {
    let connection = connection();
    drop(connection.begin_request(Version::HTTP_11));
    tokio::time::advance(Duration::from_secs(90)).await;
    connection.received();
    tokio::time::advance(Duration::from_secs(29)).await;
    connection.received();
    assert_eq!(connection.time_left(TIMES), Some(Duration::from_secs(1)));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(connection.time_left(TIMES), None);
}

#[tokio::test(start_paused = true)]
async fn frames_between_requests_neither_shorten_nor_prolong_the_time_of_an_idle_connection() {
    let connection = connection();
    connection.received();
    assert_eq!(connection.time_left(TIMES), Some(TIMES.head), "the first head");
    drop(connection.begin_request(Version::HTTP_2));
    for _ in 0..94 {
        tokio::time::advance(Duration::from_secs(1)).await;
        connection.received();
    }
    assert_eq!(connection.time_left(TIMES), Some(Duration::from_secs(1)));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(connection.time_left(TIMES), None);
}

#[tokio::test(start_paused = true)]
async fn a_look_at_the_connection_comes_in_time_for_the_shorter_wait() {
    let connection = connection();
    let minute = Duration::from_secs(60);
    let times = |idle, write| Times { head: minute, idle, write };
    let short = Duration::from_secs(5);
    let request = connection.begin_request(Version::HTTP_2);
    assert_eq!(connection.time_left(times(short, minute)), Some(short));
    assert_eq!(connection.time_left(times(minute, short)), Some(short));
    drop(request);
    assert_eq!(connection.time_left(times(short, minute)), Some(short));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_acknowledges_bytes_of_a_full_socket_takes_the_response() {
    let connection = connection();
    let _delivery = Delivery::new(connection.begin_request(Version::HTTP_11));
    let full = |unacknowledged| connection.wrote(&Poll::Pending, || Some(unacknowledged));
    full(1000);
    tokio::time::advance(Duration::from_secs(60)).await;
    full(900);
    assert_eq!(connection.time_left(TIMES), None, "nobody has asked to look");
    connection.look();
    full(900);
    assert_eq!(connection.time_left(TIMES), Some(TIMES.head), "100 bytes are acknowledged");
    tokio::time::advance(Duration::from_secs(60)).await;
    connection.look();
    full(900);
    assert_eq!(connection.time_left(TIMES), None, "no byte more is acknowledged");
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_response_in_a_full_socket_has_the_time_of_a_write() {
    let connection = connection();
    drop(connection.begin_request(Version::HTTP_11));
    tokio::time::advance(Duration::from_secs(90)).await;
    connection.wrote(&Poll::Pending, || Some(1000));
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(connection.time_left(TIMES), Some(Duration::from_secs(1)));
}
