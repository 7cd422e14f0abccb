//! The Ruby objects that belong to one engine.

use magnus::rb_sys::AsRawValue;
use magnus::{prelude::*, value::Opaque, Error, RArray, Ruby, Value};
use rb_sys::*;

use crate::env::remote_addr::PeerCache;
use crate::env::templates::Shapes;

const TEMPLATES: isize = 0;
const AFTER_RESPONSE: isize = 1;
const TEMPORARY_INPUT: isize = 2;
const PEERS: isize = 3;
const ERROR_PAGE: isize = 4;
const SHAPES: isize = 5;

/// What keeps an engine's objects alive: one Array, so that a new one takes no unsafe bookkeeping.
///
/// It is registered with the GC for good. A worker makes one engine in its
/// life; and to mark it from the engine's Ruby object would leave a gap before
/// there is one.
pub(crate) struct RootSet(Opaque<RArray>);

impl RootSet {
    /// `templates` are the engine's own: it changes them.
    pub fn new(
        ruby: &Ruby,
        templates: RArray,
        after_response: Option<Value>,
        error_page: Option<Value>,
    ) -> Result<Self, Error> {
        let fastrack: magnus::RModule = ruby.class_object().const_get("Fastrack")?;
        let temporary_input: Value = fastrack.const_get("SpooledBody")?;
        let roots = ruby.ary_new();
        roots.push(templates)?;
        roots.push(after_response)?;
        roots.push(temporary_input)?;
        let peers = ruby.ary_new();
        (0..PeerCache::STRINGS).try_for_each(|_| peers.push(()))?;
        roots.push(peers)?;
        roots.push(error_page)?;
        let shapes = ruby.ary_new();
        (0..Shapes::HASHES).try_for_each(|_| shapes.push(()))?;
        roots.push(shapes)?;
        ruby.gc_register_mark_object(roots);
        Ok(RootSet(roots.into()))
    }

    /// The roots, for whoever has the GVL.
    pub fn borrow(&self, ruby: &Ruby) -> Roots {
        Roots(ruby.get_inner(self.0).as_raw())
    }
}

/// The roots, as the frames under a running engine see them.
#[derive(Clone, Copy)]
pub(crate) struct Roots(VALUE);

impl Roots {
    fn get(self, slot: isize) -> VALUE {
        // SAFETY: the Array is alive for good, and is never shortened.
        unsafe { RARRAY_AREF(self.0, slot) }
    }

    /// The environment template of a listener.
    pub fn template(self, listener: usize) -> VALUE {
        // SAFETY: the engine was made with one template for each listener that a connection may have come by.
        unsafe { rb_ary_entry(self.get(TEMPLATES), listener as _) }
    }

    /// What is called after each response; nil if nothing is.
    pub fn after_response(self) -> VALUE {
        self.get(AFTER_RESPONSE)
    }

    /// What makes a response of an application's failure; nil if nothing does.
    pub fn error_page(self) -> VALUE {
        self.get(ERROR_PAGE)
    }

    /// What makes an input of a descriptor.
    pub fn temporary_input(self) -> VALUE {
        self.get(TEMPORARY_INPUT)
    }

    /// The Array of Hashes that [`Shapes`] keeps.
    pub fn shapes(self) -> VALUE {
        self.get(SHAPES)
    }

    /// The Array of strings that [`PeerCache`] keeps.
    pub fn peers(self) -> VALUE {
        self.get(PEERS)
    }
}
