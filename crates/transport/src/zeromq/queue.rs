//! A queue between a connection's task and its owner, bounded by messages and by bytes.
//!
//! Batches are transferred, so the cost of a lock and a wake-up is shared by many messages.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use chappe_zmtp::Message;
use tokio::sync::Notify;

/// The memory cost of a frame in addition to its bytes.
const FRAME_COST: usize = 64;

/// The cost of a queued item.
pub(super) trait Cost {
    /// In bytes.
    fn cost(&self) -> usize;
}

impl Cost for Message {
    fn cost(&self) -> usize {
        self.bytes() + FRAME_COST * self.len()
    }
}

/// The queue. One side pushes, the other pops; both wait without holding a lock.
#[derive(Debug)]
pub(super) struct Queue<T> {
    items_max: usize,
    bytes_max: usize,
    held: Mutex<Held<T>>,
    filled: Notify,
    emptied: Notify,
}

#[derive(Debug)]
struct Held<T> {
    items: VecDeque<T>,
    bytes: usize,
    closed: bool,
}

/// The message dropped if there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dropping {
    /// The new one.
    #[default]
    Newest,
    /// The oldest ones.
    Oldest,
}

impl<T: Cost> Queue<T> {
    pub(super) fn new(items_max: usize, bytes_max: usize) -> Self {
        Self {
            items_max: items_max.max(1),
            bytes_max,
            held: Mutex::new(Held {
                items: VecDeque::new(),
                bytes: 0,
                closed: false,
            }),
            filled: Notify::new(),
            emptied: Notify::new(),
        }
    }

