//! What happens where no descriptor is free. In a process of its own, for no other test could run meanwhile.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::sys::resource::{getrlimit, setrlimit, Resource};

use fastrack_sys::{has_room, message_queue, receive_message, send_message};

#[test]
fn a_message_that_could_not_be_taken_whole_is_an_error_that_leaves_nothing_open() {
    let (sender, receiver) = message_queue().expect("a queue");
    let (passed, other) = UnixStream::pair().expect("a pair");
    let both = [passed.as_fd(), passed.as_fd()];
    send_message(sender.as_fd(), b"lost", &both).expect("send");
    send_message(sender.as_fd(), b"taken", &both).expect("send");
    drop(passed);
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("limits");
    setrlimit(Resource::RLIMIT_NOFILE, most.min(200), most).expect("a limit");
    assert!(has_room());
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    assert!(!has_room());
    files.truncate(files.len() - 1);
    assert!(!has_room());
    let mut buffer = [0; 16];
    // There is room for one of the two.
    let error = receive_message(receiver.as_fd(), &mut buffer).expect_err("no room");
    assert_eq!(error.raw_os_error(), Some(24), "EMFILE");
    files.truncate(files.len() - 2);
    assert!(has_room());
    let (length, fds) = receive_message(receiver.as_fd(), &mut buffer).expect("receive");
    assert_eq!((&buffer[..length], fds.len()), (&b"taken"[..], 2));
    drop(fds);
    other.set_nonblocking(true).expect("nonblocking");
    assert_eq!(io::Read::read(&mut &other, &mut buffer).expect("the end"), 0);
}
