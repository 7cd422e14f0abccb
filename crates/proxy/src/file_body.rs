//! A response's body that is read from a file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use hyper::body::Bytes;

/// Bytes that are read at once. As in nginx without threads, a read of what is not in the page cache keeps other clients waiting.
const PART: usize = 64 * 1024;

/// A piece of a body.
#[derive(Debug)]
pub enum Piece {
    Memory(Bytes),
    File(Range<u64>),
}

/// A body that is read from a file.
#[derive(Debug)]
pub struct FileBody {
    file: File,
    /// The next one is the last.
    pieces: Vec<Piece>,
    left: u64,
}

impl FileBody {
    /// Opens the file at `path`, for these pieces of it.
    pub fn open(path: &Path, mut pieces: Vec<Piece>) -> io::Result<Self> {
        let length = |piece: &Piece| match piece {
            Piece::Memory(bytes) => bytes.len() as u64,
            Piece::File(range) => range.end - range.start,
        };
        let left = pieces.iter().map(length).sum();
        pieces.reverse();
        Ok(FileBody { file: File::open(path)?, pieces, left })
    }

    /// Bytes that have not been read.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes; None at the end. Fails if the file has become shorter: the connection ends, so that the client sees it.
    pub fn next_part(&mut self) -> Option<io::Result<Bytes>> {
        if self.left == 0 {
            return None;
        }
        let bytes = match self.pieces.pop()? {
            Piece::Memory(bytes) => bytes,
            Piece::File(range) => {
                let count = (range.end - range.start).min(PART as u64);
                let mut part = vec![0; count as usize];
                if let Err(error) = self.file.read_exact_at(&mut part, range.start) {
                    self.left = 0;
                    return Some(Err(error));
                }
                let rest = range.start + count..range.end;
                if !rest.is_empty() {
                    self.pieces.push(Piece::File(rest));
                }
                part.into()
            }
        };
        self.left -= bytes.len() as u64;
        Some(Ok(bytes))
    }
}
