//! A monitor in this process, from outside.

#![cfg(all(target_os = "linux", not(feature = "portable")))]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use fastrack_engine::{Scoreboard, WorkerId};
use fastrack_monitor::{
    MasterState, MoldState, Monitor, MonitorSettings, Order, ServerPhase, WorkerPhase, WorkerState,
};
use patience::{eventually, patience};

#[path = "../../sys/tests/patience/mod.rs"]
mod patience;

fn start(path: &Path, scoreboard: &Scoreboard) -> Monitor {
    start_beside(path, scoreboard, false)
}

/// `replaces`: another server may still listen at the path.
fn start_beside(path: &Path, scoreboard: &Scoreboard, replaces: bool) -> Monitor {
    let settings = MonitorSettings {
        path: Some(path.to_owned()),
        user: None,
        listen: None,
        token: None,
        version: "1.2.3".into(),
        ruby: "ruby 3.4.1".into(),
        host: "web-1".into(),
        threads: 1,
        started_at: 0.0,
        replaces,
    };
    let mut monitor = Monitor::start(settings, scoreboard.clone()).expect("a monitor");
    monitor.listen();
    monitor
}

fn ask(path: &Path, request: &str) -> std::io::Result<String> {
    ask_as(path, request, "h")
}

fn ask_as(path: &Path, request: &str, host: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(patience()))?;
    stream.write_all(format!("{request} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn order(number: u64) -> Order {
    Order {
        number,
        signal: "USR2".into(),
        state: "failed".into(),
        reason: Some("no luck".into()),
        pid: Some(9),
    }
}

#[test]
fn the_status_shows_the_published_state_and_the_scoreboard() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("control");
    let scoreboard = Scoreboard::new().expect("memory");
    let slot = scoreboard.reserve();
    scoreboard.assign(slot.expect("a slot"), WorkerId { nr: 0, pid: std::process::id(), generation: 3 });
    let monitor = start(&path, &scoreboard);
    let worker = WorkerState {
        nr: 0,
        pid: std::process::id(),
        generation: 3,
        phase: WorkerPhase::Serving,
        spawned_at: 1.0,
        slot,
    };
    monitor.publish(MasterState {
        phase: ServerPhase::Serving,
        generation: 3,
        wanted: 1,
        stop_seconds: 30.0,
        other_master: None,
        orders: [order(7)].into(),
        workers: [worker].into(),
        mold: Some(MoldState { pid: std::process::id(), generation: 2, requests: 312, memory: None }),
        listeners: [].into(),
        ..MasterState::default()
    });
    let page = eventually(|| ask(&path, "GET /metrics").ok());
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\n# EOF\n"), "{page}");
    for line in [
        "fastrack_build{version=\"1.2.3\"} 1.0",
        "fastrack_phase{phase=\"serving\"} 1.0",
        "fastrack_workers{state=\"idle\"} 1.0",
        "fastrack_requests_total{status=\"2xx\"} 0.0",
        "fastrack_worker_requests{process=\"worker[0]\"} 0.0",
        "fastrack_slot_requests_total{process=\"worker[0]\"} 0.0",
        "fastrack_mold_generation 2.0",
        "fastrack_mold_requests 312.0",
        "fastrack_queue_seconds_bucket{le=\"+Inf\"} 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in {page}");
    }
    assert!(ask(&path, "GET /readyz").expect("an answer").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(ask(&path, "GET /nothing").expect("an answer").starts_with("HTTP/1.1 404 "));
    assert!(ask(&path, "BREW /").expect("an answer").starts_with("HTTP/1.1 405 "));
}

#[test]
fn listen_returns_only_after_the_monitor_listens() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("control");
    let scoreboard = Scoreboard::new().expect("memory");
    for replaces in [false, true].repeat(10) {
        let _monitor = start_beside(&path, &scoreboard, replaces);
        assert!(ask(&path, "GET /healthz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 ")));
    }
}

#[test]
fn only_the_owner_may_connect_and_only_the_own_socket_file_is_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("control");
    let scoreboard = Scoreboard::new().expect("memory");
    let mut one = start(&path, &scoreboard);
    let found = eventually(|| fs::metadata(&path).ok());
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    let stranger = start(&path, &scoreboard);
    let text = eventually(|| stranger.warning());
    assert!(text.contains("another process listens there"), "{text}");
    let ours = |found: &fs::Metadata| std::os::unix::fs::MetadataExt::ino(found);
    assert!(fs::metadata(&path).is_ok_and(|later| ours(&later) == ours(&found)));
    let mut other = start_beside(&path, &scoreboard, true);
    eventually(|| fs::metadata(&path).ok().filter(|later| ours(later) != ours(&found)));
    one.close();
    assert!(ask(&path, "GET /healthz").expect("an answer").ends_with("ok\n"));
    other.close();
    assert!(!path.exists());
}

