//! loom's atomics and locks. For it SeqCst is AcqRel; only its fences are sequentially consistent.

pub(crate) use loom::sync::{Arc, Mutex};
pub(crate) use std::sync::atomic::Ordering;

use loom::sync::atomic::fence;

macro_rules! atomic {
    ($name:ident, $type:ty) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name(loom::sync::atomic::$name);

        #[allow(dead_code)]
        impl $name {
            pub fn new(value: $type) -> Self {
                $name(loom::sync::atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $type {
                ordered(order, || self.0.load(order))
            }

            pub fn store(&self, value: $type, order: Ordering) {
                ordered(order, || self.0.store(value, order));
            }

            pub fn swap(&self, value: $type, order: Ordering) -> $type {
                ordered(order, || self.0.swap(value, order))
            }

            pub fn fetch_add(&self, value: $type, order: Ordering) -> $type {
                ordered(order, || self.0.fetch_add(value, order))
            }

            pub fn compare_exchange(
                &self,
                old: $type,
                new: $type,
                order: Ordering,
                failure: Ordering,
            ) -> Result<$type, $type> {
                ordered(order, || self.0.compare_exchange(old, new, order, failure))
            }

            pub fn fetch_update(
                &self,
                order: Ordering,
                failure: Ordering,
                change: impl FnMut($type) -> Option<$type>,
            ) -> Result<$type, $type> {
                ordered(order, || self.0.fetch_update(order, failure, change))
            }
        }
    };
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);

fn ordered<T>(order: Ordering, operation: impl FnOnce() -> T) -> T {
    let fenced = order == Ordering::SeqCst;
    let fence = || {
        if fenced {
            fence(Ordering::SeqCst);
        }
    };
    fence();
    let result = operation();
    fence();
    result
}
