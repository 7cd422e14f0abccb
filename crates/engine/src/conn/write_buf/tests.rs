use super::*;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use proptest::prelude::*;

use crate::claim::RequestSettings;
use crate::conn::spool::Spooling;
use crate::control::Control;
use crate::settings::Settings;

fn pair() -> (UnixStream, UnixStream) {
    let (client, server) = UnixStream::pair().expect("a pair");
    server.set_nonblocking(true).expect("nonblocking");
    (client, server)
}

/// Flushes the buffer, and returns the bytes that arrive.
fn received(buf: &mut WriteBuf, client: &mut UnixStream, server: &UnixStream) -> Vec<u8> {
    let mut received = Vec::new();
    while !buf.is_empty() {
        let before = buf.len();
        let has_file = buf.file.is_some();
        let sent = buf.flush(server.as_fd()).expect("flush");
        assert!(has_file || buf.len() == before - sent);
        let mut part = vec![0; sent];
        client.read_exact(&mut part).expect("read");
        received.extend(part);
    }
    received
}

#[test]
fn pushed_bytes_arrive_in_order_at_a_slow_reader() {
    let (mut client, server) = pair();
    let expected: Vec<u8> = (0..3_000_000).map(|index| (index % 251) as u8).collect();
    let mut buf = WriteBuf::default();
    buf.push(&[IoSlice::new(b"sent"), IoSlice::new(&expected[..10]), IoSlice::new(&[])], 4).expect("room");
    buf.push(&[IoSlice::new(&expected[10..])], 0).expect("room");
    assert!(received(&mut buf, &mut client, &server) == expected);
    buf.shrink(0);
    assert_eq!(buf.len(), 0);
}

#[test]
fn slices_arrive_in_order_joined_or_not_and_the_rest_when_there_is_room() {
    for length in [1, MAX_JOINED - 4, MAX_JOINED - 3, 2 * MAX_JOINED, 1_000_000] {
        let (mut client, server) = pair();
        let body = vec![b'b'; length];
        let mut buf = WriteBuf::default();
        let whole = [b"head", &body[..]].concat();
        let several = [IoSlice::new(b"head"), IoSlice::new(&[]), IoSlice::new(&body)];
        for slices in [&several[..], &[IoSlice::new(&whole)]] {
            let sent = buf.send(server.as_fd(), slices).expect("send");
            assert!(sent > 0 && buf.len() == 4 + length - sent, "{length}");
            let mut all = vec![0; sent];
            client.read_exact(&mut all).expect("read");
            all.extend(received(&mut buf, &mut client, &server));
            assert!(all == whole, "{length}");
        }
    }
}

#[test]
fn a_failed_send_empties_the_buffer() {
    for length in [1, 2 * MAX_JOINED] {
        let (client, server) = pair();
        drop(client);
        let mut buf = WriteBuf::default();
        let bytes = vec![0; length];
        for slices in [&[IoSlice::new(&bytes)][..], &[IoSlice::new(&bytes), IoSlice::new(b"end")]] {
            buf.send(server.as_fd(), slices).expect_err("nobody is there");
            assert!(buf.is_empty(), "{length}");
        }
    }
}

#[test]
fn a_file_arrives_after_the_bytes_and_up_to_its_length_only() {
    let (mut client, server) = pair();
    let content: Vec<u8> = (0..3_000_000).map(|index| (index % 253) as u8).collect();
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&content).expect("write");
    file.write_all(b"it has grown").expect("write");
    let mut buf = WriteBuf::default();
    buf.push(&[IoSlice::new(b"head")], 0).expect("room");
    buf.push_file(file, content.len() as u64, true);
    let all = received(&mut buf, &mut client, &server);
    assert!(all == [b"head", &content[..], CHUNK_ENDS].concat());
    assert!(!buf.has_more_to_send());
}

