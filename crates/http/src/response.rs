//! The head of a response.

use crate::bytes::is_token;
use crate::connection_options::ConnectionOptions;
use crate::date::Date;
use crate::error::FieldError;
use crate::field_lines::{write_line, FieldLines};
use crate::framing::content_length;
use crate::status_code::{has_no_body, reason};
use crate::transfer_codings::{Coding, TransferCodings};

/// Builds the head of a response: status line, Date, Server, the application's fields, framing, Connection.
///
/// One value builds the heads of many responses, to reuse its memory.
#[derive(Debug, Default)]
pub struct ResponseHead {
    code: u16,
    date: Vec<u8>,
    server: Vec<u8>,
    fields: FieldLines,
    /// The fields of the previous response.
    previous: FieldLines,
    length: Length,
    codings: TransferCodings,
    connection: ConnectionOptions,
}

/// The body's length by the application's Content-Length. The first valid Content-Length counts. Any other, and any beside
/// a Transfer-Encoding, is dropped: a client must not have two ways to find the end (RFC 9112 §6.2, §6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Length {
    /// No Content-Length.
    #[default]
    Unknown,
    /// In bytes.
    Known(u64),
}

/// Whether the connection persists after a response, and how the head says so (RFC 9112 §9.3).
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

impl Persistence {
    /// The end of a head with an Upgrade field. Connection names Upgrade, so that no proxy forwards the field.
    #[cold]
    fn beside_upgrade(self) -> &'static [u8] {
        match self {
            Persistence::Close => b"Connection: close, Upgrade\r\n\r\n",
            Persistence::Named => b"Connection: keep-alive, Upgrade\r\n\r\n",
            Persistence::Implied | Persistence::Upgraded => b"Connection: Upgrade\r\n\r\n",
        }
    }
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
        self.codings.clear();
        self.connection.clear();
    }

    /// The body's length according to the head.
    pub fn length(&self) -> Length {
        self.length
    }

    /// The body's transfer coding.
    pub fn coding(&self) -> Coding {
        self.codings.coding()
    }

    /// Whether the application asked for `Connection: close`.
    pub fn wants_close(&self) -> bool {
        self.connection.close
    }

    /// Whether the head has neither a Content-Length nor a transfer coding yet.
    pub fn is_unframed(&self) -> bool {
        self.length == Length::Unknown && self.coding() == Coding::None
    }

    /// Whether only the close of the connection ends the body.
    pub fn ends_by_close(&self) -> bool {
        match self.coding() {
            Coding::None => self.length == Length::Unknown,
            Coding::Chunked | Coding::CodedChunks => false,
            Coding::UntilClose => true,
        }
    }

    /// The status code.
    pub fn code(&self) -> u16 {
        self.code
    }

    /// Adds a field of the application.
    ///
    /// A value with newlines becomes one field per non-empty line, as in Rhebok. Date and Server replace the server's
    /// own. Connection and Keep-Alive are dropped, because only the server knows whether the connection stays open; `close`
    /// sets [`wants_close`](Self::wants_close). Status is dropped: the Rack SPEC forbids it, and CGI gateways would take it for the
    /// status. Fails on a name that is not a token, and on a control byte in a value.
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
        self.fields.note_not_reusable();
        for line in value.split(|byte| *byte == b'\n') {
            if line.iter().any(|byte| is_control(*byte)) {
                return Err(FieldError::Value);
            }
            if !line.is_empty() {
                self.line(name, line, false);
            }
        }
        Ok(())
    }

    /// Adds one line of a field. `whole`: the field has no other line.
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
            6 if name.eq_ignore_ascii_case(b"status") => {}
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.upgrade_line(name, value),
            10 if name.eq_ignore_ascii_case(b"connection") => self.connection.add(value),
            10 if name.eq_ignore_ascii_case(b"keep-alive") => {}
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let usable = whole && self.is_unframed() && !self.forbids_framing();
                if let Some(length) = content_length(value).ok().filter(|_| usable) {
                    self.length = Length::Known(length);
                    return self.fields.push(name, value, Some(length));
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.add_codings(value),
            _ if whole => return self.fields.push(name, value, None),
            _ => self.fields.push_line(name, value),
        }
        if whole {
            self.fields.note_not_reusable();
        }
    }

    fn add_codings(&mut self, value: &[u8]) {
        if self.forbids_framing() {
            return;
        }
        self.codings.add(value);
        if self.coding() != Coding::None && self.length != Length::Unknown {
            self.fields.drop_length();
            self.length = Length::Unknown;
        }
    }

    /// Adds an Upgrade field, except to an interim response, which has no Connection field to name it.
    fn upgrade_line(&mut self, name: &[u8], value: &[u8]) {
        if self.code >= 200 || self.code == 101 {
            self.connection.upgrade = true;
            self.fields.push_line(name, value);
        }
    }

    /// Ends the application's fields. Drops the fields that the application's Connection names: without that Connection,
    /// which is not sent, a proxy would forward them (RFC 9110 §7.6.1).
    pub fn end_fields(&mut self) {
        if self.connection.has_names() {
            let ResponseHead { connection, fields, .. } = self;
            connection.names().for_each(|name| fields.drop_named(name));
        }
    }

    /// Whether the application's framing fields are dropped. 1xx and 204 allow neither field (RFC 9110 §8.6, RFC 9112 §6.1).
    /// The length of a 205 is always 0 (RFC 9110 §15.3.6).
    fn forbids_framing(&self) -> bool {
        has_no_body(self.code) && self.code != 304
    }

    /// Drops the application's Transfer-Encoding: no client of HTTP/1.0 may receive one (RFC 9112 §6.1).
    pub fn drop_codings(&mut self) {
        self.codings.clear();
    }

    /// Adds a Content-Length, in bytes.
    pub fn frame_length(&mut self, length: u64) {
        self.length = Length::Known(length);
        self.fields.push_line(b"Content-Length", itoa::Buffer::new().format(length).as_bytes());
    }

    /// Adds `Transfer-Encoding: chunked`.
    pub fn frame_chunked(&mut self) {
        self.codings.add_one(b"chunked");
    }

    /// Appends the head to `out`, with `date` unless the application has set a Date.
    pub fn write(&self, date: &Date, persistence: Persistence, out: &mut Vec<u8>) {
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
        if !self.codings.as_bytes().is_empty() {
            write_line(b"Transfer-Encoding", self.codings.as_bytes(), out);
        }
        out.extend_from_slice(match persistence {
            Persistence::Upgraded => b"Connection: Upgrade\r\n\r\n",
            _ if self.connection.upgrade => persistence.beside_upgrade(),
            Persistence::Close => b"Connection: close\r\n\r\n",
            Persistence::Implied => b"\r\n",
            Persistence::Named => b"Connection: keep-alive\r\n\r\n",
        });
    }

    /// Appends the head of an interim response (RFC 9110 §15.2) with the application's fields only. Without fields, appends
    /// nothing.
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

    /// Turns the response into a 101 that switches to `protocol` (RFC 9110 §15.2.2). Fails if `protocol` is not a valid field
    /// value.
    pub fn switch_protocol(&mut self, protocol: &[u8]) -> Result<(), FieldError> {
        self.code = 101;
        self.fields.drop_named(b"upgrade");
        self.field(b"Upgrade", protocol)
    }
}

/// Whether a value contains no control byte. Without a branch for each byte the compiler looks at many at once.
fn is_plain(value: &[u8]) -> bool {
    !value.iter().fold(false, |found, byte| found | is_control(*byte))
}

/// Whether no value may contain the byte (RFC 9110 §5.5). A tab may be there.
fn is_control(byte: u8) -> bool {
    (byte < b' ' && byte != b'\t') || byte == 0x7f
}

#[cfg(test)]
mod tests;
