//! One line of the access log.

use std::io::Write;
use std::net::IpAddr;
use std::ops::Range;

use fastrack_http::{Date, DateCache, Head, KnownName};

use super::escape::{json, quoted};

/// How the lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// As Apache and nginx write it.
    #[default]
    Combined,
    /// An object in JSON.
    Json,
}

/// No line is longer, in bytes: a pipe takes as much as a whole, without mixing it with other processes' (PIPE_BUF, pipe(7)).
pub(super) const LONGEST: usize = 4096;

/// How a line is divided.
struct Parts {
    method: usize,
    target: usize,
    referer: usize,
    user_agent: usize,
    request_id: usize,
    /// All that is no client's: numbers, times and names.
    rest: usize,
}

/// The most that each part takes, in bytes.
const MOST: Parts =
    Parts { method: 40, target: 1_800, referer: 900, user_agent: 600, request_id: 200, rest: 500 };

const _: () = {
    let Parts { method, target, referer, user_agent, request_id, rest } = MOST;
    assert!(method + target + referer + user_agent + request_id + rest <= LONGEST);
};

/// What a line says of a request and its response.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    pub head: &'a Head,
    /// What the head was parsed from.
    pub bytes: &'a [u8],
    pub status: u16,
    /// The length of the response's body.
    pub length: u64,
    /// When the request was finished, in milliseconds since 1970.
    pub time: u64,
    /// How long the application took, and how long the request had waited for it, in microseconds.
    pub duration: u64,
    pub queue_time: u64,
}

/// The beginning of a line in JSON. Only its digits change, so most lines need no more than theirs.
const BEGINNING: [u8; 98] =
    *b"{\"time\":\"1970-01-01T00:00:00.000Z\",\"duration\":0.000000,\"queue_time\":0.000000,\
    \"status\":200,\"bytes\":";
const SECOND: Range<usize> = 9..28;
const MILLIS: Range<usize> = 29..32;
const DURATION: Range<usize> = 46..54;
const QUEUE_TIME: Range<usize> = 68..76;
const STATUS: Range<usize> = 86..89;

/// Times that take one digit before the point, in microseconds.
const SHORT: Range<u64> = 0..10_000_000;

/// What lines have in common.
#[derive(Debug)]
pub(super) struct Texts {
    address: Option<IpAddr>,
    /// The address as text.
    client: Vec<u8>,
    /// `,"worker":1,"pid":2,"remote_addr":"127.0.0.1","method":"`, and how much of it is the worker's.
    origin: Vec<u8>,
    worker: usize,
    second: u64,
    date: DateCache,
    /// The time of that second: `22/Nov/2026:13:47:17 +0000`.
    combined: [u8; 26],
    json: [u8; BEGINNING.len()],
}

impl Texts {
    pub fn new(worker: u64) -> Self {
        let origin =
            format!(",\"worker\":{worker},\"pid\":{},\"remote_addr\":", std::process::id()).into_bytes();
        let mut texts = Texts {
            address: None,
            client: Vec::new(),
            worker: origin.len(),
            origin,
            second: 0,
            date: DateCache::default(),
            combined: *b"01/Jan/1970:00:00:00 +0000",
            json: BEGINNING,
        };
        texts.set_address(None);
        texts
    }

    pub fn write(&mut self, format: Format, line: &Line<'_>, address: Option<IpAddr>, out: &mut Vec<u8>) {
        if address != self.address {
            self.set_address(address);
        }
        if line.time / 1000 != self.second {
            self.set_second(line.time / 1000);
        }
        match format {
            Format::Combined => self.write_combined(line, out),
            Format::Json => self.write_json(line, out),
        }
    }

    /// With many clients each line may need this: what there is of memory is used again.
    #[cold]
    fn set_address(&mut self, address: Option<IpAddr>) {
        self.address = address;
        self.client.clear();
        self.origin.truncate(self.worker);
        // Neither can fail.
        let _ = match address {
            Some(address) => write!(self.client, "{address}")
                .and_then(|()| write!(self.origin, "\"{address}\",\"method\":\"")),
            None => self.client.write_all(b"-").and_then(|()| self.origin.write_all(b"null,\"method\":\"")),
        };
    }

    #[cold]
    fn set_second(&mut self, second: u64) {
        self.second = second;
        // Sun, 22 Nov 2026 13:47:17 GMT
        let date: &Date = self.date.at(second);
        let (day, month, year, time) = (&date[5..7], &date[8..11], &date[12..16], &date[17..25]);
        const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
        let number = MONTHS.chunks(3).position(|name| name == month).unwrap_or(0) + 1;
        fill(&mut self.combined, &[day, b"/", month, b"/", year, b":", time]);
        fill(&mut self.json[SECOND], &[year, b"-", &PAIRS[number % 100], b"-", day, b"T", time]);
    }

