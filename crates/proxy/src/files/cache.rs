//! A cache of what the file system says, for a second, and of the content of small files in demand.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrack_sys::open_without_links;
use hyper::body::Bytes;
use hyper::header::HeaderValue;

use super::path;
use crate::compress::{Accepted, Coding};

/// How long the answer of the file system counts.
const FRESH: Duration = Duration::from_secs(1);

/// Paths that are known; beyond, all are forgotten.
const MOST_PATHS: usize = 4096;

/// Bytes of the longest path that is known.
const LONGEST_PATH: usize = 256;

/// Bytes of a file whose content may be kept.
const SMALL: u64 = 64 * 1024;

/// Bytes of all kept content.
const MOST_CONTENT: u64 = 16 * 1024 * 1024;

/// A file, or one of its compressed forms.
#[derive(Debug)]
pub struct Variant {
    /// Without links.
    pub path: PathBuf,
    /// Bytes.
    pub length: u64,
    /// When it was changed, in whole seconds, as in a date of HTTP.
    pub modified: SystemTime,
    /// Strong.
    pub etag: HeaderValue,
    /// The date of `modified`.
    pub last_modified: HeaderValue,
    /// The file's bytes, if it is small and was asked for before.
    pub content: Option<Bytes>,
}

/// A file and its compressed forms.
#[derive(Debug)]
pub struct Entry {
    /// The file itself.
    pub file: Variant,
    coded: Vec<(Coding, Variant)>,
    /// Its type, by its name.
    pub media_type: HeaderValue,
}

impl Entry {
    /// Looks at a file in `root`. `known` is what was known before: content is kept the second time.
    pub fn load(file: &Path, root: &Path, known: Option<&Entry>) -> Option<Entry> {
        let guess = mime_guess::from_path(file).first_raw().unwrap_or("application/octet-stream");
        let before = |coding: Option<Coding>| {
            let known = known?;
            let coded =
                known.coded.iter().find(|(other, _)| Some(*other) == coding).map(|(_, variant)| variant);
            if coding.is_none() {
                Some(&known.file)
            } else {
                coded
            }
        };
        let beside = |coding: Coding| {
            let mut name = file.as_os_str().to_owned();
            name.push(".");
            name.push(coding.extension());
            let found = path::within(root, Path::new(&name))?;
            Some((coding, Variant::load(found, Some(coding), known.is_some(), before(Some(coding)))?))
        };
        Some(Entry {
            file: Variant::load(file.to_owned(), None, known.is_some(), before(None))?,
            coded: Coding::ALL.into_iter().filter_map(beside).collect(),
            media_type: HeaderValue::from_static(guess),
        })
    }

    /// The compressed form that the client likes best.
    pub fn coded(&self, accepted: Accepted) -> Option<(Coding, &Variant)> {
        if self.coded.is_empty() {
            return None;
        }
        accepted
            .codings()
            .find_map(|coding| self.coded.iter().find(|(one, _)| *one == coding))
            .map(|(coding, variant)| (*coding, variant))
    }

    /// Whether there is a compressed form.
    pub fn is_coded(&self) -> bool {
        !self.coded.is_empty()
    }

    fn content(&self) -> u64 {
        let variants = self.coded.iter().map(|(_, variant)| variant).chain([&self.file]);
        variants.filter_map(|variant| variant.content.as_ref()).map(|content| content.len() as u64).sum()
    }
}

impl Variant {
    fn load(
        path: PathBuf,
        coding: Option<Coding>,
        is_wanted: bool,
        known: Option<&Variant>,
    ) -> Option<Variant> {
        let metadata = fs::symlink_metadata(&path).ok().filter(Metadata::is_file)?;
        let etag = etag(&metadata, coding);
        let length = metadata.len();
        let seconds = metadata.modified().ok()?.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let modified = UNIX_EPOCH + Duration::from_secs(seconds);
        let kept = known.filter(|known| known.etag == etag).and_then(|known| known.content.clone());
        let read = || {
            let file = open_without_links(&path).ok()?;
            let is_same = self::etag(&file.metadata().ok()?, coding) == etag;
            is_same.then(|| super::read(&file, 0, length as usize).ok().map(Bytes::from)).flatten()
        };
        let content = kept.or_else(|| if is_wanted && length <= SMALL { read() } else { None });
        let last_modified = HeaderValue::try_from(httpdate::fmt_http_date(modified)).ok()?;
        Some(Variant { path, length, modified, etag, last_modified, content })
    }
}

/// An entity tag by which a change shows: the time, in nanoseconds as far as the file system has them, and the length.
fn etag(metadata: &Metadata, coding: Option<Coding>) -> HeaderValue {
    let suffix = coding.map_or("", Coding::extension);
    let time = metadata.mtime() as u64 as u128 * 1_000_000_000 + metadata.mtime_nsec() as u128;
    let text = format!("\"{time:x}-{:x}{suffix}\"", metadata.len());
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Paths, with the file or the absence of a file.
#[derive(Debug, Default)]
pub struct Cache(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    paths: HashMap<Box<str>, (Instant, Option<Arc<Entry>>)>,
    content: u64,
}

impl Cache {
    /// The entry of a path. `look` asks the file system, and gets the entry from before.
    pub fn get(&self, path: &str, look: impl FnOnce(Option<&Entry>) -> Option<Entry>) -> Option<Arc<Entry>> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match known().paths.get(path) {
            Some((at, entry)) if at.elapsed() < FRESH => return entry.clone(),
            Some((_, entry)) => entry.clone(),
            None => None,
        };
        let found = look(before.as_deref()).map(Arc::new);
        if path.len() <= LONGEST_PATH {
            known().add(path, found.clone());
        }
        found
    }
}

impl Known {
    fn add(&mut self, path: &str, entry: Option<Arc<Entry>>) {
        let content = entry.as_deref().map_or(0, Entry::content);
        if self.paths.len() >= MOST_PATHS || self.content + content > MOST_CONTENT {
            *self = Known::default();
        }
        self.content += content;
        let before = self.paths.insert(path.into(), (Instant::now(), entry));
        let replaced = before.and_then(|(_, entry)| entry).map_or(0, |entry| entry.content());
        self.content = self.content.saturating_sub(replaced);
    }
}
