//! Compares the table of rules, their examples and the answers of the parser.

use std::collections::{BTreeMap, BTreeSet};

mod answer;
mod example;

use answer::{answer, Answer};
use example::Example;

const TABLE: &str = include_str!("../src/rules.md");

/// Offsets at which to cut an example: all; for a long example only those near its ends, and a few others.
fn cuts(len: usize) -> impl Iterator<Item = usize> {
    let is_near = move |cut: usize| len < 500 || cut < 60 || len - cut < 60;
    (0..=len).filter(move |cut| is_near(*cut) || cut % 997 == 0)
}

#[test]
fn the_examples_are_answered_as_they_say() {
    for Example { rule, status, bytes, seen } in example::all() {
        match answer([&bytes[..]]) {
            Answer::Refused(refused) => assert_eq!(refused, status, "{rule}: {}", bytes.escape_ascii()),
            Answer::Taken(parts) => {
                assert_eq!(status, 200, "{rule}: {}", bytes.escape_ascii());
                for (key, value) in seen {
                    assert_eq!(parts[&key], value, "{rule}: {key} of {}", bytes.escape_ascii());
                }
            }
            Answer::Partial => panic!("{rule}: {} is unfinished", bytes.escape_ascii()),
        }
    }
}

#[test]
fn the_answer_does_not_depend_on_where_the_bytes_are_cut() {
    for Example { rule, bytes, .. } in example::all() {
        let whole = answer([&bytes[..]]);
        for cut in cuts(bytes.len()) {
            let (first, second) = bytes.split_at(cut);
            let early = answer([first]);
            let is_early = matches!(early, Answer::Partial) || early == whole;
            assert!(is_early, "{rule}: {early:?} after {}", first.escape_ascii());
            assert_eq!(answer([first, second]), whole, "{rule}: cut after {}", first.escape_ascii());
        }
    }
}

#[test]
fn the_answer_is_the_same_byte_by_byte() {
    for Example { rule, bytes, .. } in example::all().into_iter().filter(|example| example.bytes.len() < 2000)
    {
        assert_eq!(answer(bytes.chunks(1)), answer([&bytes[..]]), "{rule}: {}", bytes.escape_ascii());
    }
}

#[test]
fn every_row_of_the_table_has_examples_of_all_its_answers_and_of_no_others() {
    let mut answers: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
    for Example { rule, status, .. } in example::all() {
        answers.entry(rule).or_default().insert(status);
    }
    assert_eq!(table(), answers);
}

/// The table's statuses, by rule.
fn table() -> BTreeMap<String, BTreeSet<u16>> {
    let rows = TABLE.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 7, "{row}");
        let words = cells[4].split(|byte: char| !byte.is_ascii_alphanumeric());
        let statuses = words.filter_map(|word| {
            if word == "accepted" {
                Some(200)
            } else {
                word.parse().ok().filter(|number| *number >= 100)
            }
        });
        assert!(cells[3].contains('§'), "{row} names no section");
        (cells[1].trim_matches('`').to_string(), statuses.collect())
    })
    .collect()
}
