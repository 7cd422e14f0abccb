//! The head of a response.

use memchr::{memchr2, memchr3};

use crate::bytes::is_token;
use crate::date::DATE_LEN;
use crate::error::FieldError;
use crate::field_lines::{write_line, FieldLines};
use crate::framing::content_length;
use crate::reason::{has_no_body, reason};

/// Builds the head of a response: status line, Date, Server, the application's fields, framing, Connection.
///
/// Each worker keeps one and reuses its memory.
#[derive(Debug, Default)]
pub struct ResponseHead {
    code: u16,
    date: Vec<u8>,
    server: Vec<u8>,
    fields: FieldLines,
    /// The fields of the previous response.
    previous: FieldLines,
    length: Length,
    /// Whether the application set Transfer-Encoding, and so frames the body itself.
    pub has_coding: bool,
    /// Whether the application asked for `Connection: close`.
    pub wants_close: bool,
}

/// The body's length by the application's Content-Length. The first that is a number counts; others, and any beside a
/// Transfer-Encoding, are dropped: a client must not have two ways to find the end (RFC 9112 §6.2, §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Length {
    /// No Content-Length.
    #[default]
    Unknown,
    /// In bytes.
    Known(u64),
}

/// What happens to the connection after a response, and how the head says it (RFC 9112 §9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// `Connection: close`
    Close,
    /// Keep-alive, the default of the client's version: no Connection field.
    Implied,
    /// `Connection: keep-alive`, for HTTP/1.0.
    Named,
    /// `Connection: Upgrade` (RFC 9110 §7.8).
    Upgraded,
}

impl ResponseHead {
    /// Starts the next response.
    pub fn start(&mut self, code: u16) {
        self.code = code;
        self.date.clear();
        self.server.clear();
        std::mem::swap(&mut self.fields, &mut self.previous);
        self.fields.clear();
        if self.forbids_framing() {
            self.previous.clear();
        }
        self.length = Length::Unknown;
        self.has_coding = false;
        self.wants_close = false;
    }

    /// The body's length by the head.
    pub fn length(&self) -> Length {
        self.length
    }

    /// Whether the head does not say yet where the body ends.
    pub fn is_unframed(&self) -> bool {
        self.length == Length::Unknown && !self.has_coding
    }

    /// The status code.
    pub fn code(&self) -> u16 {
        self.code
    }

