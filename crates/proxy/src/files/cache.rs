//! A cache of what the file system says, for a second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::entry::Entry;

/// How long the answer of the file system counts.
const FRESH: Duration = Duration::from_secs(1);

/// How long a path is known that nobody asks for, at least.
const KEPT: Duration = Duration::from_secs(60);

/// Bytes of the longest path that is known.
const LONGEST_PATH: usize = 256;

/// A share of the process's descriptors that the cache may have.
const SHARE_OF_DESCRIPTORS: usize = 16;

/// What the cache may have.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Paths with a file, or without one.
    pub paths: usize,
    /// Bytes of files in memory, without the forms that this process makes.
    pub bytes: usize,
    /// Open files.
    pub descriptors: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        let descriptors = (fastrack_sys::fd_limit() / SHARE_OF_DESCRIPTORS).clamp(8, 1024);
        Bounds { paths: 4096, bytes: 16 * 1024 * 1024, descriptors }
    }
}

/// An answer of the cache.
#[derive(Debug)]
pub enum Known {
    /// What the file system has said within the last second.
    Fresh(Option<Arc<Entry>>),
    /// What it has said before.
    Stale(Option<Arc<Entry>>),
    /// Nothing.
    Nothing,
}

/// Paths, with the file or the absence of a file.
///
/// There are two generations: a path that is asked for moves into the young one. When that is full, or old enough, it becomes the old one,
/// and the paths of the old one that nobody has asked for are forgotten. So paths that come once do not displace those that come again.
#[derive(Debug)]
pub struct Cache {
    bounds: Bounds,
    generations: Mutex<Generations>,
}

#[derive(Debug)]
struct Generations {
    young: Generation,
    old: Generation,
    turned_at: Instant,
}

#[derive(Debug, Default)]
struct Generation {
    paths: HashMap<Box<str>, Slot>,
    bytes: usize,
    descriptors: usize,
}

#[derive(Debug)]
struct Slot {
    at: Instant,
    entry: Option<Arc<Entry>>,
}

impl Cache {
    /// An empty cache.
    pub fn new(bounds: Bounds) -> Self {
        let generations = Generations {
            young: Generation::default(),
            old: Generation::default(),
            turned_at: Instant::now(),
        };
        Cache { bounds, generations: Mutex::new(generations) }
    }

    /// What is known of a path. Stale knowledge counts for another second, while the caller asks the file system.
    pub fn get(&self, path: &str) -> Known {
        let now = Instant::now();
        let mut generations = self.lock();
        generations.turn_if_older(now, KEPT);
        let Some(slot) = generations.find(path, self.bounds) else { return Known::Nothing };
        if now.duration_since(slot.at) < FRESH {
            return Known::Fresh(slot.entry.clone());
        }
        slot.at = now;
        Known::Stale(slot.entry.clone())
    }

    /// Notes what the file system says of a path.
    pub fn set(&self, path: &str, entry: Option<Arc<Entry>>) {
        if path.len() <= LONGEST_PATH {
            self.lock().add(path.into(), Slot { at: Instant::now(), entry }, self.bounds);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    /// The slot of a path, which is in the young generation from now on.
    fn find(&mut self, path: &str, bounds: Bounds) -> Option<&mut Slot> {
        if !self.young.paths.contains_key(path) {
            let (path, slot) = self.old.remove(path)?;
            self.add(path, slot, bounds);
        }
        self.young.paths.get_mut(path)
    }

    fn add(&mut self, path: Box<str>, slot: Slot, bounds: Bounds) {
        self.young.remove(&path);
        self.old.remove(&path);
        if !self.young.has_room(&slot, bounds) {
            self.turn();
        }
        self.young.insert(path, slot);
    }

    fn turn_if_older(&mut self, now: Instant, age: Duration) {
        if now.duration_since(self.turned_at) >= age {
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.old = std::mem::take(&mut self.young);
        self.turned_at = Instant::now();
    }
}

impl Generation {
    /// Whether each generation has at most half of the bounds with this slot in it. A generation without paths has room for any slot.
    fn has_room(&self, slot: &Slot, bounds: Bounds) -> bool {
        let (bytes, descriptors) = slot.cost();
        self.paths.is_empty()
            || self.paths.len() < bounds.paths / 2
                && self.bytes + bytes <= bounds.bytes / 2
                && self.descriptors + descriptors <= bounds.descriptors / 2
    }

    fn insert(&mut self, path: Box<str>, slot: Slot) {
        let (bytes, descriptors) = slot.cost();
        self.bytes += bytes;
        self.descriptors += descriptors;
        self.paths.insert(path, slot);
    }

    fn remove(&mut self, path: &str) -> Option<(Box<str>, Slot)> {
        let (path, slot) = self.paths.remove_entry(path)?;
        let (bytes, descriptors) = slot.cost();
        self.bytes -= bytes;
        self.descriptors -= descriptors;
        Some((path, slot))
    }
}

impl Slot {
    /// Bytes and descriptors. Two paths of one file count twice.
    fn cost(&self) -> (usize, usize) {
        self.entry.as_ref().map_or((0, 0), |entry| (entry.bytes(), entry.descriptors()))
    }
}
