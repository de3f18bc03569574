//! The queue between the notification server and the reader of a subscription.
//!
//! A notification reserves room before the machine gets it, and occupies it until it is read. Without room its
//! device waits for the answer, and the queue holds nothing of it. So a device that waits for answers sends as
//! fast as its events are read, and one that does not wait cannot fill the memory.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_dpws::eventing::{EventSink, SinkCommand, SubscriptionKey};
use chappe_machine::Input;
use chappe_transport::{Drops, Hop};
use chappe_xml::Element;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::subscription::Delivery;
use crate::driver::InputOf;

/// Limits on the queue of a subscription.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueLimits {
    pub(super) notifications: usize,
    /// Counted by [`Element::expanded_bytes`].
    pub(super) bytes: usize,
}

impl QueueLimits {
    /// The capacity in permits; a permit is a byte.
    fn permits(self) -> u32 {
        u32::try_from(self.bytes).unwrap_or(u32::MAX).max(1)
    }

    /// The permits for a notification: at least the share that limits their number, at most all, for one
    /// that is larger than the queue.
    fn permits_for(self, body: Option<&Element>) -> u32 {
        let share = self.permits() as usize / self.notifications.max(1);
        let bytes = body.map_or(0, Element::expanded_bytes).max(share);
        u32::try_from(bytes)
            .unwrap_or(u32::MAX)
            .clamp(1, self.permits())
    }
}

/// A queued delivery; its room is released when it is read.
pub(super) struct Queued {
    pub(super) delivery: Delivery,
    _room: Option<OwnedSemaphorePermit>,
}

/// The sending end of the queue. When the last reference is dropped, it unsubscribes.
pub(super) struct Inbox {
    key: SubscriptionKey,
    queue: mpsc::UnboundedSender<Queued>,
    room: Arc<Semaphore>,
    limits: QueueLimits,
    /// The room of tree events that the machine is processing, in order.
    spread: Mutex<VecDeque<OwnedSemaphorePermit>>,
    inputs: mpsc::Sender<Option<InputOf<EventSink>>>,
}

/// Reserved room for one posted notification.
pub(super) struct QueueSlot {
    inbox: Arc<Inbox>,
    room: OwnedSemaphorePermit,
}

/// The reading end of the queue.
pub(super) struct QueueReader {
    pub(super) queue: mpsc::UnboundedReceiver<Queued>,
    room: Arc<Semaphore>,
}

/// The queue of a subscription.
pub(super) fn queue(
    key: SubscriptionKey,
    limits: QueueLimits,
    inputs: mpsc::Sender<Option<InputOf<EventSink>>>,
) -> (Arc<Inbox>, QueueReader) {
    // Notifications are bounded by their room; other deliveries follow answers of the device.
    let (sender, receiver) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(limits.permits() as usize));
    let inbox = Inbox {
        key,
        queue: sender,
        room: Arc::clone(&room),
        limits,
        spread: Mutex::default(),
        inputs,
    };
    let queue = receiver;
    (Arc::new(inbox), QueueReader { queue, room })
}

impl QueueReader {
    /// Admits all deliveries that wait for room.
    pub(super) fn admit_all(&self) {
        self.room.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// Rejects all deliveries that wait for room.
    pub(super) fn reject_all(&self) {
        self.room.close();
    }
}

impl Inbox {
    /// Waits for room, in the order of arrival; `None` if the reader has closed. Counts a posted notification
    /// whose sender gives up during the wait.
    pub(super) async fn reserve(
        self: Arc<Self>,
        body: Option<&Element>,
        (peer, drops): (IpAddr, &Drops),
    ) -> Option<QueueSlot> {
        let mut waiting = WaitGuard {
            peer,
            drops,
            is_over: false,
        };
        let room = self.room_for(body).await;
        waiting.is_over = true;
        let room = room?;
        Some(QueueSlot { inbox: self, room })
    }

    async fn room_for(&self, body: Option<&Element>) -> Option<OwnedSemaphorePermit> {
        let room = Arc::clone(&self.room);
        room.acquire_many_owned(self.limits.permits_for(body))
            .await
            .ok()
    }

    /// Reserves room for a tree event, which the machine gets next.
    pub(super) async fn reserve_for_spread(&self, body: &Element) -> Option<()> {
        let room = self.room_for(Some(body)).await?;
        self.spread().push_back(room);
        Some(())
    }

    /// Queues the first expected tree event, or with `None` releases its room.
    pub(super) fn deliver_spread(&self, delivery: Option<Delivery>) {
        let room = self.spread().pop_front();
        if let Some(delivery) = delivery {
            self.put(delivery, room);
        }
    }

    /// Queues a delivery that needs no room.
    pub(super) fn send(&self, delivery: Delivery) {
        self.put(delivery, None);
    }

    /// Rejects all deliveries that wait for room.
    pub(super) fn reject_all(&self) {
        self.room.close();
    }

    fn put(&self, delivery: Delivery, room: Option<OwnedSemaphorePermit>) -> bool {
        let _room = room;
        self.queue.send(Queued { delivery, _room }).is_ok()
    }

    fn spread(&self) -> MutexGuard<'_, VecDeque<OwnedSemaphorePermit>> {
        self.spread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let command = SinkCommand::Unsubscribe { key: self.key };
        // If the inputs are full, the lease ends the subscription: without a receiver it is not renewed.
        let _ = self.inputs.try_send(Some(Input::Command(command)));
    }
}

impl QueueSlot {
    /// Queues the notification; false if the reader has closed.
    pub(super) fn put(self, delivery: Delivery) -> bool {
        self.inbox.put(delivery, Some(self.room))
    }
}

/// Counts a posted notification whose sender gives up while waiting for room.
struct WaitGuard<'a> {
    peer: IpAddr,
    drops: &'a Drops,
    is_over: bool,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let (reason, hint) = (
                "notification not waited for",
                "the device sends faster than its events are read; give it a longer answer timeout",
            );
            let detail = "its sender gave up while the queue was full".to_owned();
            self.drops
                .record(Hop::Event, reason, self.peer, detail, Some(hint.to_owned()));
        }
    }
}
