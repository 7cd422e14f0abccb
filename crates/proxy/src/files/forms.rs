//! Compressed forms of files that have none beside them: made once, when a client asks for one, and kept in memory.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use brotli::enc::BrotliEncoderParams;
use brotli::CompressorWriter;
use flate2::write::GzEncoder;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::spawn_blocking;

use super::body::read;
use super::entry::{Store, Variant};
use super::folders::Wait;
use crate::compress::Coding;

/// Bytes of a file that is worth it, and of one that is not too long.
const LEAST: u64 = 1024;
const MOST: u64 = 8 * 1024 * 1024;

/// Bytes of all forms together. While they are there, files without a form are sent as they are.
const BUDGET: u64 = 32 * 1024 * 1024;

/// Forms that are made at the same time.
const JOBS: usize = 2;

/// Levels for bytes that are compressed once and sent often.
const ZSTD_LEVEL: i32 = 12;
const GZIP_LEVEL: u32 = 8;
const BROTLI_LEVEL: i32 = 7;

/// Base-2 logarithm of the bytes that an encoder looks back. Clients must take 8 MB (RFC 8878 §3.1.1.1.2).
const WINDOW_LOG: u32 = 22;

/// Bytes that are read and compressed at once.
const PART: u64 = 256 * 1024;

/// The forms of one file, in the order of [`Coding::ALL`].
#[derive(Debug, Default)]
pub struct Forms([OnceCell<Option<Arc<Variant>>>; Coding::ALL.len()]);

impl Forms {
    /// Whether a file of this length may have forms.
    pub fn may_be_of(length: u64) -> bool {
        (LEAST..=MOST).contains(&length)
    }

    /// The form, if it was made before: Some(None) if it would save nothing.
    pub fn made(&self, coding: Coding) -> Option<Option<Arc<Variant>>> {
        self.cell(coding).get().cloned()
    }

    /// The form. One caller makes it, and the others wait. None: it saves nothing, or it cannot be made now.
    pub async fn make(&self, coding: Coding, file: &Arc<Variant>) -> Option<Arc<Variant>> {
        let made = self.cell(coding).get_or_try_init(|| make(coding, Arc::clone(file))).await;
        made.ok().cloned().flatten()
    }

    fn cell(&self, coding: Coding) -> &OnceCell<Option<Arc<Variant>>> {
        &self.0[coding as usize]
    }
}

async fn make(coding: Coding, file: Arc<Variant>) -> io::Result<Option<Arc<Variant>>> {
    static PERMITS: Semaphore = Semaphore::const_new(JOBS);
    let _permit = PERMITS.acquire().await.map_err(io::Error::other)?;
    let mut kept = Kept::reserve(file.length)?;
    let job = spawn_blocking(move || -> io::Result<Option<Arc<Variant>>> {
        let bytes = encode(coding, &file)?;
        // Less than a tenth is not worth the client's work.
        if bytes.len() as u64 > file.length / 10 * 9 {
            return Ok(None);
        }
        kept.shrink_to(bytes.len() as u64);
        Ok(Some(Arc::new(file.form(coding, bytes.into(), kept))))
    });
    job.await.map_err(io::Error::other)?
}

fn encode(coding: Coding, file: &Variant) -> io::Result<Vec<u8>> {
    let mut source = Source { store: &file.store, at: 0, length: file.length };
    let bytes = match coding {
        Coding::Zstd => {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
            encoder.window_log(WINDOW_LOG)?;
            encoder.set_pledged_src_size(Some(file.length))?;
            source.write_to(&mut encoder)?;
            encoder.finish()?
        }
        Coding::Brotli => {
            let params =
                BrotliEncoderParams { quality: BROTLI_LEVEL, lgwin: WINDOW_LOG as i32, ..Default::default() };
            let mut encoder = CompressorWriter::with_params(Vec::new(), 4096, &params);
            source.write_to(&mut encoder)?;
            encoder.into_inner()
        }
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL));
            source.write_to(&mut encoder)?;
            encoder.finish()?
        }
    };
    match &file.store {
        Store::Disk(opened) if !opened.has_same_content() => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(bytes),
    }
}

/// The bytes of a file, part by part.
struct Source<'a> {
    store: &'a Store,
    at: u64,
    length: u64,
}

impl Source<'_> {
    fn write_to(&mut self, encoder: &mut impl Write) -> io::Result<()> {
        while self.at < self.length {
            let count = PART.min(self.length - self.at);
            match self.store {
                Store::Memory(bytes) => encoder.write_all(&bytes[self.at as usize..][..count as usize])?,
                Store::Disk(opened) => {
                    encoder.write_all(&read(&opened.file, self.at, count as usize, Wait::Allowed)?)?;
                }
            }
            self.at += count;
        }
        Ok(())
    }
}

/// A part of the budget, until it is dropped.
#[derive(Debug)]
pub struct Kept(u64);

static TAKEN: AtomicU64 = AtomicU64::new(0);

impl Kept {
    /// Fails while the budget has not so many bytes left.
    pub fn reserve(bytes: u64) -> io::Result<Self> {
        let add = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= BUDGET);
        match TAKEN.fetch_update(Relaxed, Relaxed, add) {
            Ok(_) => Ok(Kept(bytes)),
            Err(_) => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }

    fn shrink_to(&mut self, bytes: u64) {
        TAKEN.fetch_sub(self.0.saturating_sub(bytes), Relaxed);
        self.0 = self.0.min(bytes);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Relaxed);
    }
}
