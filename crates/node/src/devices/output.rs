//! Elements of a device on their way into the log: several batches at a time, in their order, with a
//! bound beyond which the device waits for its answer.
//!
//! While the disk is full the device waits too; what cannot be stored at all is counted as lost, with
//! the reason.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::ready;

use chappe_log::{Appended, Error};
use chappe_stream::{StoreError, StreamElement, Value};

use super::intake::{FULL_PAUSE, lost};
use crate::catalogue::Entry;
use crate::shared::App;

/// Elements of one device on their way to the disk; with more it waits. Reason: at 1,000 elements a
/// second they bridge a sync of half a second four times over.
const ELEMENTS_MAX: usize = 2_048;
/// Bytes of them; reason: a quarter of what the log queues for all, so that one device that sends a lot
/// leaves room for others.
const BYTES_MAX: usize = 1 << 20;

/// What was offered to the log and is not known to be stored.
pub(super) struct Output {
    app: App,
    under_way: VecDeque<Batch>,
    elements: usize,
    bytes: usize,
}

/// Elements of one stream.
struct Batch {
    entry: Arc<Entry>,
    elements: Vec<StreamElement>,
    bytes: usize,
    appended: Appended,
}

impl Output {
    pub(super) fn new(app: &App) -> Self {
        Self {
            app: app.clone(),
            under_way: VecDeque::new(),
            elements: 0,
            bytes: 0,
        }
    }

    /// Hands a batch to the log, behind those before. Waits while too much is under way, and while the
    /// log takes nothing.
    pub(super) async fn store(&mut self, entry: Arc<Entry>, elements: Vec<StreamElement>) {
        let bytes = elements.iter().map(bytes_of).sum();
        while !self.under_way.is_empty() && !self.has_room(elements.len(), bytes) {
            self.settle_first().await;
        }
        self.append(entry, elements).await;
    }

    fn has_room(&self, elements: usize, bytes: usize) -> bool {
        self.elements + elements <= ELEMENTS_MAX && self.bytes + bytes <= BYTES_MAX
    }

    /// Resolves when it is known what has become of the first batch; never when there is none. It may
    /// be dropped.
    pub(super) async fn first_settled(&mut self) {
        poll_fn(|context| match self.under_way.front_mut() {
            Some(first) => Pin::new(&mut first.appended).poll(context).map(drop),
            None => std::task::Poll::Pending,
        })
        .await;
    }

    /// Notes what has become of batches, without waiting unless one was refused.
    pub(super) async fn settle(&mut self) {
        while self
            .under_way
            .front()
            .is_some_and(|first| first.appended.try_result().is_some())
        {
            self.settle_first().await;
        }
    }

    /// Waits until all that was offered is stored, or lost and counted.
    pub(super) async fn drain(&mut self) {
        while !self.under_way.is_empty() {
            self.settle_first().await;
        }
    }

    /// Waits until the first batch is stored, or lost and counted.
    async fn settle_first(&mut self) {
        let Some(first) = self.under_way.front_mut() else {
            return;
        };
        match (&mut first.appended).await {
            Ok(()) => drop(self.pop()),
            Err(Error::Full { .. }) if !*self.app.drain.borrow() => self.append_again().await,
            Err(error) => {
                let (first, error) = (self.pop(), error.to_string());
                if let Some(batch) = first {
                    let count = batch.elements.len() as u64;
                    lost(&self.app, &batch.entry, count, "not acknowledged", &error);
                }
            }
        }
    }
}
