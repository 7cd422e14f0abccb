//! The memory that one request is read into, used again by the next.

use fastrack_http::Head;

/// What one read asks the kernel for: a whole request, nearly always.
pub(crate) const READ_SIZE: usize = 16 * 1024;

/// What an input may keep when it is not in use. Enough for a form or a small upload without asking the allocator again.
const KEPT: usize = 256 * 1024;

/// Inputs that wait for a connection, at most.
const SPARE: usize = 16;

/// Bytes as they came, and what was made of them.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// The head, followed by as much of the body as is kept in place.
    pub bytes: Vec<u8>,
    /// The parsed head: places in `bytes`.
    pub head: Head,
    /// The body when it had to be decoded.
    pub decoded: Vec<u8>,
    /// What came after a body that is not kept in place: the next request.
    pub rest: Vec<u8>,
    /// The path when it is shown decoded.
    pub path: Vec<u8>,
}

/// Inputs that were used before. Boxed, so that taking and giving back moves a pointer.
#[derive(Debug, Default)]
pub(crate) struct InputPool(#[allow(clippy::vec_box)] Vec<Box<Input>>);

impl InputPool {
    pub fn take(&mut self) -> Box<Input> {
        self.0.pop().unwrap_or_default()
    }

    pub fn give_back(&mut self, mut input: Box<Input>) {
        if self.0.len() >= SPARE {
            return;
        }
        let Input { bytes, decoded, rest, path, .. } = &mut *input;
        for buffer in [bytes, decoded, rest, path] {
            buffer.clear();
            if buffer.capacity() > KEPT {
                buffer.shrink_to(READ_SIZE);
            }
        }
        self.0.push(input);
    }
}
