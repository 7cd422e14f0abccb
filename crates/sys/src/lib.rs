//! The operating system, for the rest of the server.
//!
//! This crate contains all system calls that differ between Unixes, and all `unsafe` code that does not call Ruby. Safe
//! calls come from rustix and nix, the others from libc.

mod app_user;
mod cached_file;
mod child;
mod clock;
mod fd;
mod fd_limit;
mod fd_passing;
mod heap_holes;
mod linkless;
mod memory;
mod own_descriptors;
mod poller;
mod proc_stat;
mod process;
mod sealed_file;
mod sendfile;
mod shared_memory;
mod signals;
mod socket;
mod stack;
mod stderr;
mod thread;
mod thread_id;
mod thread_turns;
mod wakeup;

#[cfg(test)]
#[path = "../tests/patience/mod.rs"]
mod patience;

pub use app_user::{Access, AppUser};
pub use cached_file::{open_cached, read_cached};
pub use child::{hold_child, is_child, signal_child};
pub use clock::{epoch_micros, epoch_millis, epoch_seconds, monotonic_micros, monotonic_millis};
pub use fd::{
    borrow_fd, inherited_fd, is_lost_fd, is_regular, replace_fd, replace_with_dev_null, set_nonblocking,
    socket_inode, write_once,
};
pub use fd_limit::{
    fd_limit, file_size_limit, has_free_fds, is_out_of_fds, is_shortage, max_fd_limit, too_many_open_files,
};
pub use fd_passing::{
    is_no_socket, message_queue, peek_message, receive_bytes, receive_message, send_message, MAX_PASSED_FDS,
};
pub use heap_holes::fill_heap_holes;
pub use linkless::open_without_links;
pub use memory::{append, reserve};
pub use own_descriptors::spawn_with_own_descriptors;
pub use poller::{Event, Events, Poller};
pub use proc_stat::ProcStat;
pub use process::{
    adopt_orphans, adopts_orphans, effective_user, exit_at_once, exported, is_alive, is_running, is_sibling,
    page_size, share_malloc_arena, trim_heap,
};
pub use sealed_file::sealed_copy;
pub use sendfile::{open_regular, send_file};
pub use shared_memory::{memory_file, Shareable, SharedMemory};
pub use signals::{
    handle_signal, note_application_thread, other_threads, signal_number, signal_self, signal_thread,
    spare_signal, HAS_SPARE_SIGNALS,
};
pub use socket::{
    accept, bind_private, drain_input, has_peer_closed, is_clients_error, is_connection_lost, is_listened_at,
    is_peer_gone, is_readable, millis_since_data, no_reset_on_close, recv, reset_now, reset_on_close, send,
    send_more, shutdown_both, shutdown_write, sleep, unacknowledged, wait_readable, wait_writable, writev,
};
pub use stack::release_stack;
pub use stderr::{load_backtrace, write_backtrace, write_stderr, write_stderr_all};
pub use thread::{end_within, spawn_thread};
pub use thread_id::ThreadId;
pub use thread_turns::{take_short_turns, turn_of};
pub use wakeup::{Timer, Waker};