    /// Every change leaves the queue consistent.
    fn held(&self) -> MutexGuard<'_, Held<T>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room(&self, held: &Held<T>, cost: usize) -> bool {
        // The owner bounds items without cost; and one item always fits, whatever its size.
        cost == 0
            || held.items.is_empty()
            || held.items.len() < self.items_max && held.bytes + cost <= self.bytes_max
    }

    /// Pushes an item if there is room, else returns it. `None` if the queue is closed.
    pub(super) fn try_push(&self, item: T, wake: bool) -> Option<Result<(), T>> {
        let cost = item.cost();
        let mut held = self.held();
        if held.closed {
            return None;
        }
        if !self.has_room(&held, cost) {
            return Some(Err(item));
        }
        held.bytes += cost;
        held.items.push_back(item);
        drop(held);
        if wake {
            self.filled.notify_one();
        }
        Some(Ok(()))
    }

    /// Pushes an item, and waits for room; returns it if the queue is closed. If it is cancelled, the item is not in
    /// the queue.
    pub(super) async fn push(&self, mut item: T, wake: bool) -> Result<(), T> {
        loop {
            item = match self.try_push_or_back(item, wake) {
                Ok(()) => {
                    return Ok(());
                }
                Err((item, true)) => return Err(item),
                Err((item, false)) => item,
            };
            // The other side may not know of items that were pushed without a wake-up.
            self.filled.notify_one();
            self.emptied.notified().await;
        }
    }

    fn try_push_or_back(&self, item: T, wake: bool) -> Result<(), (T, bool)> {
        let cost = item.cost();
        let mut held = self.held();
        if held.closed {
            return Err((item, true));
        }
        if !self.has_room(&held, cost) {
            return Err((item, false));
        }
        held.bytes += cost;
        held.items.push_back(item);
        let more = self.has_room(&held, 1);
        drop(held);
        if wake {
            self.filled.notify_one();
        }
        if more {
            // Another waiting task may try as well.
            self.emptied.notify_one();
        }
        Ok(())
    }

    /// Pushes an item, and drops others for it if necessary. Returns the number of dropped items.
    pub(super) fn offer(&self, item: T, dropping: Dropping) -> u64 {
        let cost = item.cost();
        let mut held = self.held();
        let mut dropped = 0;
        if held.closed {
            return 1;
        }
        while !self.has_room(&held, cost) {
            dropped += 1;
            if dropping == Dropping::Newest {
                return dropped;
            }
            if let Some(oldest) = held.items.pop_front() {
                held.bytes -= oldest.cost();
            }
        }
        held.bytes += cost;
        held.items.push_back(item);
        drop(held);
        self.filled.notify_one();
        dropped
    }

    /// Wakes the popping side for items pushed without a wake-up.
    pub(super) fn wake(&self) {
        self.filled.notify_one();
    }

    /// Pops items of about this total size into `batch`. Returns whether there was any.
    pub(super) fn try_pop(&self, batch: &mut Vec<T>, bytes_max: usize) -> bool {
        let mut held = self.held();
        if held.items.is_empty() {
            return false;
        }
        if held.bytes <= bytes_max {
            batch.extend(held.items.drain(..));
            held.bytes = 0;
        } else {
            let mut taken = 0;
            while taken < bytes_max
                && let Some(item) = held.items.pop_front()
            {
                taken += item.cost();
                batch.push(item);
            }
            held.bytes -= taken;
        }
        drop(held);
        self.emptied.notify_one();
        true
    }

    /// Waits for items; false if the queue is closed and empty.
    pub(super) async fn pop(&self, batch: &mut Vec<T>, bytes_max: usize) -> bool {
        loop {
            if self.try_pop(batch, bytes_max) {
                return true;
            }
            if self.is_closed() {
                return false;
            }
            self.filled.notified().await;
        }
    }

    /// Waits until there may be room for an item of this cost, or the queue is closed.
    pub(super) async fn room(&self, cost: usize) {
        loop {
            {
                let held = self.held();
                if held.closed || self.has_room(&held, cost) {
                    return;
                }
            }
            self.emptied.notified().await;
        }
    }

    /// Accepts no more items; those in the queue can still be popped.
    pub(super) fn close(&self) {
        self.held().closed = true;
        self.filled.notify_one();
        self.emptied.notify_waiters();
        self.emptied.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.held().closed
    }

    /// The number of messages and bytes in the queue.
    pub(super) fn size(&self) -> (usize, usize) {
        let held = self.held();
        (held.items.len(), held.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: usize) -> Message {
        Message::new(vec![0; bytes])
    }

    #[test]
    fn it_is_bounded_by_count_and_by_bytes_but_one_always_fits() {
        let queue = Queue::new(3, 1_000);
        assert!(matches!(queue.try_push(message(5_000), true), Some(Ok(()))));
        assert!(matches!(queue.try_push(message(0), true), Some(Err(_))));
        let mut batch = Vec::new();
        assert!(queue.try_pop(&mut batch, 10));
        for _ in 0..3 {
            assert!(matches!(queue.try_push(message(1), true), Some(Ok(()))));
        }
        assert!(matches!(queue.try_push(message(1), true), Some(Err(_))));
        queue.close();
        assert!(queue.try_push(message(1), true).is_none());
        assert!(queue.try_pop(&mut batch, 10_000) && batch.len() == 4);
    }

    #[test]
    fn the_dropped_message_is_chosen_and_counted() {
        for (dropping, kept) in [(Dropping::Newest, [0, 1]), (Dropping::Oldest, [2, 3])] {
            let queue = Queue::new(2, 10_000);
            let dropped: u64 = (0..4).map(|n| queue.offer(message(n), dropping)).sum();
            assert_eq!(dropped, 2);
            let mut batch = Vec::new();
            queue.try_pop(&mut batch, usize::MAX);
            let sizes: Vec<_> = batch.iter().map(Message::bytes).collect();
            assert_eq!(sizes, kept);
            assert_eq!(queue.size(), (0, 0));
        }
    }

    #[tokio::test]
    async fn room_is_awaited_before_a_push() {
        let queue = Queue::new(10, 1_000);
        let whole = message(600);
        let cost = whole.cost();
        assert!(matches!(queue.try_push(whole, true), Some(Ok(()))));
        let waits = |cost| {
            let room = std::pin::pin!(queue.room(cost));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            room.poll(&mut context).is_pending()
        };
        assert!(!waits(1_000 - cost) && waits(1_001 - cost));
        assert!(queue.try_pop(&mut Vec::new(), usize::MAX));
        assert!(!waits(5_000), "one always fits");
    }

    #[tokio::test]
    async fn waiting_tasks_get_room_in_turn() {
        let queue = std::sync::Arc::new(Queue::new(1, 10_000));
        let pushers: Vec<_> = (0..10)
            .map(|n| {
                let queue = std::sync::Arc::clone(&queue);
                tokio::spawn(async move { queue.push(message(n), true).await })
            })
            .collect();
        let mut batch = Vec::new();
        while batch.len() < 10 {
            assert!(queue.pop(&mut batch, usize::MAX).await);
        }
        for pusher in pushers {
            pusher.await.unwrap().unwrap();
        }
        queue.close();
        assert!(!queue.pop(&mut batch, usize::MAX).await);
        assert!(queue.push(message(0), true).await.is_err());
    }
}
