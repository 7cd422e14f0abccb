//! Reads rules.txt.

const EXAMPLES: &str = include_str!("../rules.txt");

/// A request and its expected answer.
#[derive(Debug)]
pub struct Example {
    pub rule: String,
    /// 200: accepted.
    pub status: u16,
    pub bytes: Vec<u8>,
    /// The parts that the application must get.
    pub seen: Vec<(String, Vec<u8>)>,
}

/// All examples, in the order of the file.
pub fn all() -> Vec<Example> {
    EXAMPLES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(example).collect()
}

fn example(line: &str) -> Example {
    let (rule, rest) = line.split_once(' ').expect(line);
    let (status, rest) = rest.split_once(' ').expect(line);
    let (bytes, mut rest) = string(rest);
    let mut seen = Vec::new();
    while let Some((key, quoted)) = rest.trim_start().split_once('=') {
        let (value, after) = string(quoted);
        seen.push((key.to_string(), value));
        rest = after;
    }
    assert!(rest.is_empty(), "{line}");
    Example { rule: rule.to_string(), status: status.parse().expect(line), bytes, seen }
}

/// The quoted string at the start of `text`, and the remaining text.
fn string(text: &str) -> (Vec<u8>, &str) {
    let mut bytes = Vec::new();
    let mut rest = text.strip_prefix('"').expect(text);
    let mut group = None;
    loop {
        let (byte, after) = character(rest);
        rest = after;
        match (byte, group) {
            (Character::Escaped(byte), _) => bytes.push(byte),
            (Character::Plain(b'"'), _) => return (bytes, rest),
            (Character::Plain(b'{'), None) if !rest.starts_with('}') => group = Some(bytes.len()),
            (Character::Plain(b'*'), Some(start)) => {
                let (count, after) = rest.split_once('}').expect(text);
                let again = bytes.split_off(start);
                bytes.extend(again.repeat(count.parse().expect(text)));
                (group, rest) = (None, after);
            }
            (Character::Plain(byte), _) => bytes.push(byte),
        }
    }
}

enum Character {
    Plain(u8),
    Escaped(u8),
}

fn character(text: &str) -> (Character, &str) {
    let (first, rest) = text.split_at(1);
    let plain = first.as_bytes()[0];
    if plain != b'\\' {
        return (Character::Plain(plain), rest);
    }
    let (kind, after) = rest.split_at(1);
    let byte = match kind {
        "r" => b'\r',
        "n" => b'\n',
        "t" => b'\t',
        "0" => 0,
        "x" => {
            let (digits, after) = after.split_at(2);
            return (Character::Escaped(u8::from_str_radix(digits, 16).expect(text)), after);
        }
        other => other.as_bytes()[0],
    };
    (Character::Escaped(byte), after)
}
