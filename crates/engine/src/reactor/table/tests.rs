use super::*;
use crate::accept::Client;
use crate::claim::RequestSettings;
use crate::settings::Settings;
use std::io::Write;
use std::os::unix::net::UnixStream;

fn table() -> (Table, Arc<Control>) {
    let control = Control::new(-1, [], &RequestSettings::default()).expect("a control");
    (Table::new(Spooling::new(&Settings::default())).expect("a poller"), Arc::new(control))
}

fn connected(table: &mut Table, control: &Arc<Control>, deadline: u64) -> (UnixStream, usize) {
    let (client, server) = UnixStream::pair().expect("a pair");
    let before = table.keys();
    let connection = Connection::new(Client { fd: server.into(), peer: None, listener: 0 });
    table.park(connection, deadline, control).expect("park");
    let key = table.keys().into_iter().find(|key| !before.contains(key)).expect("a key");
    (client, key)
}

#[test]
fn a_deadline_that_was_put_off_is_not_due_before_its_time() {
    let (mut table, control) = table();
    let (_one, first) = connected(&mut table, &control, 100);
    let (_two, second) = connected(&mut table, &control, 200);
    let (connection, deadline) = table.take(first).expect("parked");
    assert_eq!((deadline, table.due(150)), (100, None));
    table.park(connection, 300, &control).expect("park");
    assert_eq!(table.due(250), Some(second));
    let (connection, _) = table.take(second).expect("parked");
    table.remove(&connection);
    assert_eq!(table.due(299), None);
    assert_eq!(table.due(300), Some(first));
    let (connection, _) = table.take(first).expect("parked");
    table.park(connection, 120, &control).expect("park");
    assert_eq!(table.next_deadline(), Some(120));
    assert_eq!(table.due(120), Some(first));
}

#[test]
fn an_event_that_comes_too_late_says_nothing_of_the_next_one_in_its_place() {
    let (mut table, control) = table();
    let (_one, key) = connected(&mut table, &control, 1);
    for _ in 0..2 {
        queue_event(&mut table.entries, &mut table.events, key, true, 7);
    }
    assert_eq!(table.events(), 1);
    let (connection, _) = table.take(key).expect("parked");
    table.remove(&connection);
    let (_other, same) = connected(&mut table, &control, 1);
    assert_eq!((same, table.next_event().expect("an event").2), (key, false));
    queue_event(&mut table.entries, &mut table.events, key, true, 7);
    assert_eq!(table.events(), 1);
}

#[test]
fn an_event_while_taken_out_is_returned_when_it_is_parked_again() {
    let (mut table, control) = table();
    let (mut client, key) = connected(&mut table, &control, 1);
    let (connection, _) = table.take(key).expect("parked");
    client.write_all(b"x").expect("write");
    table.poll().expect("poll");
    assert!(table.take(key).is_none() && table.events() == 1);
    assert!(table.next_event().is_none() && table.events() == 0);
    table.park(connection, 1, &control).expect("park");
    assert!(table.next_event().is_some());
}
