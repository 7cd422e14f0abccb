//! Fastrack::SharedQueue: the queue of connections shared by the workers of one master.

use std::cell::{Ref, RefCell};

use magnus::{function, method, prelude::*, Error, RModule, Ruby};

use fastrack_engine::SharedQueue;

use crate::ruby::{io_error, system_error};

/// The Ruby object. The master makes the object before forking.
#[magnus::wrap(class = "Fastrack::SharedQueue", free_immediately)]
pub(super) struct RubySharedQueue(RefCell<Option<SharedQueue>>);

pub(super) fn init(ruby: &Ruby, module: RModule) -> Result<(), Error> {
    let class = module.define_class("SharedQueue", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.const_set("LAYOUT", SharedQueue::LAYOUT)?;
    class.define_singleton_method("new", function!(RubySharedQueue::new, 0))?;
    class.define_singleton_method("from_fds", function!(RubySharedQueue::from_fds, 1))?;
    class.define_singleton_method("of_master", function!(RubySharedQueue::of_master, 2))?;
    class.define_method("fds", method!(RubySharedQueue::fds, 0))?;
    class.define_method("worker_exited", method!(RubySharedQueue::forget, 1))?;
    class.define_method("drain", method!(RubySharedQueue::end, 0))?;
    class.define_method("close", method!(RubySharedQueue::close, 0))?;
    Ok(())
}

impl RubySharedQueue {
    /// `SharedQueue.new`: a queue for future workers.
    fn new(ruby: &Ruby) -> Result<Self, Error> {
        Self::wrap(ruby, SharedQueue::new())
    }

    /// `SharedQueue.from_fds(fds)`: the queue of the old master, after a re-exec.
    fn from_fds(ruby: &Ruby, fds: [i32; 3]) -> Result<Self, Error> {
        // SAFETY: this process has inherited the descriptors for this queue, and closes them later. No process truncates the
        // file.
        Self::wrap(ruby, unsafe { SharedQueue::from_raw_fds(fds) })
    }

    /// `SharedQueue.of_master(fds, pid)`: the queue of this worker's master, by the descriptors sent by the master.
    fn of_master(ruby: &Ruby, fds: [i32; 3], master: u32) -> Result<Self, Error> {
        // SAFETY: this process has received the descriptors for this queue, and closes them later. No process truncates the
        // file.
        Self::wrap(ruby, unsafe { SharedQueue::of_master(fds, master) })
    }

    fn wrap(ruby: &Ruby, queue: std::io::Result<SharedQueue>) -> Result<Self, Error> {
        let queue = queue.map_err(|error| system_error(ruby, "the workers' queue", &error))?;
        Ok(RubySharedQueue(RefCell::new(Some(queue))))
    }

    /// `fds`: the queue's descriptors, for `from_fds` in a process that inherits them.
    fn fds(ruby: &Ruby, this: &Self) -> Result<(i32, i32, i32), Error> {
        Ok(this.borrow(ruby)?.raw_fds().into())
    }

    /// `worker_exited(pid)`: removes a dead worker.
    fn forget(ruby: &Ruby, this: &Self, pid: u32) -> Result<(), Error> {
        this.borrow(ruby)?.forget(pid);
        Ok(())
    }

    /// `drain`: announces that this master's workers will stop, and that the master starts no new workers.
    fn end(ruby: &Ruby, this: &Self) -> Result<(), Error> {
        this.borrow(ruby)?.end();
        Ok(())
    }

    /// `close`: closes this process's descriptors.
    fn close(&self) {
        drop(self.0.take());
    }

    /// The queue; an IOError if the queue is closed.
    pub fn borrow(&self, ruby: &Ruby) -> Result<Ref<'_, SharedQueue>, Error> {
        Ref::filter_map(self.0.borrow(), Option::as_ref)
            .map_err(|_| io_error(ruby, "the workers' queue is closed"))
    }
}
