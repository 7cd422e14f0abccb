//! Orders of the master, on standard input: one a line. The descriptors of a line come with its first byte (SCM_RIGHTS, unix(7)).

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};

use crate::ending::End;

/// The master's word for the end, with its times in JSON. Signals are the master's: it has them ignored here.
const END: &[u8] = b"end ";

/// The master's question whether the process still works.
const PING: &[u8] = b"ping";

/// Bytes that are read at once.
const PIECE: usize = 16 * 1024;

/// A document with descriptors.
pub trait Document: DeserializeOwned + Send + 'static {
    /// How many descriptors belong to it.
    fn descriptors(&self) -> usize;
}

/// Descriptors of an order. Those that nobody takes are closed.
#[derive(Debug, Default)]
pub struct Passed(Vec<Option<OwnedFd>>);

impl Passed {
    /// These descriptors.
    #[cfg(test)]
    pub fn of<const COUNT: usize>(descriptors: [OwnedFd; COUNT]) -> Self {
        Passed(descriptors.map(Some).into())
    }

    /// The descriptor with this number. Fails if it has not come: the process has no room for it (RLIMIT_NOFILE).
    pub fn take(&mut self, index: usize) -> Result<OwnedFd, String> {
        let found = self.0.get_mut(index).and_then(Option::take);
        found.ok_or_else(|| format!("descriptor {index} has not come: too many open files"))
    }
}

/// An order of the master.
#[derive(Debug)]
pub enum Order<T> {
    /// New settings, or why they cannot be read.
    Settings(Result<(T, Passed), String>),
    /// The process is to end.
    End(End),
    /// An answer is expected.
    Ping,
}

/// The master's end of standard input.
#[derive(Debug, Default)]
pub struct Orders {
    unread: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
}

impl Orders {
    /// The first settings; None if the process is to end, or the master has ended.
    pub fn first<T: Document>(&mut self) -> Option<Result<(T, Passed), String>> {
        loop {
            match self.next()? {
                Order::Settings(settings) => return Some(settings),
                Order::End(_) => return None,
                Order::Ping => {}
            }
        }
    }

    /// A channel of all further orders, which closes when the master has ended.
    pub fn follow<T: Document>(mut self) -> io::Result<UnboundedReceiver<Order<T>>> {
        let (sender, receiver) = unbounded_channel();
        let read = move || {
            while let Some(order) = self.next() {
                if sender.send(order).is_err() {
                    break;
                }
            }
        };
        std::thread::Builder::new().name("orders".into()).stack_size(128 * 1024).spawn(read)?;
        Ok(receiver)
    }

    /// The next order; None when the master has ended.
    fn next<T: Document>(&mut self) -> Option<Order<T>> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Some(self.order(line.trim_ascii()));
            }
            self.read().ok().filter(|read| *read > 0)?;
        }
    }

    fn order<T: Document>(&mut self, line: &[u8]) -> Order<T> {
        match line.strip_prefix(END) {
            Some(end) => read(end).map_or_else(|error| Order::Settings(Err(error)), Order::End),
            None if line == PING => Order::Ping,
            None => Order::Settings(self.settings(line)),
        }
    }

    fn settings<T: Document>(&mut self, text: &[u8]) -> Result<(T, Passed), String> {
        let settings: T = read(text)?;
        let own = settings.descriptors().min(self.descriptors.len());
        let passed = self.descriptors.drain(..own).map(Some).collect();
        Ok((settings, Passed(passed)))
    }

    fn read(&mut self) -> io::Result<usize> {
        let mut piece = [0; PIECE];
        let input = io::stdin();
        let (read, descriptors) = match fastrack_sys::receive_bytes(input.as_fd(), &mut piece) {
            // A command has a pipe or a file there.
            Err(error) if fastrack_sys::is_no_socket(&error) => (input.lock().read(&mut piece)?, Vec::new()),
            received => received?,
        };
        self.unread.extend_from_slice(&piece[..read]);
        self.descriptors.extend(descriptors);
        Ok(read)
    }
}

fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|error| format!("an order cannot be read: {error}"))
}
