//! Request bodies: buffered before the application is called, or streamed to it while they arrive.

mod buffered;
mod framing;
mod storage;
mod stream;

pub(super) use buffered::BufferedBody;
pub(super) use framing::{send_continue, will_stream};
pub(super) use storage::Storage;
pub(super) use stream::BodyReader;
pub use stream::{BodyError, BodyRead, BodyStream, ReadAhead};
