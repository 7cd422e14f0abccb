//! The operating system, as far as a worker needs it.
//!
//! Every call that is not the same on every Unix is in this crate, and so is
//! all `unsafe` that is not about Ruby. Where nix has a safe call, that one is
//! used; recv(2) and send(2), which each request takes, are rustix's; the rest
//! are the calls whose arguments nix cannot express (the peer's address from
//! accept4(2)).

mod clock;
mod fatal_signals;
mod fd;
mod fd_limit;
mod fd_passing;
mod poller;
mod process;
mod sendfile;
mod shared_memory;
mod signals;
mod socket;
mod wakeup;

pub use clock::{epoch_seconds, monotonic_millis};
pub use fatal_signals::precede_fatal_signals;
pub use fd::{duplicate, neutralise, set_nonblocking};
pub use fd_limit::{descriptors, has_room, most_descriptors, no_descriptor};
pub use fd_passing::{message_queue, receive_message, send_message, MOST_PASSED};
pub use poller::{Event, Events, Poller};
pub use process::{exit_at_once, is_running, say, with_descriptor, write};
pub use sendfile::{open_regular, send_file, send_more};
pub use shared_memory::{memory_file, SharedNumbers};
pub use signals::{
    handle_signal, other_threads, prepare_native_frames, signal_self, signal_thread, spare_signal,
    with_signals_blocked, write_native_frames,
};
pub use socket::{
    accept, discard, has_ended, has_left, is_clients_error, is_readable, pause, recv, reset_on_close, send,
    shutdown_both, shutdown_write, wait_readable, wait_writable, writev,
};
pub use wakeup::{Timer, Waker};
