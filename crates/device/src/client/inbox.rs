//! The queue between the server of notifications and the reader of a subscription.
//!
//! A notification takes room for itself before the machine gets it, and keeps it until it is read. While
//! there is none, its device waits for the answer, and nothing of it is in the queue. So a device that
//! waits for its answers sends as fast as it is read, and one that does not wait fills nothing.

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

/// Most notifications and bytes of them in the queue of a subscription.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueLimits {
    pub(super) notifications: usize,
    /// As [`Element::expanded_bytes`] counts them.
    pub(super) bytes: usize,
}

impl QueueLimits {
    /// A permit is a byte.
    fn permits(self) -> u32 {
        u32::try_from(self.bytes).unwrap_or(u32::MAX).max(1)
    }

    /// Room of a notification. Each takes its share at least, so that no more of them fit than may; one
    /// that is larger than the queue takes all of it.
    fn of(self, body: Option<&Element>) -> u32 {
        let share = self.permits() as usize / self.notifications.max(1);
        let bytes = body.map_or(0, Element::expanded_bytes).max(share);
        u32::try_from(bytes)
            .unwrap_or(u32::MAX)
            .clamp(1, self.permits())
    }
}

/// A delivery in the queue, with the room that is free again when it is read.
pub(super) struct Queued {
    pub(super) delivery: Delivery,
    _room: Option<OwnedSemaphorePermit>,
}

/// The sending end of the queue. When the last one who may put something in has gone, the device is told
/// that nothing more is wanted.
pub(super) struct Inbox {
    key: SubscriptionKey,
    queue: mpsc::UnboundedSender<Queued>,
    room: Arc<Semaphore>,
    limits: QueueLimits,
    /// Room of the events of a tree that the machine is being given, in their order.
    spread: Mutex<VecDeque<OwnedSemaphorePermit>>,
    inputs: mpsc::Sender<Option<InputOf<EventSink>>>,
}

/// Room for one posted notification.
pub(super) struct Place {
    inbox: Arc<Inbox>,
    room: OwnedSemaphorePermit,
}

/// The reading end of the queue.
pub(super) struct Outlet {
    pub(super) queue: mpsc::UnboundedReceiver<Queued>,
    room: Arc<Semaphore>,
}

/// The queue of a subscription.
pub(super) fn queue(
    key: SubscriptionKey,
    limits: QueueLimits,
    inputs: mpsc::Sender<Option<InputOf<EventSink>>>,
) -> (Arc<Inbox>, Outlet) {
    // Notifications are bounded by their room, and the others come one for each answer of the device.
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
    (Arc::new(inbox), Outlet { queue, room })
}

impl Outlet {
    /// Those that wait for room get it.
    pub(super) fn open(&self) {
        self.room.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// Those that wait for room get none.
    pub(super) fn close(&self) {
        self.room.close();
    }
}

impl Inbox {
    /// Waits for room, in the order of arrival; `None` when nobody reads any more. A posted notification
    /// whose sender gives up while it waits is counted.
    pub(super) async fn place(
        self: Arc<Self>,
        body: Option<&Element>,
        (peer, drops): (IpAddr, &Drops),
    ) -> Option<Place> {
        let mut waiting = Waiting {
            peer,
            drops,
            is_over: false,
        };
        let room = self.room_for(body).await;
        waiting.is_over = true;
        let room = room?;
        Some(Place { inbox: self, room })
    }

    async fn room_for(&self, body: Option<&Element>) -> Option<OwnedSemaphorePermit> {
        let room = Arc::clone(&self.room);
        room.acquire_many_owned(self.limits.of(body)).await.ok()
    }

    /// Waits for room for an event of a tree, which the machine is given next.
    pub(super) async fn expect_spread(&self, body: &Element) -> Option<()> {
        let room = self.room_for(Some(body)).await?;
        self.spread().push_back(room);
        Some(())
    }

    /// What has become of the first event of a tree that was expected; `None`: it is not wanted.
    pub(super) fn spread_came(&self, delivery: Option<Delivery>) {
        let room = self.spread().pop_front();
        if let Some(delivery) = delivery {
            self.put(delivery, room);
        }
    }

    /// What needs no room.
    pub(super) fn tell(&self, delivery: Delivery) {
        self.put(delivery, None);
    }

    /// Whoever waits for room gets none.
    pub(super) fn close(&self) {
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
        // When the queue is full, the lease ends it: nothing is renewed without a receiver.
        let _ = self.inputs.try_send(Some(Input::Command(command)));
    }
}

impl Place {
    /// Puts the notification in the queue; false when nobody reads it.
    pub(super) fn put(self, delivery: Delivery) -> bool {
        self.inbox.put(delivery, Some(self.room))
    }
}

/// A posted notification that waits for room.
struct Waiting<'a> {
    peer: IpAddr,
    drops: &'a Drops,
    is_over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let (reason, hint) = (
                "notification not waited for",
                "the device sends more than is taken from it; let it wait longer for its answers",
            );
            let detail = "its sender gave up while the queue was full".to_owned();
            self.drops
                .record(Hop::Event, reason, self.peer, detail, Some(hint.to_owned()));
        }
    }
}
