//! The atomics and locks of the modules that `examples/model.rs` checks. The model replaces them by loom's, which tries
//! every interleaving of the threads.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Mutex};
