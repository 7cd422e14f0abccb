//! One line.

use std::io::Write;
use std::net::IpAddr;

use fastrack_http::{DateCache, Field, Head, KnownName};

use crate::escape::{json, quoted};
use crate::timings::{GvlTimings, Timings};

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The combined format of Apache and nginx.
    #[default]
    Combined,
    /// A JSON object.
    Json,
}

/// The longest line, in bytes. A pipe takes a write of this size as a whole, unmixed with those of other processes (PIPE_BUF, pipe(7)).
pub const LINE_LIMIT: usize = 4096;

/// Limits of a line's parts, in bytes.
struct Limits {
    method: usize,
    target: usize,
    referer: usize,
    user_agent: usize,
    request_id: usize,
    /// Numbers, times and names of fields.
    rest: usize,
}

const LIMITS: Limits =
    Limits { method: 40, target: 1_800, referer: 900, user_agent: 600, request_id: 200, rest: 550 };

const _: () = {
    let Limits { method, target, referer, user_agent, request_id, rest } = LIMITS;
    assert!(method + target + referer + user_agent + request_id + rest <= LINE_LIMIT);
};

/// The texts of a request, as far as a line tells them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// The request line without its end; empty if there is none.
    pub line: &'a [u8],
    /// Its method.
    pub method: &'a [u8],
    /// Its target.
    pub target: &'a [u8],
    /// Referer.
    pub referer: Option<&'a [u8]>,
    /// User-Agent.
    pub user_agent: Option<&'a [u8]>,
    /// X-Request-Id.
    pub request_id: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    /// The texts of a head that was parsed from `bytes`.
    pub fn of(head: &Head, bytes: &'a [u8]) -> Self {
        Request {
            line: head.request_line(bytes),
            method: head.method.of_buffer(bytes),
            target: head.target.of_buffer(bytes),
            referer: value(head, bytes, KnownName::Referer),
            user_agent: value(head, bytes, KnownName::UserAgent),
            request_id: value(head, bytes, KnownName::XRequestId),
        }
    }
}

/// A request and its response, as far as a line tells them.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The request.
    pub request: Request<'a>,
    /// The client's address; None if it has none.
    pub address: Option<IpAddr>,
    /// The client's protocol, if the request line has that of the proxy.
    pub protocol: Option<&'a [u8]>,
    /// The response's status; 0: a part of the response was sent before the request was given up.
    pub status: u16,
    /// The length of the response's body.
    pub length: u64,
    /// The time of the response's end, in milliseconds since 1970.
    pub time: u64,
    /// Time in the application, in microseconds.
    pub duration: u64,
    /// Time that the request waited for the application, in microseconds.
    pub queue_time: u64,
    /// How the time is divided; None if nobody asked for that.
    pub timings: Option<Timings>,
}

/// Writes lines of one worker. Most lines have the second and the address of the line before them: their texts are kept.
#[derive(Debug)]
pub struct LineWriter {
    format: Format,
    worker: Option<u64>,
    /// The second of `time_text`, since 1970.
    second: u64,
    time_text: Vec<u8>,
    address: Option<IpAddr>,
    address_text: Vec<u8>,
    date: DateCache,
}

impl LineWriter {
    /// `worker` is the worker's number; None: the proxy's lines.
    pub fn new(format: Format, worker: Option<u64>) -> Self {
        let mut writer = LineWriter {
            format,
            worker,
            second: 0,
            time_text: Vec::new(),
            address: None,
            address_text: Vec::new(),
            date: DateCache::default(),
        };
        writer.set_second(0);
        writer.set_address(None);
        writer
    }

    /// Appends a line.
    pub fn write(&mut self, line: &Line<'_>, out: &mut Vec<u8>) {
        if line.time / 1_000 != self.second {
            self.set_second(line.time / 1_000);
        }
        if line.address != self.address {
            self.set_address(line.address);
        }
        match self.format {
            Format::Combined => self.write_combined(line, out),
            Format::Json => self.write_json(line, out),
        }
        out.push(b'\n');
    }

    #[cold]
    fn set_second(&mut self, second: u64) {
        self.second = second;
        // Sun, 22 Nov 2026 13:47:17 GMT
        let date = self.date.at(second);
        let (day, month, year, time) = (&date[5..7], &date[8..11], &date[12..16], &date[17..25]);
        self.time_text = match self.format {
            Format::Combined => [b" - - [", day, b"/", month, b"/", year, b":", time, b" +0000] \""].concat(),
            Format::Json => {
                [b"{\"time\":\"", year, b"-", month_number(month), b"-", day, b"T", time, b"."].concat()
            }
        };
    }

