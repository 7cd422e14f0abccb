//! Request bodies: buffered before the application is called, or streamed to it while they arrive.

mod buffered;
mod framing;
mod reader;
mod stream;
#[cfg(test)]
mod tests;

pub(super) use buffered::BufferedBody;
pub(super) use framing::{send_continue, will_stream};
pub(super) use reader::BodyReader;
pub use reader::{BodyError, BodyRead, ReadAhead};
pub use stream::BodyStream;
