//! rack.input: the request's body (Rack SPEC, "The Input Stream").

use std::fs::File;
use std::os::fd::IntoRawFd;

use rb_sys::*;

use fastrack_engine::Content;

use crate::ruby::{call, interned, raise_errno, string, NIL};

/// The input of a complete body; nil if the template's empty input will do.
pub(crate) unsafe fn input(content: &Content<'_>) -> VALUE {
    match content {
        // A BodySource reads a body that is still arriving.
        Content::None | Content::Stream(_) => NIL,
        // SAFETY: as this function's; the String is on the stack until the object refers to it.
        Content::Memory(bytes) => unsafe {
            let string = string(bytes);
            rb_class_new_instance(1, &string, interned().string_io)
        },
        // SAFETY: as this function's.
        Content::File(file, _) => unsafe { temporary_file(file) },
    }
}

/// A Ruby object for the body in `file`, with a copy of the descriptor.
unsafe fn temporary_file(file: &File) -> VALUE {
    // SAFETY: under protect, with the GVL. The copy is a plain number before Ruby is called, so that no frame owns a
    // descriptor. SpooledBody closes the descriptor if it fails.
    unsafe {
        let fd = match file.try_clone() {
            Ok(copy) => copy.into_raw_fd(),
            Err(error) => raise_errno(error, c"request body"),
        };
        call(interned().spooled_body, interned().id.call, &[LONG2NUM(fd.into())])
    }
}
