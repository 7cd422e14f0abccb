//! Behaviour without a free descriptor. In a separate process, because no other test could run at the same time.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use nix::libc;
use nix::sys::resource::{getrlimit, setrlimit, Resource};

use fastrack_sys::{has_free_fds, message_queue, receive_message, replace_with_dev_null, send_message};

/// Opens files until no descriptor is free.
fn exhaust() -> Vec<File> {
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    assert!(!has_free_fds());
    files
}

#[test]
fn without_free_descriptors_nothing_is_left_open() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("limits");
    setrlimit(Resource::RLIMIT_NOFILE, most.min(200), most).expect("a limit");
    assert!(has_free_fds());
    a_message_without_room_is_an_error_that_leaves_nothing_open();
    sockets_are_closed_all_the_same();
}

fn a_message_without_room_is_an_error_that_leaves_nothing_open() {
    let (sender, receiver) = message_queue().expect("a queue");
    let (passed, mut other) = UnixStream::pair().expect("a pair");
    let both = [passed.as_fd(), passed.as_fd()];
    send_message(sender.as_fd(), b"lost", &both).expect("send");
    send_message(sender.as_fd(), b"taken", &both).expect("send");
    drop(passed);
    let mut files = exhaust();
    files.truncate(files.len() - 1);
    assert!(!has_free_fds());
    let mut buffer = [0; 16];
    // One of the two descriptors has room.
    let error = receive_message(receiver.as_fd(), &mut buffer).expect_err("no room");
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    files.truncate(files.len() - 2);
    assert!(has_free_fds());
    let (length, fds) = receive_message(receiver.as_fd(), &mut buffer).expect("receive");
    assert_eq!((&buffer[..length], fds.len()), (&b"taken"[..], 2));
    drop(fds);
    other.set_nonblocking(true).expect("nonblocking");
    assert_eq!(other.read(&mut buffer).expect("the end"), 0);
}

fn sockets_are_closed_all_the_same() {
    let pairs = [UnixStream::pair(), UnixStream::pair()].map(|pair| pair.expect("a pair"));
    let files = exhaust();
    let owned = pairs.each_ref().map(|(near, _)| near.as_raw_fd());
    // SAFETY: the descriptors are open, and their owners only write to them and close them.
    unsafe { replace_with_dev_null(owned) }.expect("room is made");
    for (near, far) in &pairs {
        let (mut near, mut far) = (near, far);
        assert_eq!(far.read(&mut [0; 1]).expect("the end"), 0);
        // The number still belongs to its owner, but is a device now.
        near.write_all(b"nowhere").expect_err("no socket");
    }
    assert!(!has_free_fds());
    drop((pairs, files));
    assert!(has_free_fds());
}
