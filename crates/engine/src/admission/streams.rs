//! Streams: responses that hold no seat, so that other threads answer requests meanwhile.

use super::baton::MAIN;
use super::Room;

/// Orders to the main thread, which alone starts and interrupts threads.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// Number of threads to be started.
    pub start: usize,
    /// Numbers of threads whose streams are to end.
    pub interrupt: Vec<usize>,
}

impl Orders {
    pub fn are_none(&self) -> bool {
        self.start == 0 && self.interrupt.is_empty()
    }
}

/// The streams of a worker, guarded by the reactor's lock.
#[derive(Debug)]
pub(crate) struct Streams {
    most: usize,
    /// The numbers of the threads that have streams.
    threads: Vec<usize>,
    /// Whether each number of a thread is taken.
    numbers: Vec<bool>,
    /// Orders that the main thread has not taken yet.
    orders: Orders,
    /// Number of threads that were ordered, and do not run the engine yet.
    starting: usize,
}

impl Streams {
    pub fn new(room: Room) -> Self {
        let mut numbers = vec![false; room.threads()];
        numbers[MAIN] = true;
        let (threads, orders) = (Vec::new(), Orders::default());
        Streams { most: room.streams(), threads, numbers, orders, starting: 0 }
    }

    /// The lowest free number for a thread. There is a number for each seat and each stream.
    pub(super) fn take_number(&mut self) -> Option<usize> {
        let number = self.numbers.iter().position(|is_taken| !is_taken)?;
        self.numbers[number] = true;
        Some(number)
    }

    pub(super) fn free_number(&mut self, number: usize) {
        self.numbers[number] = false;
    }

    pub(super) fn begin(&mut self, number: usize) {
        self.threads.push(number);
    }

    pub(super) fn end(&mut self, number: usize) {
        self.threads.retain(|thread| *thread != number);
    }

    /// The numbers of the threads that have streams.
    pub fn threads(&self) -> &[usize] {
        &self.threads
    }

    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Whether another response may become a stream.
    pub fn has_room(&self) -> bool {
        self.threads.len() < self.most
    }

    // --- orders for the main thread, which the caller wakes

    pub fn order_threads(&mut self, threads: usize) {
        self.orders.start += threads;
        self.starting += threads;
    }

    /// A thread that was ordered runs the engine, or cannot be started.
    pub fn settle_start(&mut self) {
        self.starting = self.starting.saturating_sub(1);
    }

    /// Number of threads that were ordered, and do not run the engine yet.
    pub(super) fn starting(&self) -> usize {
        self.starting
    }

    /// The streams of these threads are to end.
    pub fn order_interrupts(&mut self, threads: Vec<usize>) {
        self.orders.interrupt = threads;
    }

    pub fn take_orders(&mut self) -> Orders {
        std::mem::take(&mut self.orders)
    }
}
