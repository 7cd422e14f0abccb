//! The atomics and locks of what `examples/model.rs` checks: there they are loom's, which tries all orders of the threads' steps.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Mutex};
