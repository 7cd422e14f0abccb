//! Fastrack::Dispatch: what the workers of one master share, as Ruby sees it.

use std::cell::{Ref, RefCell};

use magnus::{function, method, prelude::*, Error, RModule, Ruby};

use fastrack_engine::SharedQueue;

use crate::settings::system_error;

/// The workers' queue as a Ruby object: the master makes it before it forks.
#[magnus::wrap(class = "Fastrack::Dispatch", free_immediately)]
pub(crate) struct RubySharedQueue(RefCell<Option<SharedQueue>>);

pub(crate) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    let class = module.define_class("Dispatch", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("new", function!(RubySharedQueue::new, 0))?;
    class.define_singleton_method("from_fds", function!(RubySharedQueue::from_fds, 1))?;
    class.define_method("fds", method!(RubySharedQueue::fds, 0))?;
    class.define_method("forget", method!(RubySharedQueue::forget, 1))?;
    class.define_method("end", method!(RubySharedQueue::end, 0))?;
    class.define_method("close", method!(RubySharedQueue::close, 0))?;
    Ok(())
}

impl RubySharedQueue {
    /// `Dispatch.new`: a queue for the workers that will be forked.
    fn new(ruby: &Ruby) -> Result<Self, Error> {
        let queue = SharedQueue::new().map_err(|error| system_error(ruby, "the workers' queue", &error))?;
        Ok(RubySharedQueue(RefCell::new(Some(queue))))
    }

    /// `Dispatch.from_fds(fds)`: the queue of the master that this process was before it executed itself anew.
    fn from_fds(ruby: &Ruby, fds: [i32; 3]) -> Result<Self, Error> {
        // SAFETY: this process inherited them for this, and closes them later. Nobody truncates the file.
        let queue = unsafe { SharedQueue::from_raw_fds(fds) };
        let queue = queue.map_err(|error| system_error(ruby, "the workers' queue", &error))?;
        Ok(RubySharedQueue(RefCell::new(Some(queue))))
    }

    /// `fds`: its descriptors, for [`from_fds`](Self::from_fds) of a process that has them, too.
    fn fds(ruby: &Ruby, this: &Self) -> Result<(i32, i32, i32), Error> {
        Ok(this.borrow(ruby)?.raw_fds().into())
    }

    /// `forget(pid)`: that worker is dead.
    fn forget(ruby: &Ruby, this: &Self, pid: u32) -> Result<(), Error> {
        this.borrow(ruby)?.forget(pid);
        Ok(())
    }

    /// `end`: this master's workers are about to end, and it starts no others.
    fn end(ruby: &Ruby, this: &Self) -> Result<(), Error> {
        this.borrow(ruby)?.end();
        Ok(())
    }

    /// `close`: lets go of this process's descriptors.
    fn close(&self) {
        drop(self.0.take());
    }

    /// The queue; an IOError when it is closed.
    pub fn borrow(&self, ruby: &Ruby) -> Result<Ref<'_, SharedQueue>, Error> {
        let closed = |_| Error::new(ruby.exception_io_error(), "the workers' queue is closed");
        Ref::filter_map(self.0.borrow(), Option::as_ref).map_err(closed)
    }
}
