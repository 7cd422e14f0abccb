//! Fastrack::AppUser: the user whose rights a root master uses for files.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use magnus::{function, method, prelude::*, Error, IntoValue, RModule, Ruby, Value};

use fastrack_sys::{Access, AppUser};

/// The Ruby object.
#[magnus::wrap(class = "Fastrack::AppUser", free_immediately)]
pub(super) struct RubyAppUser(pub(super) AppUser);

pub(super) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    let class = module.define_class("AppUser", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("new", function!(RubyAppUser::new, 3))?;
    class.define_method("at", method!(RubyAppUser::at, 2))?;
    class.define_method("act", method!(RubyAppUser::act, 0))?;
    Ok(())
}

impl RubyAppUser {
    /// `AppUser.new(name, uid, gid)`: raises SystemCallError.
    fn new(ruby: &Ruby, name: String, uid: u32, gid: u32) -> Result<Self, Error> {
        AppUser::new(&name, uid, gid).map(RubyAppUser).map_err(|error| errno(ruby, &error, &name))
    }

    /// `act { }`: runs the block with the user's effective ids. Returns the block's result. Raises SystemCallError.
    fn act(ruby: &Ruby, this: &Self) -> Result<Value, Error> {
        // `yield_values` returns the block's exceptions as values.
        this.0
            .act(|| ruby.yield_values::<_, Value>(()))
            .unwrap_or_else(|error| Err(errno(ruby, &error, "setresuid(2)")))
    }

    /// `at(path, follow) { |found| }`: runs the block on the file at an absolute path.
    ///
    /// The block has the user's effective ids if the user can change the target of the path, else root's. The block receives
    /// the path, or the number of a descriptor of this process if a link of root leads to a descriptor. With `follow`, the
    /// file itself may be a link of root. Returns the block's result. Raises SystemCallError.
    fn at(ruby: &Ruby, this: &Self, path: PathBuf, follow: bool) -> Result<Value, Error> {
        let text = |path: &PathBuf| ruby.str_from_slice(path.as_os_str().as_bytes()).into_value_with(ruby);
        // `yield_values` returns the block's exceptions as values.
        let call = |found: Value| ruby.yield_values::<_, Value>((found,));
        let result = match this.0.access(&path, follow) {
            Ok(Access::Root(found)) => Ok(call(text(&found))),
            Ok(Access::OwnDescriptor(fd)) => Ok(call(fd.into_value_with(ruby))),
            Ok(Access::User) => this.0.act(|| call(text(&path))),
            Err(error) => Err(error),
        };
        result.unwrap_or_else(|error| Err(errno(ruby, &error, &path.to_string_lossy())))
    }
}

fn errno(ruby: &Ruby, error: &std::io::Error, what: &str) -> Error {
    let number = error.raw_os_error().unwrap_or(0);
    match ruby.exception_system_call_error().new_instance((what, number)) {
        Ok(exception) => exception.into(),
        Err(error) => error,
    }
}
