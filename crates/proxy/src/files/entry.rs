//! A file that may be sent, and its compressed forms.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use hyper::body::Bytes;
use hyper::header::HeaderValue;

use super::body::read;
use super::folders::{Folder, Opened, Stamp, Wait};
use super::forms::{Forms, Kept};
use super::types;
use crate::compress::{is_text, Accepted, Coding};

/// Bytes of a file whose content is kept in memory, and whose descriptor is not.
pub const SMALL: u64 = 64 * 1024;

/// Where the bytes of a file are.
#[derive(Clone, Debug)]
pub enum Store {
    /// Here.
    Memory(Bytes),
    /// In the file. All responses share its descriptor.
    Disk(Arc<Opened>),
}

/// A file, or one of its compressed forms.
#[derive(Debug)]
pub struct Variant {
    /// Bytes.
    pub length: u64,
    /// Strong.
    pub etag: HeaderValue,
    /// In whole seconds, as dates of HTTP are.
    pub last_modified: HeaderValue,
    /// Its bytes are those of the file that the other facts are of.
    pub store: Store,
    stamp: Stamp,
    /// Its part of the budget, if this process has made it.
    _kept: Option<Kept>,
}

impl Variant {
    /// A compressed form of this file.
    pub fn form(&self, coding: Coding, bytes: Bytes, kept: Kept) -> Self {
        Variant {
            length: bytes.len() as u64,
            etag: self.form_etag(coding),
            last_modified: self.last_modified.clone(),
            store: Store::Memory(bytes),
            stamp: self.stamp,
            _kept: Some(kept),
        }
    }

    /// The tag of a compressed form, also of one that is not made yet.
    pub fn form_etag(&self, coding: Coding) -> HeaderValue {
        etag(self.stamp, Some(coding))
    }

    fn new(opened: Opened, coding: Option<Coding>, wait: Wait) -> io::Result<Self> {
        let stamp = opened.stamp;
        let store = if stamp.length <= SMALL { whole(&opened, wait)?.map(Store::Memory) } else { None };
        Ok(Variant {
            length: stamp.length,
            etag: etag(stamp, coding),
            last_modified: last_modified(stamp),
            store: store.unwrap_or_else(|| Store::Disk(Arc::new(opened))),
            stamp,
            _kept: None,
        })
    }

    /// Whether the file is what it was. Asks the kernel about a file on disk, whose bytes are read later. Other bytes are here.
    fn is_same(&self) -> bool {
        match &self.store {
            Store::Memory(_) => true,
            Store::Disk(opened) => opened.is_same(),
        }
    }
}