#[test]
fn an_address_that_cannot_be_used_is_a_warning_and_nothing_more() {
    let dir = tempfile::tempdir().expect("a directory");
    let scoreboard = Scoreboard::new().expect("memory");
    let mut monitor = start(&dir.path().join("nowhere/control"), &scoreboard);
    let text = eventually(|| monitor.warning());
    assert!(text.starts_with("no monitor at ") && text.contains("No such file"), "{text}");
    // The same warning is not repeated.
    monitor.listen();
    fs::create_dir(dir.path().join("made")).expect("a directory");
    fs::write(dir.path().join("made/control"), "").expect("a file");
    fs::rename(dir.path().join("made"), dir.path().join("nowhere")).expect("a name");
    let text = eventually(|| {
        monitor.listen();
        monitor.warning()
    });
    assert!(text.contains("not a socket"), "{text}");
    assert_eq!(monitor.warning(), None);
    let long = start(&dir.path().join("x".repeat(100)), &scoreboard);
    let text = eventually(|| long.warning());
    assert!(text.contains("bytes too long for a socket"), "{text}");
}

#[test]
fn a_page_of_another_domain_cannot_read_the_answers() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("control");
    let monitor = start(&path, &Scoreboard::new().expect("memory"));
    eventually(|| fs::metadata(&path).ok());
    for host in [
        "attacker.example:9394",
        "attacker.example",
        "127.0.0.1.attacker.example",
        "localhost.:1",
        "\u{e9}.fr",
    ] {
        let answer = ask_as(&path, "GET /status.json", host).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 421 "), "{host}: {answer}");
    }
    for host in ["localhost", "localhost:9394", "127.0.0.1:9394", "[::1]:9394", "10.1.2.3", "app", ""] {
        let answer = ask_as(&path, "GET /healthz", host).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
    }
    drop(monitor);
}

#[test]
fn names_of_listeners_are_escaped_in_the_metrics() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("control");
    let socket = std::os::unix::net::UnixListener::bind(dir.path().join("app")).expect("a listener");
    let inode =
        fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&socket))).expect("a link");
    let inode: String = inode.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let monitor = start(&path, &Scoreboard::new().expect("memory"));
    let listener = fastrack_monitor::ListenerInfo {
        name: "unix:a\"b\\c\nd".into(),
        inode: inode.parse().expect("a number"),
        is_tcp: false,
        limit: None,
    };
    monitor.publish(MasterState { listeners: [listener].into(), ..MasterState::default() });
    let page = eventually(|| ask(&path, "GET /metrics").ok());
    let line = r#"fastrack_listen_backlog{listener="unix:a\"b\\c\nd"} 0.0"#;
    assert!(page.lines().any(|found| found == line), "{page}");
}

#[test]
fn all_answers_agree_that_a_server_without_a_ready_worker_is_down() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("control");
    let scoreboard = Scoreboard::new().expect("memory");
    let monitor = start(&path, &scoreboard);
    // No process has this pid.
    let worker = WorkerState {
        nr: 0,
        pid: u32::MAX,
        generation: 1,
        phase: WorkerPhase::Serving,
        spawned_at: 1.0,
        slot: None,
    };
    monitor.publish(MasterState {
        phase: ServerPhase::Serving,
        wanted: 1,
        workers: [worker].into(),
        orders: [order(7)].into(),
        ..MasterState::default()
    });
    let status = eventually(|| {
        ask(&path, "GET /status.json").ok().filter(|status| status.contains("\"phase\":\"down\""))
    });
    assert!(status.contains("\"serves\":false"), "{status}");
    assert!(
        status.contains(r#"{"number":7,"pid":9,"reason":"no luck","signal":"USR2","state":"failed"}"#),
        "{status}"
    );
    let ready = ask(&path, "GET /readyz").expect("an answer");
    assert!(
        ready.starts_with("HTTP/1.1 503 ") && ready.ends_with("\r\ndown, 0 of 1 workers ready\n"),
        "{ready}"
    );
    let page = ask(&path, "GET /metrics").expect("an answer");
    assert!(page.contains("\nfastrack_phase{phase=\"down\"} 1.0\n"), "{page}");
    // The default action of this signal is to do nothing. The answer names the last order before the signal.
    let sent = ask(&path, "POST /refork").expect("an answer");
    let expected = format!(r#"{{"after":7,"pid":{},"sent":"URG"}}"#, std::process::id());
    assert!(sent.starts_with("HTTP/1.1 202 ") && sent.trim_end().ends_with(&expected), "{sent}");
}
