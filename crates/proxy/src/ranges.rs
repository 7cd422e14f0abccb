//! Ranges of a file (RFC 9110 §14).

use std::ops::Range;

/// The most ranges that one request may have. A request with more gets the whole file: it wants bytes again and again.
const MAX_RANGES: usize = 16;

/// The ranges of a Range field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// The whole file: the field means nothing (RFC 9110 §14.2 lets a server ignore it).
    Whole,
    /// These bytes, in the order of the field. None is empty.
    Some(Vec<Range<u64>>),
    /// Nothing that the file has: 416.
    Unsatisfiable,
}

/// Reads a Range field about a file of `length` bytes.
pub fn parse(value: &str, length: u64) -> Ranges {
    let Some((unit, list)) = value.split_once('=') else { return Ranges::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Ranges::Whole;
    }
    let mut ranges = Vec::new();
    let mut count = 0;
    for one in list.split(',').map(|one| one.trim_matches([' ', '\t'])).filter(|one| !one.is_empty()) {
        count += 1;
        match range(one, length) {
            _ if count > MAX_RANGES => return Ranges::Whole,
            None => return Ranges::Whole,
            Some(range) if range.is_empty() => {}
            Some(range) => ranges.push(range),
        }
    }
    let bytes = ranges.iter().map(|range| range.end - range.start).fold(0u64, u64::saturating_add);
    match count {
        0 => Ranges::Whole,
        _ if ranges.is_empty() => Ranges::Unsatisfiable,
        // More bytes than the file has (RFC 9110 §14.2: overlapping ranges are an attack).
        _ if ranges.len() > 1 && bytes > length => Ranges::Whole,
        _ => Ranges::Some(ranges),
    }
}

/// One range: `0-499`, `500-` or `-500`. None if the text is no range. Empty if the file has none of these bytes.
fn range(text: &str, length: u64) -> Option<Range<u64>> {
    let (first, last) = text.split_once('-')?;
    if first.is_empty() {
        let count = number(last)?;
        return Some(length.saturating_sub(count)..length);
    }
    let first = number(first)?;
    let end = if last.is_empty() { u64::MAX } else { number(last)?.saturating_add(1) };
    (first < end).then(|| first.min(length)..end.min(length))
}

/// A number too large for 64 bits is as good as the largest one.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_as_the_rfc_has_them() {
        let some =
            |ranges: &[(u64, u64)]| Ranges::Some(ranges.iter().map(|(start, end)| *start..*end).collect());
        for (value, expected) in [
            ("bytes=0-499", some(&[(0, 500)])),
            ("bytes=500-", some(&[(500, 1000)])),
            ("bytes=-1", some(&[(999, 1000)])),
            ("bytes=-5000", some(&[(0, 1000)])),
            ("bytes=0-0,-1", some(&[(0, 1), (999, 1000)])),
            ("Bytes = 0-0 , 2-3 ,", some(&[(0, 1), (2, 4)])),
            ("bytes=990-2000", some(&[(990, 1000)])),
            ("bytes=0-99999999999999999999999", some(&[(0, 1000)])),
            ("bytes=1000-", Ranges::Unsatisfiable),
            ("bytes=-0", Ranges::Unsatisfiable),
            ("bytes=5000-6000, 1000-1001", Ranges::Unsatisfiable),
            ("bytes=5000-6000, 1-2", some(&[(1, 3)])),
            ("bytes=3-2", Ranges::Whole),
            ("bytes=a-b", Ranges::Whole),
            ("bytes=1", Ranges::Whole),
            ("bytes=", Ranges::Whole),
            ("bytes", Ranges::Whole),
            ("lines=0-1", Ranges::Whole),
            ("bytes=0-,0-", Ranges::Whole),
            ("bytes=+1-2", Ranges::Whole),
        ] {
            assert_eq!(parse(value, 1000), expected, "{value}");
        }
        assert_eq!(parse("bytes=0-", 0), Ranges::Unsatisfiable);
        assert_eq!(parse(&format!("bytes={}", vec!["0-0"; MAX_RANGES + 1].join(",")), 1000), Ranges::Whole);
    }

    proptest! {
        #[test]
        fn no_range_is_empty_or_outside_of_the_file(value in "bytes=[0-9, -]{0,40}|[ -~]{0,40}", length in 0u64..2000) {
            if let Ranges::Some(ranges) = parse(&value, length) {
                prop_assert!(!ranges.is_empty() && ranges.len() <= MAX_RANGES);
                prop_assert!(ranges.iter().all(|range| range.start < range.end && range.end <= length));
            }
        }
    }
}
