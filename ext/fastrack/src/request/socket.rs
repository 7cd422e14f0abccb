//! The client's socket as a Ruby object: for hijacks and streaming bodies.

use std::os::fd::IntoRawFd;

use rb_sys::*;

use fastrack_engine::{BodyError, BodyStream, Content, ReadAhead, Request};

use crate::request::in_flight::{AppThread, InFlight};
use crate::ruby::{call, format_into, interned, raise, raise_errno, string, without_gvl};

/// A TCPSocket or UNIXSocket with a copy of the connection's descriptor. The bytes received after the request are the first
/// bytes to read.
pub(crate) unsafe fn socket_object(in_flight: &InFlight<'_, '_>) -> VALUE {
    let Request { peer, content, pipelined, .. } = in_flight.request;
    // SAFETY: as this function's. The copy is a plain number before Ruby is called. for_fd fails only without memory for the
    // object; then the descriptor stays open.
    unsafe {
        let class = if peer.is_some() { c"TCPSocket" } else { c"UNIXSocket" };
        let class = rb_const_get(rb_cObject, rb_intern(class.as_ptr()));
        let pipelined = match content {
            Content::Stream(stream) => pipelined_after(stream),
            _ => string(pipelined),
        };
        let fd = match in_flight.writer.copy_socket() {
            Ok(copy) => copy.into_raw_fd(),
            Err(error) => raise_errno(error, c"connection"),
        };
        // for_fd is called last: when an app's own for_fd returns, the request may be over.
        let io = call(class, interned().id.for_fd, &[LONG2NUM(fd.into())]);
        if RSTRING_LEN(pipelined) > 0 {
            rb_io_ungetbyte(io, pipelined);
        }
        io
    }
}

/// The bytes received after a body that the app reads itself.
unsafe fn pipelined_after(stream: &BodyStream<'_>) -> VALUE {
    let mut length = 0;
    stream.peek_pipelined(&mut |bytes| length = bytes.len());
    // SAFETY: as this function's. Ruby is not called inside peek_pipelined: a raise there would leave the stream locked. The
    // String has room for all bytes, because only this thread receives.
    unsafe {
        let string = rb_str_buf_new(length as _);
        stream.peek_pipelined(&mut |bytes| {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), RSTRING_PTR(string).cast_mut().cast(), length);
        });
        rb_str_set_len(string, length as _);
        string
    }
}

/// Receives the whole body of the request, so that the socket starts with the bytes after the body. Waits for the client
/// without the GVL. The app can still read the body.
///
/// Raises as `BodySource#read`, and an IOError if more than 1 MiB would have to be kept.
///
/// # Safety
/// The scope may be over if this function raises.
pub(crate) unsafe fn read_ahead(content: &Content<'_>, thread: &'static AppThread) {
    let Content::Stream(stream) = content else { return };
    // SAFETY: as this function's; nothing here owns anything.
    unsafe {
        loop {
            match stream.read_ahead() {
                Ok(ReadAhead::Whole) => return,
                Ok(ReadAhead::Blocked) => {
                    without_gvl(&mut || stream.wait());
                    thread.check_interrupts();
                }
                Ok(ReadAhead::TooMuch) => {
                    raise(rb_eIOError, c"the body must be read before the connection is taken over")
                }
                Err(error) => {
                    let class = if error == BodyError::Gone { rb_eEOFError } else { rb_eIOError };
                    let mut text = [0; 100];
                    rb_exc_raise(rb_exc_new_str(class, string(format_into(&mut text, error))))
                }
            }
        }
    }
}
