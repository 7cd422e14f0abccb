//! `Fastrack.find_place`, for root's master.

use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use magnus::{function, prelude::*, Error, IntoValue, RModule, Ruby, Value};

pub(super) fn init(module: RModule) -> Result<(), Error> {
    module.define_singleton_method("find_place", function!(find_place, 3))
}

/// `find_place(path, last, user)`: the folder's descriptor, which is the caller's to close, the name in it, whether root alone has
/// laid the file out, and whether the name is a link in proc(5). Otherwise an errno, or what is wrong with a link.
fn find_place(ruby: &Ruby, path: PathBuf, last: bool, user: Option<u32>) -> Result<Value, Error> {
    let place = match fastrack_sys::find_place(&path, last, user) {
        Ok(place) => place,
        Err(error) => return Ok(why(ruby, &error)),
    };
    let name = ruby.str_from_slice(&place.name.into_vec());
    Ok((place.folder.into_raw_fd(), name, place.laid_by_root, place.in_proc).into_value_with(ruby))
}

fn why(ruby: &Ruby, error: &std::io::Error) -> Value {
    match error.raw_os_error() {
        Some(errno) => errno.into_value_with(ruby),
        None => error.to_string().into_value_with(ruby),
    }
}
