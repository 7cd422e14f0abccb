//! Socket objects: a client's connection as the application gets it.

use std::os::fd::{AsFd, IntoRawFd};

use rb_sys::*;

use fastrack_engine::{BodyStream, Content, Request};

use crate::env::build::string;
use crate::ruby::interned::names;

/// A TCPSocket or UNIXSocket with a copy of the connection's descriptor. What was received after the request is the
/// first that it reads.
///
/// # Safety
/// Under protect, with the GVL; the caller's frames own nothing.
pub(crate) unsafe fn socket_object(connection: &impl AsFd, request: &Request<'_>) -> VALUE {
    // SAFETY: as this function's. The copy is a plain number before Ruby is called; for_fd fails only where there is no
    // memory for its object, which ends in a descriptor that is not closed.
    unsafe {
        let fd = match connection.as_fd().try_clone_to_owned() {
            Ok(copy) => copy.into_raw_fd(),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                drop(error);
                rb_syserr_fail(errno, c"connection".as_ptr())
            }
        };
        let number = LONG2NUM(fd.into());
        let class = if request.peer.is_some() { c"TCPSocket" } else { c"UNIXSocket" };
        let class = rb_const_get(rb_cObject, rb_intern(class.as_ptr()));
        let io = rb_funcallv(class, names().id_for_fd, 1, &number);
        let beyond = match &request.content {
            Content::Stream(stream) => beyond(stream),
            _ => string(request.beyond),
        };
        if RSTRING_LEN(beyond) > 0 {
            rb_io_ungetbyte(io, beyond);
        }
        io
    }
}

/// What was received after a body that the application reads itself.
///
/// # Safety
/// As [`socket_object`]'s.
unsafe fn beyond(stream: &BodyStream<'_>) -> VALUE {
    let mut length = 0;
    stream.look_beyond(&mut |bytes| length = bytes.len());
    // SAFETY: as this function's. Nothing of Ruby's is called while the stream is looked at: what raises there would
    // leave it locked. The String has room for all, since nobody else receives meanwhile.
    unsafe {
        let string = rb_str_buf_new(length as _);
        stream.look_beyond(&mut |bytes| {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), RSTRING_PTR(string).cast_mut().cast(), length);
        });
        rb_str_set_len(string, length as _);
        string
    }
}
