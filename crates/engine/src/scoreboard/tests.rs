use std::os::fd::AsRawFd;

use fastrack_http::{Head, Limits};

use super::layout::{ThreadSlot, NEVER};
use super::*;

fn begin(slot: &ThreadSlot, bytes: &[u8]) -> u64 {
    let mut head = Head::default();
    head.parse(bytes, Limits::default()).expect("a good head");
    slot.begin_request(&head, bytes, 5, 7)
}

#[test]
fn the_master_reads_what_the_worker_is_doing() {
    let board = Scoreboard::new().expect("memory");
    assert_eq!((board.read(0), board.read(board.board.slots.len())), (None, None));
    let index = board.reserve().expect("a slot");
    let slot = &board.board.slots[index].threads[0];
    assert_eq!(board.read(index).map(|entry| entry.state), Some(State::Waiting));
    let worker = WorkerId { nr: 2, pid: 77, generation: 3 };
    board.assign(index, worker);
    let one = begin(slot, b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nX-Request-ID: abc-123456789\r\n\r\n");
    let line = b"GET /a".to_vec();
    let serving = Entry {
        state: State::Serving,
        started: 5,
        deadline: Some(7),
        in_callbacks: false,
        requests: 0,
        line,
        id: b"abc-123456789".to_vec(),
        worker: Some(worker),
        memory: None,
    };
    assert_eq!(board.read(index), Some(serving));
    assert_eq!(slot.texts(), (b"GET /a?b=c".to_vec(), b"abc-123456789".to_vec()));
    slot.end_request();
    assert_eq!(board.read(index).map(|entry| (entry.state, entry.requests)), Some((State::Waiting, 1)));
    let two = begin(slot, b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    slot.deadline.set(NEVER);
    let entry = board.read(index).expect("an entry");
    assert_eq!(
        (entry.line.as_slice(), entry.id.as_slice(), entry.deadline),
        (&b"HEAD /"[..], &b""[..], None)
    );
    assert_ne!(one, two);
    let memory = Memory { proportional: 9, private: 4 };
    board.note_memory(index, memory);
    assert_eq!(board.read(index).and_then(|entry| entry.memory), Some(memory));
    board.release(index);
    assert_eq!(board.read(index), None);
    assert_eq!(board.reserve(), Some(index));
    assert_eq!(board.read(index).map(|entry| (entry.worker, entry.memory)), Some((None, None)));
}

#[test]
fn a_long_target_is_truncated_and_a_torn_one_is_not_shown() {
    let board = Scoreboard::new().expect("memory");
    let index = board.reserve().expect("a slot");
    let slot = &board.board.slots[index].threads[0];
    let long =
        format!("GET /{} HTTP/1.1\r\nHost: h\r\nX-Request-Id: {}\r\n\r\n", "p".repeat(999), "i".repeat(99));
    begin(slot, long.as_bytes());
    let entry = board.read(index).expect("an entry");
    assert_eq!(entry.line, format!("GET /{}", "p".repeat(203)).into_bytes());
    assert_eq!(entry.id, b"i".repeat(64));
    let mut torn = None;
    slot.sequence.write(|| torn = board.read(index));
    let entry = torn.expect("an entry");
    assert_eq!((entry.state, entry.line.len(), entry.id.len()), (State::Serving, 0, 0));
}

#[test]
fn a_worker_begins_at_0_and_its_number_keeps_what_its_predecessors_answered() {
    let board = Scoreboard::new().expect("memory");
    let fork = |nr, requests| {
        let index = board.reserve().expect("a slot");
        board.assign(index, WorkerId { nr, pid: 7, generation: 1 });
        (0..requests).for_each(|_| board.board.slots[index].threads[0].end_request());
        index
    };
    let [zero, one] = [fork(0, 3), fork(1, 5)];
    // The successor serves beside its predecessor for a while, in another slot.
    let successor = fork(0, 2);
    assert_eq!(board.requests_by_number(), [5, 5]);
    for index in [zero, one, zero] {
        board.release(index);
    }
    // This one has the slot of another number's former worker.
    assert_eq!((fork(1, 0), board.read(zero).map(|entry| entry.requests)), (zero, Some(0)));
    assert_eq!(
        (board.requests_by_number(), board.read(successor).map(|entry| entry.requests)),
        (vec![5, 5], Some(2))
    );
    fork(u64::MAX, 1);
    assert_eq!(board.requests_by_number().len(), MAX_WORKERS);
}

#[test]
fn there_is_a_slot_for_each_of_many_workers_and_then_none() {
    let board = Scoreboard::new().expect("memory");
    let slots: Vec<_> = std::iter::from_fn(|| board.reserve()).collect();
    assert_eq!(slots, (0..board.board.slots.len()).collect::<Vec<_>>());
    board.release(17);
    assert_eq!((board.reserve(), board.reserve()), (Some(17), None));
}

#[test]
fn a_request_is_counted_by_its_status_and_by_the_time_it_took_and_had_waited() {
    let board = Scoreboard::new().expect("memory");
    let index = board.reserve().expect("a slot");
    let counters = board.slot(index).expect("the slot").counters();
    for (class, millis, queued) in [(2, 0, 0), (2, 5, 6_000), (4, 60_001, 0), (9, 7, 30_000_000)] {
        counters.count_request(class, millis, queued, 100);
    }
    counters.count_lost(true, 2_000);
    counters.count_lost(false, 1);
    let counts = board.counts(index).expect("counts");
    assert_eq!(counts.responses(), [1, 0, 2, 0, 1, 2]);
    assert_eq!((counts.requests(), counters.requests(), counts.bytes_out), (6, 6, 400));
    assert_eq!((counts.durations[2].buckets[0], counts.durations[2].sum), (2, 5));
    assert_eq!((counts.durations[4].buckets[13], counts.durations[4].sum), (1, 60_001));
    assert_eq!((counts.durations[5].buckets[1], counts.durations[5].buckets[8]), (1, 1));
    assert_eq!(counts.queue_times.buckets, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!((counts.queue_times.sum, counts.queue_times.count()), (30_006, 4));
}

#[test]
fn totals_never_go_back_when_workers_end_and_others_take_their_slots() {
    let board = Scoreboard::new().expect("memory");
    let mut last = Counts::default();
    for round in 1..=3 {
        let slots = [board.reserve(), board.reserve()].map(|index| index.expect("a slot"));
        assert_eq!(board.used(), 2);
        for index in slots {
            let counters = board.slot(index).expect("the slot").counters();
            counters.count_request(2, 1, 1_000, 10);
            counters.add(Count::Accepted, 1);
            counters.set(Count::Idle, 2);
            counters.set(Count::Waiting, 5);
        }
        let totals = board.totals();
        assert_eq!(
            (totals.requests(), totals.accepted, totals.bytes_out),
            (2 * round, 2 * round, 20 * round)
        );
        assert_eq!((totals.connections.idle, totals.connections.waiting), (4, 10));
        assert!(totals.queue_times.sum > last.queue_times.sum);
        slots.into_iter().for_each(|index| board.release(index));
        let after = board.totals();
        assert_eq!((after.requests(), after.connections), (totals.requests(), Connections::default()));
        last = after;
    }
}

#[test]
fn restarts_are_counted_by_their_cause() {
    let board = Scoreboard::new().expect("memory");
    board.count_restart(Cause::Memory);
    board.count_restart(Cause::Exit);
    board.count_restart(Cause::Exit);
    let restarts: Vec<_> = board.restarts().into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(restarts, [(Cause::Memory, 1), (Cause::Exit, 2)]);
    for (index, (cause, _)) in board.restarts().into_iter().enumerate() {
        assert_eq!(cause as usize, index, "{}", cause.name());
    }
}

#[test]
fn a_process_that_inherits_the_descriptor_sees_the_same_scoreboard() {
    let (board, file) = Scoreboard::with_file().expect("memory");
    let file = file.expect("a file");
    // SAFETY: the file is open, and is a scoreboard's.
    let copy = unsafe { Scoreboard::from_raw_fd(file.as_raw_fd()) }.expect("a copy");
    drop(file);
    let index = copy.reserve().expect("a free slot");
    let worker = WorkerId { nr: 3, pid: 4711, generation: 2 };
    copy.assign(index, worker);
    assert_eq!(board.read(index).and_then(|entry| entry.worker), Some(worker));
    assert_ne!(board.reserve(), Some(index));
}

#[test]
fn numbers_that_an_application_has_overwritten_keep_no_reader_busy() {
    let board = Scoreboard::new().expect("memory");
    let index = board.reserve().expect("a slot");
    board.assign(index, WorkerId { nr: u64::MAX, pid: 77, generation: u64::MAX });
    board.board.used.set(u64::MAX);
    let slot = &board.board.slots[index];
    slot.other_threads.set(u64::MAX);
    slot.memory.proportional.set(u64::MAX);
    for thread in &slot.threads {
        thread.started.set(u64::MAX);
        thread.requests.set(1 << 50);
        thread.state.set(State::Serving);
    }
    assert_eq!(board.used(), board.board.slots.len());
    assert!(board.read(index).is_some());
    board.totals();
    board.requests_by_number();
    board.release(index);
    assert!(board.reserve().is_some());
}
