//! One line of the access log.

use std::net::IpAddr;

use fastrack_http::{DateCache, Head, KnownName, DATE_LEN};

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

// The most that texts of clients take of a line, in bytes.
const TARGET: usize = 1_800;
const REFERER: usize = 900;
const AGENT: usize = 600;
const ID: usize = 200;
const METHOD: usize = 40;
const OTHERS: usize = 500;

/// No line is longer, in bytes. That is what a pipe takes as a whole (PIPE_BUF, pipe(7)).
pub(super) const LONGEST: usize = TARGET + REFERER + AGENT + ID + METHOD + OTHERS;
const _: () = assert!(LONGEST <= 4096);

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

/// What lines have in common.
#[derive(Debug)]
pub(super) struct Texts {
    /// `"worker":1,"pid":2`
    worker: String,
    address: Option<IpAddr>,
    /// The address as text.
    client: Vec<u8>,
    second: u64,
    date: DateCache,
    /// The time of that second: `22/Nov/2026:13:47:17 +0000`, or `2026-11-22T13:47:17`.
    combined: [u8; 26],
    iso: [u8; 19],
}

impl Texts {
    pub fn new(worker: u64) -> Self {
        Texts {
            worker: format!("\"worker\":{worker},\"pid\":{}", std::process::id()),
            address: None,
            client: b"-".to_vec(),
            second: 0,
            date: DateCache::default(),
            combined: *b"01/Jan/1970:00:00:00 +0000",
            iso: *b"1970-01-01T00:00:00",
        }
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

    #[cold]
    fn set_address(&mut self, address: Option<IpAddr>) {
        self.address = address;
        self.client = address.map_or("-".into(), |address| address.to_string()).into_bytes();
    }

    #[cold]
    fn set_second(&mut self, second: u64) {
        self.second = second;
        // Sun, 22 Nov 2026 13:47:17 GMT
        let date: &[u8; DATE_LEN] = self.date.at(second);
        let (day, month, year, time) = (&date[5..7], &date[8..11], &date[12..16], &date[17..25]);
        const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
        let number = MONTHS.chunks(3).position(|name| name == month).unwrap_or(0) + 1;
        let number = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        fill(&mut self.combined, &[day, b"/", month, b"/", year, b":", time]);
        fill(&mut self.iso, &[year, b"-", &number, b"-", day, b"T", time]);
    }

    fn write_combined(&self, line: &Line<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.client);
        out.extend_from_slice(b" - - [");
        out.extend_from_slice(&self.combined);
        out.extend_from_slice(b"] \"");
        quoted(request_line(line), TARGET + METHOD, out);
        out.extend_from_slice(b"\" ");
        number(line.status.into(), out);
        out.push(b' ');
        number(line.length, out);
        for (name, most) in [(KnownName::Referer, REFERER), (KnownName::UserAgent, AGENT)] {
            out.extend_from_slice(b" \"");
            match field(line, name) {
                Some(value) => quoted(value, most, out),
                None => out.push(b'-'),
            }
            out.push(b'"');
        }
        out.push(b'\n');
    }

    fn write_json(&self, line: &Line<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"time\":\"");
        out.extend_from_slice(&self.iso);
        out.push(b'.');
        digits::<3>(line.time % 1000, out);
        out.extend_from_slice(b"Z\",\"duration\":");
        seconds(line.duration, out);
        out.extend_from_slice(b",\"queue_time\":");
        seconds(line.queue_time, out);
        out.extend_from_slice(b",\"status\":");
        number(line.status.into(), out);
        out.extend_from_slice(b",\"bytes\":");
        number(line.length, out);
        out.push(b',');
        out.extend_from_slice(self.worker.as_bytes());
        out.extend_from_slice(b",\"remote_addr\":");
        text(self.address.is_some().then_some(&self.client[..]), OTHERS, out);
        let (method, target) = (line.head.method, line.head.target);
        for (name, value, most) in [
            (&b",\"method\":"[..], Some(method.of_buffer(line.bytes)), METHOD),
            (b",\"target\":", Some(target.of_buffer(line.bytes)), TARGET),
            (b",\"request_id\":", field(line, KnownName::XRequestId), ID),
            (b",\"user_agent\":", field(line, KnownName::UserAgent), AGENT),
            (b",\"referer\":", field(line, KnownName::Referer), REFERER),
        ] {
            out.extend_from_slice(name);
            text(value, most, out);
        }
        out.extend_from_slice(b"}\n");
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

/// Method, target and version are adjacent (RFC 9112 §3).
fn request_line<'a>(line: &Line<'a>) -> &'a [u8] {
    const VERSION: usize = " HTTP/1.1".len();
    let target = std::ops::Range::from(line.head.target);
    let start = std::ops::Range::from(line.head.method).start;
    line.bytes.get(start..target.end + VERSION).unwrap_or_default()
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
    out.push(b'.');
    digits::<6>(micros % 1_000_000, out);
}

fn digits<const WIDTH: usize>(mut number: u64, out: &mut Vec<u8>) {
    let mut text = [0; WIDTH];
    for place in text.iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
    out.extend_from_slice(&text);
}

fn number(mut number: u64, out: &mut Vec<u8>) {
    let mut text = [0; 20];
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return out.extend_from_slice(&text[at..]);
        }
    }
}
