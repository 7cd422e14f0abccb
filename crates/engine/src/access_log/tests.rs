use super::*;
use crate::patience::patience;
use crate::scoreboard::Scoreboard;
use fastrack_access_log::Request;
use fastrack_http::Head;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

const REQUEST: &[u8] = b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nUser-Agent: u \"a\"\r\nX-Request-Id: r-1\r\n\r\n";

fn counters() -> (Scoreboard, Counters) {
    let board = Scoreboard::new().expect("memory");
    let counters = board.reserve().and_then(|index| board.slot(index)).expect("a slot").counters();
    (board, counters)
}

fn head(bytes: &[u8]) -> Head {
    let mut head = Head::default();
    head.parse(bytes, fastrack_http::Limits::default()).expect("a good head");
    head
}

fn line<'a>(head: &Head, bytes: &'a [u8]) -> Line<'a> {
    Line {
        request: Request::of(head, bytes),
        address: Some([127, 0, 0, 1].into()),
        protocol: None,
        status: 200,
        length: 12,
        time: 1_795_355_237_045,
        duration: 1_234_567,
        queue_time: 89,
        timings: None,
    }
}

fn started(fd: RawFd, format: Format, counters: &Counters) -> AccessLog {
    AccessLog::start(&AccessLogSettings { fd, format, worker: 3 }, counters).expect("a thread")
}

#[test]
fn a_line_says_what_nginx_says_or_more_in_json() {
    let (_board, counters) = counters();
    let head = head(REQUEST);
    for (format, expected) in [
        (
            Format::Combined,
            "127.0.0.1 - - [22/Nov/2026:13:47:17 +0000] \"GET /a?b=c HTTP/1.1\" 200 12 \"-\" \"u \\x22a\\x22\"\n".to_owned(),
        ),
        (
            Format::Json,
            format!(
                "{{\"time\":\"2026-11-22T13:47:17.045Z\",\"duration\":1.234567,\"queue_time\":0.000089,\"status\":200,\
                 \"bytes\":12,\"worker\":3,\"pid\":{},\"remote_addr\":\"127.0.0.1\",\"method\":\"GET\",\"target\":\"/a?b=c\",\
                 \"request_id\":\"r-1\",\"user_agent\":\"u \\\"a\\\"\",\"referer\":null}}\n",
                std::process::id()
            ),
        ),
    ] {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let mut log = started(ours.as_raw_fd(), format, &counters);
        log.add(&line(&head, REQUEST), 5, &counters);
        log.flush_within(patience().as_millis() as u64, &counters);
        drop((log, ours));
        let mut text = String::new();
        theirs.read_to_string(&mut text).expect("the log");
        assert_eq!(text, expected);
    }
}

#[test]
fn nobody_waits_for_a_log_that_takes_nothing_and_what_is_lost_is_counted() {
    let (board, counters) = counters();
    let head = head(REQUEST);
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let mut log = started(ours.as_raw_fd(), Format::Json, &counters);
    let mut added = 0_u64;
    while board.totals().log_lines_dropped < 10 {
        log.add(&line(&head, REQUEST), 5, &counters);
        added += 1;
        assert!(added < 100_000);
    }
    assert!(log.batch.lines.len() < BATCH_LIMIT + LINE_LIMIT);
    let warning = log.take_warning(7).expect("a warning");
    assert!(warning.contains("10 lines"), "{warning}");
    assert_eq!(log.take_warning(8), None);
    let reader = std::thread::spawn(move || BufReader::new(theirs).lines().count() as u64);
    log.flush_within(patience().as_millis() as u64, &counters);
    drop((log, ours));
    assert_eq!(reader.join().expect("no panic"), added - 10);
    assert_eq!(board.totals().log_lines, added - 10);
}

#[test]
fn a_log_whose_reader_is_gone_costs_its_lines_and_nothing_else() {
    let (board, counters) = counters();
    let head = head(REQUEST);
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    drop(theirs);
    let mut log = started(ours.as_raw_fd(), Format::Combined, &counters);
    for now in [5, 5 + 2 * BATCH_AGE] {
        log.add(&line(&head, REQUEST), now, &counters);
        log.flush_within(patience().as_millis() as u64, &counters);
    }
    log.add(&line(&head, REQUEST), 9_999, &counters);
    log.flush_within(patience().as_millis() as u64, &counters);
    // A line is either counted as written or as dropped.
    assert_eq!((board.totals().log_lines, board.totals().log_lines_dropped), (0, 3));
    assert!(log.take_warning(9_999).is_some());
}

#[test]
fn what_cannot_be_written_before_the_worker_ends_is_counted_too() {
    let (board, counters) = counters();
    let head = head(REQUEST);
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let mut log = started(ours.as_raw_fd(), Format::Json, &counters);
    for _ in 0..3_000 {
        log.add(&line(&head, REQUEST), 5, &counters);
    }
    log.flush_within(50, &counters);
    // The socket takes some of them.
    let (written, dropped) = (board.totals().log_lines, board.totals().log_lines_dropped);
    assert!(dropped > 0 && written + dropped == 3_000, "{written} and {dropped}");
    drop((log, theirs, ours));
}
