//! Words between the judge of a connection's bytes and the handler of its requests. hyper stands between them, and knows nothing of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use fastrack_http::Error;
use hyper::body::Bytes;

/// A word of the judge about a request of HTTP/1.
#[derive(Debug)]
pub enum Note {
    /// The request is none. hyper has got another one in its place.
    Refused(Error),
    /// The target as the client has sent it. hyper has got one that it takes.
    Target(Bytes),
}

/// The words of one connection.
#[derive(Debug, Default)]
pub struct Notes {
    /// With the number of the request, from 1.
    notes: Mutex<VecDeque<(u64, Note)>>,
    has_notes: AtomicBool,
    /// Requests that the handler has got.
    taken: AtomicU64,
    /// The reader that waits for a response.
    reader: Mutex<Option<Waker>>,
    has_reader: AtomicBool,
}

impl Notes {
    /// Leaves a note about the request of this number.
    pub fn leave(&self, number: u64, note: Note) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push_back((number, note));
        self.has_notes.store(true, SeqCst);
    }

    /// Takes the note about the next request. hyper passes requests in the order of their bytes.
    pub fn take(&self) -> Option<Note> {
        let number = self.taken.fetch_add(1, SeqCst) + 1;
        if !self.has_notes.load(SeqCst) {
            return None;
        }
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_next = notes.front().is_some_and(|(of, _)| *of == number);
        let note = is_next.then(|| notes.pop_front()).flatten();
        self.has_notes.store(!notes.is_empty(), SeqCst);
        note.map(|(_, note)| note)
    }

    /// Whether the handler has got the request of this number.
    pub fn has_taken(&self, number: u64) -> bool {
        self.taken.load(SeqCst) >= number
    }

    /// Has the reader woken at the end of a request.
    pub fn wait(&self, reader: &Waker) {
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(reader.clone());
        self.has_reader.store(true, SeqCst);
    }

    /// Wakes the reader that waits.
    pub fn wake(&self) {
        if self.has_reader.swap(false, SeqCst) {
            let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
            reader.into_iter().for_each(Waker::wake);
        }
    }
}