/// The content of a file; None if the file changes meanwhile.
fn whole(opened: &Opened, wait: Wait) -> io::Result<Option<Bytes>> {
    match read(&opened.file, 0, opened.stamp.length as usize, wait) {
        Ok(bytes) => Ok(opened.has_same_content().then(|| bytes.into())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// An entity tag by which a change shows: the time, in nanoseconds as far as the file system has them, and the length.
fn etag(stamp: Stamp, coding: Option<Coding>) -> HeaderValue {
    let suffix = coding.map_or("", Coding::extension);
    let (seconds, nanoseconds) = stamp.modified;
    let time = seconds as u64 as u128 * 1_000_000_000 + nanoseconds as u128;
    let text = format!("\"{time:x}-{:x}{suffix}\"", stamp.length);
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("\"\""))
}

/// The date of HTTP. Times before 1970 have none, and count as 1970.
fn last_modified(stamp: Stamp) -> HeaderValue {
    let time = UNIX_EPOCH + Duration::from_secs(stamp.modified.0.max(0) as u64);
    HeaderValue::try_from(httpdate::fmt_http_date(time)).unwrap_or(HeaderValue::from_static(""))
}

/// A file and the compressed forms beside it, open.
#[derive(Debug)]
pub struct Found {
    file: Opened,
    coded: Vec<(Coding, Opened)>,
    media_type: HeaderValue,
}

impl Found {
    /// The first of these names below the folder that is a file's; None: none is.
    pub fn by_names(folder: &Folder, names: &[PathBuf], wait: Wait) -> io::Result<Option<Found>> {
        for name in names {
            if let Some(file) = folder.open(name, wait)? {
                return Found::beside(file, folder, name, wait).map(Some);
            }
        }
        Ok(None)
    }

    /// The file with this whole path, as it is; None: the folder has no such file.
    pub fn by_path(folder: &Folder, path: &Path, wait: Wait) -> io::Result<Option<Found>> {
        let found = |file| Found { file, coded: Vec::new(), media_type: types::of(path) };
        Ok(folder.open_path(path, wait)?.map(found))
    }

    fn beside(file: Opened, folder: &Folder, name: &Path, wait: Wait) -> io::Result<Found> {
        let mut coded = Vec::new();
        for coding in Coding::ALL {
            let mut name = OsString::from(name);
            name.push(".");
            name.push(coding.extension());
            coded.extend(folder.open(Path::new(&name), wait)?.map(|opened| (coding, opened)));
        }
        Ok(Found { file, coded, media_type: types::of(name) })
    }
}

/// A file and its compressed forms.
#[derive(Debug)]
pub struct Entry {
    /// The file itself.
    pub file: Arc<Variant>,
    coded: Vec<(Coding, Arc<Variant>)>,
    /// Its type, by its name.
    pub media_type: HeaderValue,
    forms: Forms,
}

impl Entry {
    /// Reads what was found. `known` is the entry from before: if nothing has changed, it stays.
    pub fn load(found: Found, known: Option<Arc<Entry>>, wait: Wait) -> io::Result<Arc<Entry>> {
        if let Some(known) = known.filter(|known| known.is(&found)) {
            return Ok(known);
        }
        let Found { file, coded, media_type } = found;
        let variant = |(coding, opened)| Ok((coding, Arc::new(Variant::new(opened, Some(coding), wait)?)));
        Ok(Arc::new(Entry {
            file: Arc::new(Variant::new(file, None, wait)?),
            coded: coded.into_iter().map(variant).collect::<io::Result<_>>()?,
            media_type,
            forms: Forms::default(),
        }))
    }

    fn is(&self, found: &Found) -> bool {
        let own = self.coded.iter().map(|(coding, variant)| (*coding, variant.stamp));
        let theirs = found.coded.iter().map(|(coding, opened)| (*coding, opened.stamp));
        self.file.stamp == found.file.stamp && self.media_type == found.media_type && own.eq(theirs)
    }

    /// The compressed form that the client likes best.
    pub fn coded(&self, accepted: Accepted) -> Option<(Coding, &Arc<Variant>)> {
        if self.coded.is_empty() {
            return None;
        }
        accepted
            .codings()
            .find_map(|coding| self.coded.iter().find(|(one, _)| *one == coding))
            .map(|(coding, variant)| (*coding, variant))
    }

    /// Whether this process may compress the file.
    pub fn is_compressible(&self) -> bool {
        Forms::may_be_of(self.file.length) && self.media_type.to_str().is_ok_and(is_text)
    }

    /// The form that this process makes, if it was made before: Some(None) if it would save nothing.
    pub fn made(&self, coding: Coding) -> Option<Option<Arc<Variant>>> {
        self.forms.made(coding)
    }

    /// The form that this process makes. A client that leaves meanwhile does not waste the work.
    pub async fn make(self: &Arc<Self>, coding: Coding) -> Option<Arc<Variant>> {
        let entry = Arc::clone(self);
        let made = tokio::spawn(async move { entry.forms.make(coding, &entry.file).await });
        made.await.ok().flatten()
    }

    /// Whether there is a compressed form.
    pub fn is_coded(&self) -> bool {
        !self.coded.is_empty()
    }

    /// Whether the files are what they were when they were opened, as far as their bytes are still to be read.
    pub fn is_same(&self) -> bool {
        self.variants().all(|variant| variant.is_same())
    }

    /// Bytes that it has in memory.
    pub fn bytes(&self) -> usize {
        let bytes = |variant: &Arc<Variant>| match &variant.store {
            Store::Memory(bytes) => bytes.len(),
            Store::Disk(_) => 0,
        };
        self.variants().map(bytes).sum()
    }

    /// Descriptors that it has.
    pub fn descriptors(&self) -> usize {
        self.variants().filter(|variant| matches!(variant.store, Store::Disk(_))).count()
    }

    fn variants(&self) -> impl Iterator<Item = &Arc<Variant>> {
        self.coded.iter().map(|(_, variant)| variant).chain([&self.file])
    }
}