    #[cold]
    fn set_address(&mut self, address: Option<IpAddr>) {
        self.address = address;
        let (worker, pid) = (self.worker, std::process::id());
        self.address_text.clear();
        // Writing to memory does not fail.
        let _ = match (self.format, address) {
            (Format::Combined, Some(address)) => write!(self.address_text, "{address}"),
            (Format::Combined, None) => self.address_text.write_all(b"-"),
            (Format::Json, _) => {
                let address = address.map_or("null".into(), |address| format!("\"{address}\""));
                let worker = worker.map_or("null".into(), |worker| worker.to_string());
                write!(self.address_text, ",\"worker\":{worker},\"pid\":{pid},\"remote_addr\":{address}")
            }
        };
    }

    fn write_combined(&self, line: &Line<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.address_text);
        out.extend_from_slice(&self.time_text);
        let request = line.request.line;
        match line.protocol {
            _ if request.is_empty() => out.push(b'-'),
            None => quoted(request, LIMITS.method + LIMITS.target, out),
            Some(protocol) => {
                let end = request.iter().rposition(|byte| *byte == b' ').map_or(0, |space| space + 1);
                quoted(&request[..end], LIMITS.method + LIMITS.target, out);
                out.extend_from_slice(protocol);
            }
        }
        out.extend_from_slice(b"\" ");
        number(line.status.into(), out);
        out.push(b' ');
        number(line.length, out);
        let texts = [(line.request.referer, LIMITS.referer), (line.request.user_agent, LIMITS.user_agent)];
        for (text, limit) in texts {
            out.extend_from_slice(b" \"");
            match text {
                Some(value) => quoted(value, limit, out),
                None => out.push(b'-'),
            }
            out.push(b'"');
        }
    }

    fn write_json(&self, line: &Line<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.time_text);
        padded(line.time % 1_000, 1_000, out);
        out.extend_from_slice(b"Z\",\"duration\":");
        seconds(line.duration, out);
        out.extend_from_slice(b",\"queue_time\":");
        seconds(line.queue_time, out);
        if let Some(timings) = &line.timings {
            write_timings(timings, out);
        }
        out.extend_from_slice(b",\"status\":");
        number(line.status.into(), out);
        out.extend_from_slice(b",\"bytes\":");
        number(line.length, out);
        out.extend_from_slice(&self.address_text);
        let mut text = |key: &[u8], value: Option<&[u8]>, limit| {
            out.extend_from_slice(key);
            match value {
                Some(value) => json(value, limit, out),
                None => out.extend_from_slice(b"null"),
            }
        };
        let Request { method, target, referer, user_agent, request_id, .. } = line.request;
        text(b",\"method\":", Some(method), LIMITS.method);
        text(b",\"target\":", Some(target), LIMITS.target);
        text(b",\"request_id\":", request_id, LIMITS.request_id);
        text(b",\"user_agent\":", user_agent, LIMITS.user_agent);
        text(b",\"referer\":", referer, LIMITS.referer);
        out.push(b'}');
    }
}

fn month_number(name: &[u8]) -> &'static [u8] {
    const NAMES: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    const NUMBERS: &[u8] = b"010203040506070809101112";
    let at = NAMES.chunks(3).position(|month| month == name).unwrap_or(0) * 2;
    &NUMBERS[at..at + 2]
}

fn value<'a>(head: &Head, bytes: &'a [u8], name: KnownName) -> Option<&'a [u8]> {
    if !head.has(name) {
        return None;
    }
    let is_named = |field: &&Field| field.known == Some(name);
    head.fields.iter().find(is_named).map(|field| field.value.of_buffer(bytes))
}

/// The queue time has its key.
#[inline(never)]
fn write_timings(timings: &Timings, out: &mut Vec<u8>) {
    let Timings { queue: _, upload, app, gvl, send } = timings;
    let mut time = |key: &[u8], micros: u64| {
        out.extend_from_slice(key);
        seconds(micros, out);
    };
    time(b",\"upload\":", *upload);
    time(b",\"app\":", *app);
    if let Some(GvlTimings { wait, running, off }) = gvl {
        time(b",\"gvl_wait\":", *wait);
        time(b",\"running\":", *running);
        time(b",\"off_gvl\":", *off);
    }
    time(b",\"send\":", *send);
}

/// Seconds with six digits after the point.
fn seconds(micros: u64, out: &mut Vec<u8>) {
    if micros < 1_000_000 {
        let (mut text, mut rest) = (*b"0.000000", micros as u32);
        for digit in text[2..].iter_mut().rev() {
            if rest == 0 {
                break;
            }
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        return out.extend_from_slice(&text);
    }
    number(micros / 1_000_000, out);
    out.push(b'.');
    padded(micros % 1_000_000, 1_000_000, out);
}

/// A number with as many digits as the power of ten `scale` has zeros. The number is below `scale`.
fn padded(number: u64, scale: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&itoa::Buffer::new().format(scale + number).as_bytes()[1..]);
}

fn number(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests;
