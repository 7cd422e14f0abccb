//! The files of certificates and their keys. The master reads most of them, since this process's user may not.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;

use super::certificate::Certificate;
use crate::orders::Passed;

/// The files of a listener's certificates, in the master's settings.
#[derive(Clone, Debug, Deserialize)]
pub struct CertificateFiles {
    /// The number of the master's reading, for the answer.
    #[serde(default)]
    number: u64,
    /// The descriptor of a file that has the bytes of all these files, one after the other. None: this process reads the files itself.
    #[serde(default)]
    descriptor: Option<usize>,
    /// Each certificate with its chain, and its key.
    pairs: Vec<(NamedFile, NamedFile)>,
}

/// A file of [`CertificateFiles`].
#[derive(Clone, Debug, Deserialize)]
struct NamedFile {
    path: PathBuf,
    /// Its bytes in the descriptor.
    #[serde(default)]
    size: usize,
    /// Why the master cannot read it.
    #[serde(default)]
    error: Option<String>,
}

impl CertificateFiles {
    /// Whether this process reads the files, and they are not there yet.
    pub fn are_to_come(&self) -> bool {
        self.descriptor.is_none() && self.pairs.iter().any(|(cert, _)| !cert.path.exists())
    }

    /// The contents of the files: the master's copies, or what this process reads itself.
    pub fn contents(&self, passed: &mut Passed) -> Result<Contents, String> {
        let Some(index) = self.descriptor else {
            return Ok(Contents::read(self.paths()));
        };
        let copy = File::from(passed.take(index)?);
        let mut offset = 0;
        let mut next = |file: &NamedFile| {
            let at = offset;
            offset += file.size as u64;
            file.content(&copy, at)
        };
        let pairs = self.pairs.iter().map(|(cert, key)| (next(cert), next(key))).collect();
        Ok(Contents { number: self.number, pairs, is_own: false })
    }

    fn paths(&self) -> Vec<(PathBuf, PathBuf)> {
        self.pairs.iter().map(|(cert, key)| (cert.path.clone(), key.path.clone())).collect()
    }
}

impl NamedFile {
    fn content(&self, copy: &File, offset: u64) -> Content {
        let mut bytes = vec![0; self.size];
        let read = copy.read_exact_at(&mut bytes, offset).map_err(|error| reason(&error));
        let bytes = self.error.clone().map_or(read.map(|()| bytes), Err);
        Content { path: self.path.clone(), bytes }
    }
}

/// What the files of a listener's certificates have.
#[derive(Debug)]
pub struct Contents {
    /// The number of the master's reading; 0: this process has read them.
    pub number: u64,
    /// Each certificate with its chain, and its key.
    pub pairs: Vec<(Content, Content)>,
    /// Whether this process has read them, and is to look whether they change.
    pub is_own: bool,
}

impl Contents {
    /// Reads files with the rights of this process.
    pub fn read(files: Vec<(PathBuf, PathBuf)>) -> Self {
        let pairs = files.into_iter().map(|(cert, key)| (Content::read(cert), Content::read(key))).collect();
        Contents { number: 0, pairs, is_own: true }
    }

    /// The certificates, or why one of them cannot be used.
    pub fn certificates(&self) -> Result<Vec<Certificate>, String> {
        self.pairs.iter().map(|(cert, key)| Certificate::load(cert, key)).collect()
    }

    /// Their paths.
    pub fn paths(&self) -> Vec<(PathBuf, PathBuf)> {
        self.pairs.iter().map(|(cert, key)| (cert.path.clone(), key.path.clone())).collect()
    }
}

/// What a file has.
#[derive(Debug)]
pub struct Content {
    /// Its path, for messages.
    pub path: PathBuf,
    bytes: Result<Vec<u8>, String>,
}

impl Content {
    fn read(path: PathBuf) -> Self {
        let bytes = fs::read(&path).map_err(|error| reason(&error));
        Content { path, bytes }
    }

    /// Its bytes, or why they cannot be read.
    pub fn bytes(&self) -> Result<&[u8], String> {
        let unread = |reason: &String| format!("cannot read {}: {reason}", self.path.display());
        self.bytes.as_deref().map_err(unread)
    }
}

/// Times and inodes of files, by which a change shows.
pub type Stamp = Vec<Option<(SystemTime, u64, u64)>>;

/// The present state of files.
pub fn stamp(files: &[(PathBuf, PathBuf)]) -> Stamp {
    let stamp = |path: &Path| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.ino(), metadata.len()))
    };
    files.iter().flat_map(|(cert, key)| [stamp(cert), stamp(key)]).collect()
}

/// The error's text without "(os error 2)".
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