    fn write_combined(&self, line: &Line<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.client);
        out.extend_from_slice(b" - - [");
        out.extend_from_slice(&self.combined);
        out.extend_from_slice(b"] \"");
        quoted(line.head.request_line(line.bytes), MOST.method + MOST.target, out);
        out.extend_from_slice(b"\" ");
        number(line.status.into(), out);
        out.push(b' ');
        number(line.length, out);
        for (name, most) in [(KnownName::Referer, MOST.referer), (KnownName::UserAgent, MOST.user_agent)] {
            out.extend_from_slice(b" \"");
            match field(line, name) {
                Some(value) => quoted(value, most, out),
                None => out.push(b'-'),
            }
            out.push(b'"');
        }
        out.push(b'\n');
    }

    fn write_json(&mut self, line: &Line<'_>, out: &mut Vec<u8>) {
        self.json[MILLIS].copy_from_slice(&three_digits(line.time % 1000));
        let is_usual = SHORT.contains(&line.duration) && SHORT.contains(&line.queue_time);
        if is_usual && (100..1000).contains(&line.status) {
            self.json[DURATION].copy_from_slice(&short_seconds(line.duration));
            self.json[QUEUE_TIME].copy_from_slice(&short_seconds(line.queue_time));
            self.json[STATUS].copy_from_slice(&three_digits(line.status.into()));
            out.extend_from_slice(&self.json);
        } else {
            self.begin_with_long_numbers(line, out);
        }
        number(line.length, out);
        out.extend_from_slice(&self.origin);
        match line.head.method.of_buffer(line.bytes) {
            // Most are, and need no look at each byte.
            b"GET" => out.extend_from_slice(b"GET"),
            method => json(method, MOST.method, out),
        }
        out.extend_from_slice(b"\",\"target\":\"");
        json(line.head.target.of_buffer(line.bytes), MOST.target, out);
        let fields = [
            (KnownName::XRequestId, MOST.request_id),
            (KnownName::UserAgent, MOST.user_agent),
            (KnownName::Referer, MOST.referer),
        ];
        if !fields.iter().any(|(name, _)| line.head.has(*name)) {
            return out.extend_from_slice(b"\",\"request_id\":null,\"user_agent\":null,\"referer\":null}\n");
        }
        let names = [&b"\",\"request_id\":"[..], b",\"user_agent\":", b",\"referer\":"];
        for (key, (name, most)) in names.into_iter().zip(fields) {
            out.extend_from_slice(key);
            text(field(line, name), most, out);
        }
        out.extend_from_slice(b"}\n");
    }

    /// A request that took ten seconds or more, or that has no status.
    #[cold]
    fn begin_with_long_numbers(&self, line: &Line<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.json[..DURATION.start]);
        seconds(line.duration, out);
        out.extend_from_slice(&self.json[DURATION.end..QUEUE_TIME.start]);
        seconds(line.queue_time, out);
        out.extend_from_slice(&self.json[QUEUE_TIME.end..STATUS.start]);
        number(line.status.into(), out);
        out.extend_from_slice(&self.json[STATUS.end..]);
    }
}

fn fill(out: &mut [u8], parts: &[&[u8]]) {
    let mut rest = out;
    for part in parts {
        let (place, after) = rest.split_at_mut(part.len());
        place.copy_from_slice(part);
        rest = after;
    }
}

fn field<'a>(line: &Line<'a>, name: KnownName) -> Option<&'a [u8]> {
    if !line.head.has(name) {
        return None;
    }
    let field = line.head.fields.iter().find(|field| field.known == Some(name))?;
    Some(field.value.of_buffer(line.bytes))
}

fn text(value: Option<&[u8]>, most: usize, out: &mut Vec<u8>) {
    let Some(value) = value else { return out.extend_from_slice(b"null") };
    out.push(b'"');
    json(value, most, out);
    out.push(b'"');
}

/// Seconds with six digits.
fn seconds(micros: u64, out: &mut Vec<u8>) {
    number(micros / 1_000_000, out);
    out.extend_from_slice(&short_seconds(micros)[1..]);
}

/// The same, with the last of the digits before the point.
fn short_seconds(micros: u64) -> [u8; 8] {
    // It is less than 10^7.
    let micros = (micros % SHORT.end) as u32;
    let [a, b, c] = [micros / 10_000, micros / 100, micros].map(|number| PAIRS[(number % 100) as usize]);
    [b'0' + (micros / 1_000_000) as u8, b'.', a[0], a[1], b[0], b[1], c[0], c[1]]
}

fn three_digits(number: u64) -> [u8; 3] {
    let number = (number % 1000) as u32;
    let [tens, ones] = PAIRS[(number % 100) as usize];
    [b'0' + (number / 100) as u8, tens, ones]
}

fn number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// `00` to `99`.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < pairs.len() {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};