#[test]
fn a_file_that_has_shrunk_is_an_error_not_an_end() {
    let (_client, server) = pair();
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"short").expect("write");
    let mut buf = WriteBuf::default();
    buf.push_file(file, 6, false);
    let error = buf.flush(server.as_fd()).expect_err("shrunk");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    buf.clear();
    assert!(buf.is_empty());
}

#[test]
fn a_long_file_does_not_starve_others() {
    let (mut client, server) = pair();
    // The reader is fast, so that the socket always accepts more.
    let reader = std::thread::spawn(move || {
        let mut sink = Vec::new();
        client.read_to_end(&mut sink).map(|_| sink.len())
    });
    server.set_nonblocking(false).expect("blocking");
    let length = 2 * FILE_BYTES_PER_TURN + 1;
    let file = tempfile::tempfile().expect("a file");
    file.set_len(length as u64).expect("length");
    let mut buf = WriteBuf::default();
    buf.push_file(file, length as u64, false);
    for (sent, more) in [(FILE_BYTES_PER_TURN, true), (FILE_BYTES_PER_TURN, true), (1, false)] {
        assert_eq!(buf.flush(server.as_fd()).expect("flush"), sent);
        assert_eq!(buf.has_more_to_send(), more);
    }
    assert!(buf.is_empty());
    drop(server);
    assert_eq!(reader.join().expect("joined").expect("read"), length);
}

/// Makes spools, and counts them.
struct Spools {
    spooling: Spooling,
    control: Arc<Control>,
    made: usize,
}

impl Spools {
    fn new() -> Self {
        let control = Control::new(-1, [], &RequestSettings::default()).expect("a control");
        Spools { spooling: Spooling::new(&Settings::default()), control: Arc::new(control), made: 0 }
    }

    fn spool(&mut self, buf: &mut WriteBuf, most: u64) -> io::Result<bool> {
        let Spools { spooling, control, made } = self;
        buf.spool(most, || {
            *made += 1;
            spooling.create(control)
        })
    }
}

fn numbered(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

fn push(buf: &mut WriteBuf, bytes: &[u8]) {
    buf.push(&[IoSlice::new(bytes)], 0).expect("room");
}

#[test]
fn spooled_bytes_are_sent_before_bytes_that_were_pushed_later() {
    let (mut client, server) = pair();
    let expected = numbered(3_000_000);
    let (mut buf, mut spools) = (WriteBuf::default(), Spools::new());
    push(&mut buf, &expected[..10]);
    // The socket is full from now on.
    let mut sent = buf.send(server.as_fd(), &[IoSlice::new(&expected[10..1_000_000])]).expect("send");
    for part in expected[1_000_000..].chunks(700_000) {
        assert!(
            spools.spool(&mut buf, u64::MAX).expect("written") && buf.bytes().is_empty() && !buf.is_empty()
        );
        push(&mut buf, part);
        sent += buf.flush(server.as_fd()).expect("flush");
    }
    assert_eq!(spools.made, 1);
    let mut all = vec![0; sent];
    client.read_exact(&mut all).expect("read");
    while !buf.is_empty() {
        let mut part = vec![0; buf.flush(server.as_fd()).expect("flush")];
        client.read_exact(&mut part).expect("read");
        all.extend(part);
    }
    assert!(all == expected);
    // From here on bytes go to the socket, and the spool is gone.
    assert!(!buf.has_spool() && spools.control.tracked_fds() == 0);
    assert_eq!(buf.send(server.as_fd(), &[IoSlice::new(b"direct")]).expect("send"), 6);
}

#[test]
fn a_full_spool_leaves_the_rest_in_memory() {
    let (mut client, server) = pair();
    let (mut buf, mut spools) = (WriteBuf::default(), Spools::new());
    push(&mut buf, b"0123456789");
    assert!(!spools.spool(&mut buf, 9).expect("full") && buf.len() == 10 && spools.made == 0);
    assert!(spools.spool(&mut buf, 10).expect("written"));
    push(&mut buf, b"ab");
    assert!(!spools.spool(&mut buf, 11).expect("full") && buf.len() == 2);
    assert_eq!(buf.flush(server.as_fd()).expect("flush"), 12);
    let mut all = [0; 12];
    client.read_exact(&mut all).expect("read");
    assert_eq!(&all, b"0123456789ab");
}

#[test]
fn a_file_of_the_application_is_no_spool() {
    let (mut buf, mut spools) = (WriteBuf::default(), Spools::new());
    push(&mut buf, b"head");
    buf.push_file(tempfile::tempfile().expect("a file"), 1, false);
    assert!(!spools.spool(&mut buf, u64::MAX).expect("no spool") && buf.len() == 4);
}

/// Makes writes to the spool fail, and reads succeed.
fn break_spool(buf: &mut WriteBuf) {
    if let Some(part) = &mut buf.file {
        let path = format!("/dev/fd/{}", part.file.as_raw_fd());
        part.file = File::open(path).expect("the same file");
    }
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "only Linux has such a device, and opens the same file anew")]
fn a_spool_that_cannot_be_written_changes_nothing() {
    let (mut client, server) = pair();
    let (mut buf, mut spools) = (WriteBuf::default(), Spools::new());
    push(&mut buf, b"one,");
    let full =
        || Ok((File::options().write(true).open("/dev/full")?, spools.spooling.create(&spools.control)?.1));
    let error = buf.spool(u64::MAX, full).expect_err("no room");
    assert!(error.kind() == io::ErrorKind::StorageFull && !buf.has_spool() && buf.len() == 4);
    assert!(spools.spool(&mut buf, u64::MAX).expect("written"));
    break_spool(&mut buf);
    push(&mut buf, b"two");
    spools.spool(&mut buf, u64::MAX).expect_err("it is for reading only");
    assert!(received(&mut buf, &mut client, &server) == b"one,two");
}