    /// Adds a field of the application.
    ///
    /// A value with newlines becomes one field per non-empty line, as in Rhebok. Date and Server replace the server's
    /// own. Connection is dropped, because only the server knows whether the connection stays open; `close` sets
    /// [`wants_close`](Self::wants_close).
    pub fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), FieldError> {
        if let Some(length) = self.fields.reuse(&self.previous, name, value) {
            match length {
                Some(length) if self.is_unframed() => self.length = Length::Known(length),
                Some(_) => self.fields.drop_length(),
                None => {}
            }
            return Ok(());
        }
        if !is_token(name) {
            return Err(FieldError::Name);
        }
        if is_plain(value) {
            self.line(name, value, true);
            return Ok(());
        }
        self.fields.note_unique();
        for line in value.split(|byte| *byte == b'\n') {
            if memchr2(b'\r', b'\0', line).is_some() {
                return Err(FieldError::Value);
            }
            if !line.is_empty() {
                self.line(name, line, false);
            }
        }
        Ok(())
    }

    /// Adds a line; `whole` says that it is all of its field.
    fn line(&mut self, name: &[u8], value: &[u8], whole: bool) {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"date") => {
                self.date.clear();
                write_line(name, value, &mut self.date);
            }
            6 if name.eq_ignore_ascii_case(b"server") => {
                self.server.clear();
                write_line(name, value, &mut self.server);
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.wants_close |= value.eq_ignore_ascii_case(b"close");
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let usable = whole && self.is_unframed() && !self.forbids_framing();
                if let Some(length) = content_length(value).ok().filter(|_| usable) {
                    self.length = Length::Known(length);
                    return self.fields.push(name, value, Some(length));
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if !self.forbids_framing() {
                    if self.length != Length::Unknown {
                        self.fields.drop_length();
                        self.length = Length::Unknown;
                    }
                    self.has_coding = true;
                    self.fields.push_line(name, value);
                }
            }
            _ if whole => return self.fields.push(name, value, None),
            _ => self.fields.push_line(name, value),
        }
        if whole {
            self.fields.note_unique();
        }
    }

    /// 1xx and 204 allow neither framing field (RFC 9110 §8.6, RFC 9112 §6.1).
    fn forbids_framing(&self) -> bool {
        has_no_body(self.code) && self.code != 304
    }

    /// Adds a Content-Length, in bytes.
    pub fn frame_length(&mut self, length: u64) {
        self.length = Length::Known(length);
        self.fields.push_line(b"Content-Length", itoa::Buffer::new().format(length).as_bytes());
    }

    /// Adds `Transfer-Encoding: chunked`.
    pub fn frame_chunked(&mut self) {
        self.has_coding = true;
        self.fields.push_line(b"Transfer-Encoding", b"chunked");
    }

    /// Appends the head to `out`, with `date` unless the application set one.
    pub fn write(&self, date: &[u8; DATE_LEN], persistence: Persistence, out: &mut Vec<u8>) {
        self.write_status(out);
        if self.date.is_empty() {
            out.extend_from_slice(b"\r\nDate: ");
            out.extend_from_slice(date);
            out.extend_from_slice(b"\r\n");
        } else {
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(&self.date);
        }
        out.extend_from_slice(if self.server.is_empty() { b"Server: Fastrack\r\n" } else { &self.server });
        out.extend_from_slice(self.fields.as_bytes());
        out.extend_from_slice(match persistence {
            Persistence::Close => b"Connection: close\r\n\r\n",
            Persistence::Implied => b"\r\n",
            Persistence::Named => b"Connection: keep-alive\r\n\r\n",
            Persistence::Upgraded => b"Connection: Upgrade\r\n\r\n",
        });
    }

    /// Appends the head of an interim response (RFC 9110 §15.2) to `out`: only the application's fields. Without any,
    /// appends nothing.
    pub fn write_interim(&self, out: &mut Vec<u8>) {
        if !self.fields.as_bytes().is_empty() {
            self.write_status(out);
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(self.fields.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }

    /// The status line without its CRLF.
    #[inline]
    fn write_status(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(itoa::Buffer::new().format(self.code).as_bytes());
        out.push(b' ');
        out.extend_from_slice(reason(self.code).as_bytes());
    }

    /// Makes this a 101 that switches to `protocol` (RFC 9110 §15.2.2).
    pub fn switch_protocol(&mut self, protocol: &[u8]) -> Result<(), FieldError> {
        self.code = 101;
        self.field(b"Upgrade", protocol)
    }
}

/// Whether a value has no byte that ends a line or a string. Most values are so short that memchr's set-up costs more
/// than the whole search.
fn is_plain(value: &[u8]) -> bool {
    if value.len() < 48 {
        return !value.iter().any(|byte| matches!(byte, b'\n' | b'\r' | b'\0'));
    }
    memchr3(b'\n', b'\r', b'\0', value).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &[u8; DATE_LEN] = b"Sun, 06 Nov 1994 08:49:37 GMT";

    fn started(code: u16) -> ResponseHead {
        let mut head = ResponseHead::default();
        head.start(code);
        head
    }

    fn text(head: &ResponseHead, persistence: Persistence) -> String {
        let mut out = Vec::new();
        head.write(DATE, persistence, &mut out);
        String::from_utf8(out).expect("utf-8")
    }

    fn written(code: u16, fields: &[(&str, &str)]) -> String {
        let mut head = started(code);
        for (name, value) in fields {
            head.field(name.as_bytes(), value.as_bytes()).expect("a valid field");
        }
        text(&head, Persistence::Close)
    }

    #[test]
    fn the_head_comes_in_the_order_of_the_contract() {
        let text = written(200, &[("Content-Type", "text/plain"), ("X", "y")]);
        assert_eq!(
            text,
            "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: Fastrack\r\n\
             Content-Type: text/plain\r\nX: y\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn the_applications_date_and_server_win_and_its_connection_does_not() {
        let text = written(
            404,
            &[("date", "Foooo"), ("Connection", "keep-alive"), ("SERVER", "mine"), ("Dat", "x")],
        );
        assert_eq!(
            text,
            "HTTP/1.1 404 Not Found\r\ndate: Foooo\r\nSERVER: mine\r\nDat: x\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn the_client_is_told_what_becomes_of_the_connection() {
        for (persistence, end) in [
            (Persistence::Close, "\r\nConnection: close\r\n\r\n"),
            (Persistence::Implied, "\r\n\r\n"),
            (Persistence::Named, "\r\nConnection: keep-alive\r\n\r\n"),
            (Persistence::Upgraded, "\r\nConnection: Upgrade\r\n\r\n"),
        ] {
            assert_eq!(text(&started(204), persistence).split("Server: Fastrack").last(), Some(end));
        }
    }

    #[test]
    fn an_interim_response_has_the_applications_fields_and_no_others() {
        let (mut head, mut out) = (started(103), Vec::new());
        head.write_interim(&mut out);
        assert!(out.is_empty());
        for (name, value) in
            [("Link", "</a>\n</b>"), ("Content-Length", "5"), ("Connection", "close"), ("Date", "now")]
        {
            head.field(name.as_bytes(), value.as_bytes()).expect("a valid field");
        }
        head.write_interim(&mut out);
        assert_eq!(out, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\n");
    }

    #[test]
    fn a_switch_of_protocols_names_the_other_one() {
        let mut head = started(200);
        head.switch_protocol(b"websocket").expect("a valid field");
        head.switch_protocol(b"a\r\nb").expect_err("two lines");
        let text = text(&head, Persistence::Upgraded);
        assert!(text.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{text}");
        assert!(text.ends_with("\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"), "{text}");
    }

    #[test]
    fn the_length_is_known_only_where_there_is_one() {
        let length = |values: &[&str]| {
            let mut head = started(200);
            values.iter().for_each(|value| head.field(b"content-length", value.as_bytes()).expect("valid"));
            head.length()
        };
        assert_eq!(length(&[]), Length::Unknown);
        assert_eq!(length(&["12"]), Length::Known(12));
        assert_eq!(length(&["x", "12", "13", "12"]), Length::Known(12));
        for bad in ["-1", "x", "1\n2", " 1", "", "1, 1", "99999999999999999999"] {
            assert_eq!(length(&[bad]), Length::Unknown, "{bad:?}");
        }
    }

    #[test]
    fn lines_become_fields_and_empty_ones_nothing() {
        let text =
            written(200, &[("A", "Foo\nBar"), ("B", "\nBaz"), ("C", "Fuga\n"), ("D", "x\n\ny"), ("E", "")]);
        assert!(
            text.contains("\r\nA: Foo\r\nA: Bar\r\nB: Baz\r\nC: Fuga\r\nD: x\r\nD: y\r\nE: \r\nConnection"),
            "{text}"
        );
    }

    #[test]
    fn bytes_that_could_split_a_response_are_refused() {
        let mut head = started(200);
        assert_eq!(head.field(b"A", b"b\r\nC: d"), Err(FieldError::Value));
        assert_eq!(head.field(b"A", b"b\0"), Err(FieldError::Value));
        for bad in [b'\r', b'\0'] {
            for length in [0, 46, 47, 48, 200] {
                let value = [&vec![b'v'; length], &[bad][..]].concat();
                assert_eq!(head.field(b"A", &value), Err(FieldError::Value), "{length} bytes and {bad}");
            }
        }
        for name in ["", "A B", "A:", "A\r\nB", "\u{e4}"] {
            assert_eq!(head.field(name.as_bytes(), b"x"), Err(FieldError::Name), "{name}");
        }
    }

    #[test]
    fn framing_is_dropped_where_it_is_forbidden() {
        assert!(!written(204, &[("Content-Length", "0")]).contains("Content-Length"));
        assert!(!written(101, &[("Transfer-Encoding", "chunked")]).contains("Transfer"));
        assert!(written(304, &[("Content-Length", "7")]).contains("Content-Length: 7"));
    }

    #[test]
    fn a_response_is_framed_in_one_way_only() {
        let (length, coding, other) = (("Content-Length", "7"), ("transfer-encoding", "chunked"), ("X", "y"));
        let mut head = ResponseHead::default();
        // One after the other, so that lines are reused where they may be.
        for (fields, framing) in [
            (&[other, length, other][..], "Content-Length: 7\r\n"),
            (&[other, length, coding, other], "transfer-encoding: chunked\r\n"),
            (&[coding, length, other], "transfer-encoding: chunked\r\n"),
            (&[other, length, other], "Content-Length: 7\r\n"),
            (&[length, length, other], "Content-Length: 7\r\n"),
            (&[length, ("content-length", "8"), other], "Content-Length: 7\r\n"),
            (&[("Content-Length", "abc"), other], ""),
            (&[coding, other, other], "transfer-encoding: chunked\r\n"),
        ] {
            head.start(200);
            fields.iter().for_each(|(name, value)| {
                head.field(name.as_bytes(), value.as_bytes()).expect("valid");
            });
            let text = text(&head, Persistence::Implied).to_lowercase();
            let others = fields.iter().filter(|field| **field == other).count();
            assert_eq!(text.matches("x: y\r\n").count(), others, "{text}");
            assert_eq!(
                text.matches("content-length").count() + text.matches("transfer-encoding").count(),
                usize::from(!framing.is_empty()),
                "{text}"
            );
            assert!(text.contains(&framing.to_lowercase()), "{text}");
            let known = if framing.starts_with("Content") { Length::Known(7) } else { Length::Unknown };
            assert_eq!((head.length(), head.has_coding), (known, framing.starts_with("transfer")));
        }
    }

    #[test]
    fn a_length_that_the_response_before_had_is_dropped_where_it_is_forbidden() {
        let mut head = ResponseHead::default();
        for (code, length) in [(200, Length::Known(7)), (204, Length::Unknown), (200, Length::Known(7))] {
            head.start(code);
            head.field(b"Content-Length", b"7").expect("valid");
            assert_eq!(head.length(), length);
            assert_eq!(text(&head, Persistence::Close).contains("Content-Length: 7"), code == 200);
        }
    }
}
