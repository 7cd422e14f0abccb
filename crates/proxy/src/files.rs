//! Files that are answered without the app.
//!
//! tower-http's ServeDir follows links out of its folder, serves names with a dot in front, and has no ETag, no If-Range and one range
//! only. So the path, the conditions and the ranges are done here; dates and media types are libraries'.

mod body;
mod cache;
pub(crate) mod conditions;
mod entry;
mod folders;
mod forms;
mod path;
mod respond;
mod types;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::response;
use hyper::{Method, Response, StatusCode};
use tokio::task::spawn_blocking;

pub use body::Content;
use cache::{Bounds, Cache, Known};
use entry::{Entry, Found};
pub use folders::refusal;
use folders::{Folder, Wait};
pub use path::matches;

/// Settings of a folder.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Patterns of paths, and their Cache-Control. The first that fits counts.
    pub cache_control: Vec<(String, String)>,
    /// Fields of all responses with a file: names and values.
    pub fields: Vec<(String, String)>,
    /// Folders to which links may lead.
    pub links: Vec<PathBuf>,
    /// Whether files without a compressed form beside them are compressed here.
    pub compress: bool,
}

/// The files of one folder.
#[derive(Debug)]
pub struct Files {
    folder: Arc<Folder>,
    cache_control: Vec<(String, HeaderValue)>,
    fields: HeaderMap,
    compress: bool,
    cache: Cache,
}

impl Files {
    /// Opens a folder. Fails if there is none, or if a rule has a field that is none.
    pub fn new(root: &Path, rules: &Rules) -> io::Result<Self> {
        let value = |text: &String| HeaderValue::try_from(text).map_err(io::Error::other);
        let cache_control =
            rules.cache_control.iter().map(|(pattern, text)| Ok((pattern.clone(), value(text)?)));
        let name = |text: &String| HeaderName::try_from(text).map_err(io::Error::other);
        let fields = rules.fields.iter().map(|(field, text)| Ok((name(field)?, value(text)?)));
        Ok(Files {
            folder: Arc::new(Folder::new(root, &rules.links)?),
            cache_control: cache_control.collect::<io::Result<_>>()?,
            fields: fields.collect::<io::Result<_>>()?,
            compress: rules.compress,
            cache: Cache::new(Bounds::default()),
        })
    }

    /// The response to a request for a file; None: the app answers the request.
    pub async fn answer(&self, request: &Parts) -> Option<Response<Content>> {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return None;
        }
        let path = request.uri.path();
        let Ok(entry) = self.entry(path).await else { return Some(shortage()) };
        let entry = entry?;
        let mut fields = self.fields.clone();
        if let Some((_, value)) = self.cache_control.iter().find(|(pattern, _)| matches(pattern, path)) {
            fields.insert(header::CACHE_CONTROL, value.clone());
        }
        Some(respond::with_file(&entry, request, fields, self.compress).await)
    }

    /// Links in the folder that lead out of it to no folder of [`Rules::links`], with their targets.
    pub fn refused_links(&self) -> Vec<(PathBuf, PathBuf)> {
        self.folder.refused_links()
    }

    /// The app's response with a file whose whole path the app has named, instead of a body; None: the folder has no such file.
    pub async fn send(
        &self,
        path: &Path,
        request: &Parts,
        app: response::Parts,
    ) -> Result<Response<Content>, response::Parts> {
        // The app may have written the file a moment ago: the cache knows nothing of it.
        let path = path.to_owned();
        let found = self.look(None, move |folder, wait| Found::by_path(folder, &path, wait)).await;
        match found {
            Ok(Some(entry)) => Ok(respond::for_app(&entry, request, app)),
            Ok(None) => Err(app),
            Err(_) => Ok(shortage()),
        }
    }

    /// The file of a path. Fails in a shortage only.
    async fn entry(&self, path: &str) -> io::Result<Option<Arc<Entry>>> {
        let known = match self.cache.get(path) {
            Known::Fresh(entry) if entry.as_ref().is_none_or(|entry| entry.is_same()) => return Ok(entry),
            Known::Fresh(entry) | Known::Stale(entry) => entry,
            Known::Nothing => None,
        };
        let Some(names) = path::candidates(path) else {
            self.cache.set(path, None);
            return Ok(None);
        };
        let entry = self.look(known, move |folder, wait| Found::by_names(folder, &names, wait)).await?;
        self.cache.set(path, entry.clone());
        Ok(entry)
    }

    /// Looks for a file, at once if the kernel needs no disk, else on another thread.
    async fn look<F>(&self, known: Option<Arc<Entry>>, find: F) -> io::Result<Option<Arc<Entry>>>
    where
        F: Fn(&Folder, Wait) -> io::Result<Option<Found>> + Send + 'static,
    {
        let load = move |folder: &Folder, known, wait| {
            find(folder, wait)?.map(|found| Entry::load(found, known, wait)).transpose()
        };
        match load(&self.folder, known.clone(), Wait::Never) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let folder = Arc::clone(&self.folder);
                let slow = spawn_blocking(move || load(&folder, known, Wait::Allowed));
                slow.await.map_err(io::Error::other).and_then(|result| result)
            }
            result => result,
        }
    }
}

/// The response while a descriptor or memory is missing.
fn shortage() -> Response<Content> {
    let mut response = Response::new(Content::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response
}

#[cfg(test)]
mod tests;
