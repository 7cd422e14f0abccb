//! Strings, method IDs and classes for requests, looked up once.

use std::ffi::CStr;
use std::sync::OnceLock;

use magnus::{Error, Ruby};
use rb_sys::*;

use fastrack_http::KnownName;

use crate::ruby::protect::protect;

const KNOWN: usize = KnownName::ALL.len();

macro_rules! interned {
    (
        strings { $($string:ident = $text:literal,)* }
        classes { $($class:ident = $path:literal,)* }
        ids { $($id:ident,)* }
    ) => {
        /// The Strings are frozen. All values are registered with the GC for ever, and never move.
        pub(crate) struct Interned {
            known: [VALUE; KNOWN],
            pub id: Ids,
            $(pub $string: VALUE,)*
            $(pub $class: VALUE,)*
        }

        /// Method names.
        pub(crate) struct Ids {
            $(pub $id: ID,)*
        }

        impl Interned {
            fn new() -> Self {
                Interned {
                    known: std::array::from_fn(|number| string(KnownName::ALL[number].key())),
                    id: Ids { $($id: id(stringify!($id)),)* },
                    $($string: string($text),)*
                    $($class: class($path),)*
                }
            }
        }
    };
}

interned! {
    strings {
        http_10 = "HTTP/1.0",
        port_80 = "80",
        port_443 = "443",
        http_2 = "HTTP/2",
        https = "https",
        url_scheme = "rack.url_scheme",
        http_fastrack_client = "HTTP_FASTRACK_CLIENT",
        request_method = "REQUEST_METHOD",
        request_uri = "REQUEST_URI",
        path_info = "PATH_INFO",
        query_string = "QUERY_STRING",
        chunked = "chunked",
        server_name = "SERVER_NAME",
        server_port = "SERVER_PORT",
        server_protocol = "SERVER_PROTOCOL",
        remote_addr = "REMOTE_ADDR",
        remote_port = "REMOTE_PORT",
        rack_input = "rack.input",
        rack_protocol = "rack.protocol",
        after_reply = "rack.after_reply",
        response_finished = "rack.response_finished",
        hijack_io = "rack.hijack_io",
        hijack = "rack.hijack",
        early_hints = "rack.early_hints",
        client_gone = "fastrack.client_gone",
        timeout = "fastrack.timeout",
        io_bound = "puma.mark_as_io_bound",
        queue_time = "fastrack.queue_time",
        request_body_wait = "puma.request_body_wait",
    }
    classes {
        string_io = c"StringIO",
        spooled_body = c"Fastrack::SpooledBody",
        streamed_body = c"Fastrack::StreamedBody",
        stream_ended_error = c"Fastrack::StreamEnded",
        client_gone_error = c"Fastrack::ClientGone",
        stream_timeout_error = c"Fastrack::StreamTimeout",
        worker_retired_error = c"Fastrack::WorkerRetired",
        hijack_call = c"Fastrack::RequestBound::Hijack",
        early_hints_call = c"Fastrack::RequestBound::EarlyHints",
        client_gone_call = c"Fastrack::RequestBound::ClientGone",
        timeout_call = c"Fastrack::RequestBound::Timeout",
        io_bound_call = c"Fastrack::RequestBound::IoBound",
    }
    ids { call, close, each, to_ary, to_path, to_i, for_fd, raise, status, }
}

static INTERNED: OnceLock<Box<Interned>> = OnceLock::new();

pub(super) fn init(ruby: &Ruby) -> Result<(), Error> {
    let mut made = None;
    protect(|| made = Some(Box::new(Interned::new()))).map_err(|raised| raised.into_error(ruby))?;
    if let Some(made) = made {
        // A second call keeps the first values, which are equal.
        let _ = INTERNED.set(made);
    }
    Ok(())
}

pub(crate) fn interned() -> &'static Interned {
    INTERNED.get().expect("init was called")
}

impl Interned {
    /// The env key of a common header field.
    pub fn key(&self, name: KnownName) -> VALUE {
        self.known[name as usize]
    }

    /// The env key of the common header field with this number.
    pub fn key_at(&self, number: u8) -> VALUE {
        self.known[usize::from(number)]
    }
}

/// A frozen String that is never collected: the same object as an equal literal in Ruby sources, so that a look-up in a Hash
/// compares no bytes.
fn string(text: &str) -> VALUE {
    // SAFETY: the pointer is valid for the length. Called from `init` only, under protect.
    unsafe {
        let string = rb_enc_interned_str(text.as_ptr().cast(), text.len() as _, rb_utf8_encoding());
        rb_gc_register_mark_object(string);
        string
    }
}

fn class(path: &CStr) -> VALUE {
    // SAFETY: the path is NUL-terminated. Called from `init` only, under protect.
    unsafe {
        let class = rb_path2class(path.as_ptr());
        rb_gc_register_mark_object(class);
        class
    }
}

fn id(name: &str) -> ID {
    // SAFETY: the pointer is valid for the length. Called from `init` only, under protect.
    unsafe { rb_intern2(name.as_ptr().cast(), name.len() as _) }
}