/// In bytes.
const MOST_SENT: usize = 200_000;
const MOST_STEPS: usize = 30;

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Spool,
    Flush,
    Read(usize),
    Break,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..MOST_SENT).prop_map(Step::Send),
        3 => Just(Step::Spool),
        2 => Just(Step::Flush),
        4 => (1..400_000usize).prop_map(Step::Read),
        1 => Just(Step::Break),
    ];
    proptest::collection::vec(step, 1..MOST_STEPS)
}

static EXPECTED: OnceLock<Vec<u8>> = OnceLock::new();

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "only Linux opens the same file anew")]
    fn all_bytes_arrive_once_and_in_order_whatever_is_spooled(steps in steps()) {
        let (mut client, server) = pair();
        client.set_nonblocking(true).expect("nonblocking");
        let expected = EXPECTED.get_or_init(|| numbered(MOST_STEPS * MOST_SENT));
        let (mut buf, mut spools, mut passed) = (WriteBuf::default(), Spools::new(), 0);
        let mut all = Vec::new();
        let mut read = |most: usize| {
            let got = (&client).take(most as u64).read_to_end(&mut all);
            assert!(got.is_ok() || got.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock));
        };
        for step in steps {
            match step {
                Step::Send(length) => {
                    let part = &expected[passed..passed + length];
                    passed += length;
                    // As the response writer does.
                    if buf.is_empty() {
                        buf.send(server.as_fd(), &[IoSlice::new(part)]).expect("send");
                    } else {
                        push(&mut buf, part);
                    }
                }
                Step::Spool => drop(spools.spool(&mut buf, 2_000_000)),
                Step::Flush => drop(buf.flush(server.as_fd()).expect("flush")),
                Step::Read(most) => read(most),
                Step::Break => break_spool(&mut buf),
            }
        }
        while !buf.is_empty() {
            buf.flush(server.as_fd()).expect("flush");
            read(usize::MAX);
        }
        drop(server);
        client.set_nonblocking(false).expect("blocking");
        client.read_to_end(&mut all).expect("read");
        prop_assert!(all == expected[..passed]);
        prop_assert_eq!(spools.control.tracked_fds(), 0);
    }
}
