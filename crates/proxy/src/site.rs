//! The settings of requests, and the folders that they name.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use crate::access_log::AccessLog;
use crate::files::{self, Files, Rules};
use crate::settings::Settings;

/// The settings, and the folders that they name.
#[derive(Debug)]
pub struct Site {
    /// The settings.
    pub settings: Settings,
    /// The files that are answered without the app, by releases.
    pub files: Vec<Files>,
    /// The files that the app may name, by releases.
    pub sendfile: Vec<Files>,
    /// Where this process logs its own answers.
    pub log: Option<Arc<AccessLog>>,
}

impl Site {
    /// Opens the folders. Fails with the name of one that cannot be used.
    pub fn new(settings: Settings, log: Option<Arc<AccessLog>>) -> Result<Self, String> {
        let Settings { public_files, other_public_files, .. } = &settings;
        let files = open(public_files, other_public_files, &settings.file_rules())?;
        let Settings { sendfile_root, other_sendfile_roots, .. } = &settings;
        let sendfile = open(sendfile_root, other_sendfile_roots, &Rules::default())?;
        Ok(Site { settings, files, sendfile, log })
    }

    /// Warnings for an operator who checks the settings.
    pub fn warnings(&self) -> Vec<String> {
        let links = self.files.iter().flat_map(Files::refused_links);
        links.map(|(link, target)| files::refusal(&link, &target)).collect()
    }

    /// Whether the app may name files in X-Sendfile.
    pub fn has_sendfile(&self) -> bool {
        !self.sendfile.is_empty()
    }
}

/// Opens folders. Another release may have been removed by now.
fn open(root: &Option<PathBuf>, others: &[PathBuf], rules: &Rules) -> Result<Vec<Files>, String> {
    let mut all = Vec::new();
    if let Some(root) = root {
        let files = Files::new(root, rules);
        all.push(files.map_err(|error| format!("cannot serve files of {}: {error}", root.display()))?);
    }
    all.extend(others.iter().filter_map(|other| Files::new(other, rules).ok()));
    Ok(all)
}

/// The site of this process, which new settings replace.
#[derive(Debug)]
pub struct CurrentSite(RwLock<Arc<Site>>);

impl CurrentSite {
    /// The first one.
    pub fn new(site: Site) -> Self {
        CurrentSite(RwLock::new(Arc::new(site)))
    }

    /// The present one.
    pub fn get(&self) -> Arc<Site> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another one, for all requests to come.
    pub fn set(&self, site: Site) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(site);
    }
}
