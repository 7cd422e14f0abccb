//! rack.input: the request's body (Rack SPEC, "The Input Stream").

use std::fs::File;
use std::os::fd::IntoRawFd;

use rb_sys::*;

use fastrack_engine::Content;

use crate::env::build::string;
use crate::ruby::interned::names;
use crate::ruby::roots::Roots;

/// The input object of a body that is there; nil where there is none, and the template's shared one will do.
///
/// # Safety
/// Under protect, with the GVL.
pub(crate) unsafe fn input(content: Content<'_>, roots: Roots) -> VALUE {
    match content {
        // One that is under way is lent, by whoever ends the loan.
        Content::None | Content::Stream(_) => Qnil as VALUE,
        // SAFETY: as this function's.
        Content::Memory(bytes) => unsafe { string_io(bytes) },
        // SAFETY: as this function's.
        Content::File(file, _) => unsafe { temporary_file(file, roots) },
    }
}

unsafe fn string_io(bytes: &[u8]) -> VALUE {
    // SAFETY: under protect; the string is on the stack until the object holds it.
    unsafe {
        let string = string(bytes);
        rb_class_new_instance(1, &string, names().string_io)
    }
}

/// Gives a copy of the descriptor to Ruby, which makes a Tempfile of it.
unsafe fn temporary_file(file: &File, roots: Roots) -> VALUE {
    // SAFETY: under protect. The copy is a plain number before Ruby is called, so
    // that a raise unwinds over nothing that owns it; Ruby's side closes it if it fails.
    unsafe {
        let fd = match file.try_clone() {
            Ok(copy) => copy.into_raw_fd(),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                drop(error);
                rb_syserr_fail(errno, c"request body".as_ptr())
            }
        };
        let number = LONG2NUM(fd.into());
        rb_funcallv(roots.temporary_input(), names().id_call, 1, &number)
    }
}
