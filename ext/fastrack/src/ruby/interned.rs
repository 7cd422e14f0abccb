//! Strings, method names and classes that every request needs, made once.

use std::sync::OnceLock;

use magnus::{Error, Ruby};
use rb_sys::*;

use fastrack_http::KnownName;

use crate::env::templates::LEADING;
use crate::ruby::protect::protect;

/// Methods whose strings are made once; others are made for each request.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];

/// The number of [`KnownName`]s.
const KNOWN: usize = KnownName::ALL.len();

/// The values are frozen, registered with the GC for good, and never move.
pub(crate) struct Names {
    known: [VALUE; KNOWN],
    methods: [VALUE; METHODS.len()],
    pub http_10: VALUE,
    pub http_11: VALUE,
    request_method: VALUE,
    request_uri: VALUE,
    path_info: VALUE,
    query_string: VALUE,
    pub chunked: VALUE,
    server_protocol: VALUE,
    remote_addr: VALUE,
    remote_port: VALUE,
    pub rack_input: VALUE,
    pub rack_errors: VALUE,
    pub rack_protocol: VALUE,
    pub after_reply: VALUE,
    pub response_finished: VALUE,
    pub hijack_io: VALUE,
    pub string_io: VALUE,
    pub id_call: ID,
    pub id_close: ID,
    pub id_each: ID,
    pub id_to_ary: ID,
    pub id_to_path: ID,
    pub id_to_i: ID,
    pub id_puts: ID,
    pub id_flush: ID,
    pub id_for_fd: ID,
    pub id_full_message: ID,
}

static NAMES: OnceLock<Box<Names>> = OnceLock::new();

/// Makes them; to be called once, when the extension is loaded.
pub(crate) fn init(ruby: &Ruby) -> Result<(), Error> {
    let mut made = None;
    protect(|| {
        made = Some(Box::new(Names::new()));
        Qnil as VALUE
    })
    .map_err(|raised| raised.into_error(ruby))?;
    if let Some(names) = made {
        // The extension is loaded once; if it were not, the first names are as good.
        let _ = NAMES.set(names);
    }
    Ok(())
}

/// The names, which are there from the loading of the extension on.
pub(crate) fn names() -> &'static Names {
    NAMES.get().expect("init was called")
}

impl Names {
    fn new() -> Self {
        let mut known = [0; KNOWN];
        for (slot, name) in known.iter_mut().zip(KnownName::ALL) {
            *slot = registered(name.key());
        }
        Names {
            known,
            methods: METHODS.map(registered),
            http_10: registered("HTTP/1.0"),
            http_11: registered("HTTP/1.1"),
            request_method: registered("REQUEST_METHOD"),
            request_uri: registered("REQUEST_URI"),
            path_info: registered("PATH_INFO"),
            query_string: registered("QUERY_STRING"),
            chunked: registered("chunked"),
            server_protocol: registered("SERVER_PROTOCOL"),
            remote_addr: registered("REMOTE_ADDR"),
            remote_port: registered("REMOTE_PORT"),
            rack_input: registered("rack.input"),
            rack_errors: registered("rack.errors"),
            rack_protocol: registered("rack.protocol"),
            after_reply: registered("rack.after_reply"),
            response_finished: registered("rack.response_finished"),
            hijack_io: registered("rack.hijack_io"),
            string_io: string_io(),
            id_call: id("call"),
            id_close: id("close"),
            id_each: id("each"),
            id_to_ary: id("to_ary"),
            id_to_path: id("to_path"),
            id_to_i: id("to_i"),
            id_puts: id("puts"),
            id_flush: id("flush"),
            id_for_fd: id("for_fd"),
            id_full_message: id("full_message"),
        }
    }

    /// The environment key of a common field.
    pub fn key(&self, name: KnownName) -> VALUE {
        self.known[name as usize]
    }

    /// The environment key of the common field with this number.
    pub fn known(&self, number: u8) -> VALUE {
        self.known[usize::from(number)]
    }

    /// The keys that each environment begins with.
    pub fn leading(&self) -> [VALUE; LEADING] {
        let Names { request_method, request_uri, path_info, query_string, server_protocol, .. } = *self;
        [
            request_method,
            request_uri,
            path_info,
            query_string,
            server_protocol,
            self.remote_addr,
            self.remote_port,
        ]
    }

    /// The keys of what is called after a response.
    pub fn callbacks(&self) -> [VALUE; 2] {
        [self.after_reply, self.response_finished]
    }

    /// The string of a common method.
    pub fn method(&self, method: &[u8]) -> Option<VALUE> {
        let index = METHODS.iter().position(|known| known.as_bytes() == method)?;
        Some(self.methods[index])
    }
}

/// A frozen string that is never collected: the same object as the literal in
/// a Ruby source, so that looking it up in a Hash compares no bytes.
fn registered(text: &str) -> VALUE {
    // SAFETY: the text is valid for its length, and not empty, so that its pointer is
    // a real one. Called from `init` only, under protect.
    unsafe {
        let string = rb_enc_interned_str(text.as_ptr().cast(), text.len() as _, rb_utf8_encoding());
        rb_gc_register_mark_object(string);
        string
    }
}

fn string_io() -> VALUE {
    // SAFETY: the names are NUL-terminated; a class that is a constant is never
    // collected, and registering keeps it where it is.
    unsafe {
        rb_require(c"stringio".as_ptr());
        let class = rb_const_get(rb_cObject, rb_intern(c"StringIO".as_ptr()));
        rb_gc_register_mark_object(class);
        class
    }
}

fn id(name: &str) -> ID {
    // SAFETY: the name is valid for its length.
    unsafe { rb_intern2(name.as_ptr().cast(), name.len() as _) }
}
