//! Tasks that wait for the commit thread: for room in the queue, or until a stream is settled.
//!
//! Each is woken after every commit and checks again, so dropping one task does not delay another.

use crate::Health;
use crate::queue::Queue;
use crate::shared::Shared;
use crate::state::Core;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A task's slot among the waiters.
struct WaiterSlot {
    shared: Arc<Shared>,
    number: Option<u64>,
}

impl WaiterSlot {
    fn new(shared: &Arc<Shared>) -> WaiterSlot {
        WaiterSlot {
            shared: Arc::clone(shared),
            number: None,
        }
    }

    /// Ready when `is_over`; checks again after the next commit.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        is_over: impl FnOnce(&Shared, &Queue) -> bool,
    ) -> Poll<()> {
        let mut queue = self.shared.lock();
        if is_over(&self.shared, &queue) {
            return Poll::Ready(());
        }
        let waiters = &mut queue.waiters;
        let number = *self.number.get_or_insert_with(|| waiters.new_number());
        waiters.wakers.insert(number, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.shared.lock().waiters.wakers.remove(&number);
        }
    }
}

/// Resolves when a batch that was refused with [`crate::Error::QueueFull`] fits into the queue, or
/// when the log accepts no more records. The next append succeeds, unless another task was quicker,
/// or returns the reason.
#[must_use = "the queue has room when this resolves"]
pub struct Room {
    slot: WaiterSlot,
    bytes: usize,
}

impl Room {
    pub(crate) fn new(shared: &Arc<Shared>, bytes: usize) -> Room {
        Room {
            slot: WaiterSlot::new(shared),
            bytes,
        }
    }
}

impl Future for Room {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let bytes = self.bytes;
        self.slot.poll(context, |shared, queue| {
            let is_refusing = queue.is_refusing() || queue.health == Health::Full;
            is_refusing || shared.fits(queue, bytes)
        })
    }
}

/// Resolves when nothing of a stream is in flight to the disk, or when the log has ended.
#[must_use = "the stream is settled when this resolves"]
pub struct Settled {
    slot: WaiterSlot,
    core: Arc<Core>,
}

impl Settled {
    pub(crate) fn new(shared: &Arc<Shared>, core: &Arc<Core>) -> Settled {
        Settled {
            slot: WaiterSlot::new(shared),
            core: Arc::clone(core),
        }
    }
}

impl Future for Settled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let core = Arc::clone(&self.core);
        self.slot.poll(context, |_, queue| {
            queue.stopped.is_some() || core.is_settled()
        })
    }
}
