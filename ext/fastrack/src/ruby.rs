//! Calling Ruby from Rust: protect, the GVL, strings, errors.

pub(crate) mod errors;
pub(crate) mod gvl;
pub(crate) mod interned;
pub(crate) mod protect;
pub(crate) mod scoped_ref;
pub(crate) mod strings;
pub(crate) mod value;
