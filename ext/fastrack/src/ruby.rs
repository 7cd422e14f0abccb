//! The basics of calling Ruby from Rust.

pub(crate) mod errors;
pub(crate) mod gvl;
pub(crate) mod interned;
pub(crate) mod protect;
pub(crate) mod roots;
pub(crate) mod scoped_ref;
pub(crate) mod strings;
