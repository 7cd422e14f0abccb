//! Reads heads and chunked bodies with picohttpparser.

use std::ffi::c_char;
use std::ptr;

use picohttpparser_sys::{phr_chunked_decoder, phr_decode_chunked, phr_header, phr_parse_request};

/// A head as picohttpparser parses it.
#[derive(Debug)]
pub struct PicoHead {
    pub len: usize,
    pub method: Vec<u8>,
    pub target: Vec<u8>,
    pub minor_version: i32,
    /// The name is None for a line that continues the previous field.
    pub fields: Vec<(Option<Vec<u8>>, Vec<u8>)>,
}

/// None if the head is incomplete or invalid.
pub fn pico_head(bytes: &[u8]) -> Option<PicoHead> {
    let (mut method, mut method_len, mut path, mut path_len) = (ptr::null(), 0, ptr::null(), 0);
    let mut minor_version = 0;
    let mut fields = [phr_header::default(); 128];
    let mut count = fields.len();
    // SAFETY: all pointers are to locals or to `bytes`, with their lengths.
    let len = unsafe {
        phr_parse_request(
            bytes.as_ptr().cast(),
            bytes.len(),
            &mut method,
            &mut method_len,
            &mut path,
            &mut path_len,
            &mut minor_version,
            fields.as_mut_ptr(),
            &mut count,
            0,
        )
    };
    let len = usize::try_from(len).ok()?;
    let field = |field: &phr_header| {
        let name = (!field.name.is_null()).then(|| copied(field.name, field.name_len));
        (name, copied(field.value, field.value_len))
    };
    Some(PicoHead {
        len,
        method: copied(method, method_len),
        target: copied(path, path_len),
        minor_version,
        fields: fields[..count].iter().map(field).collect(),
    })
}

fn copied(start: *const c_char, len: usize) -> Vec<u8> {
    // SAFETY: the parser has just returned `start` and `len` for a part of the input.
    unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) }.to_vec()
}

/// The data of a complete chunked body, and how many bytes follow it; None if it is incomplete or invalid.
pub fn pico_chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut data = bytes.to_vec();
    let mut len = data.len();
    // SAFETY: the struct is three integers, and "should be zero-filled before start".
    let mut decoder: phr_chunked_decoder = unsafe { std::mem::zeroed() };
    decoder.consume_trailer = 1;
    // SAFETY: the pointer is to `len` bytes that are ours.
    let rest = unsafe { phr_decode_chunked(&mut decoder, data.as_mut_ptr().cast(), &mut len) };
    data.truncate(len);
    Some((data, usize::try_from(rest).ok()?))
}

/// The C code has two static variables of one name in two blocks. AddressSanitizer would report a variable that is defined
/// twice.
#[no_mangle]
pub extern "C" fn __asan_default_options() -> *const c_char {
    c"detect_odr_violation=0".as_ptr()
}
