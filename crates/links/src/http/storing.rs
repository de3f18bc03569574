//! The receiving end of a pulled stream: documents are handled while earlier ones are being
//! written, so that one sync stores many.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::pin::Pin;

use chappe_stream::StoreError;

use crate::documents::take;
use crate::inlet::{Inlet, InletError, Pending};
use crate::serialization::Document;

pub(super) struct Storing {
    pub(super) inlet: Inlet,
    /// Entries of the log's queue, in order, with the bytes that each took on the connection.
    under_way: VecDeque<(Pending, u64)>,
    under_way_bytes: u64,
    /// Bytes received and not yet handled.
    waiting_bytes: u64,
}

impl Storing {
    pub(super) fn new(inlet: Inlet) -> Self {
        Self {
            inlet,
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            waiting_bytes: 0,
        }
    }

    /// Whether more may be read: about `window_bytes` are received and not stored. A larger
    /// document is read whole.
    pub(super) fn has_room(&self, window_bytes: u64) -> bool {
        self.under_way.is_empty() || self.under_way_bytes + self.waiting_bytes < window_bytes
    }

    /// Notes received bytes.
    pub(super) fn waits(&mut self, bytes: usize) {
        self.waiting_bytes = bytes as u64;
        self.inlet
            .replica()
            .holds(self.under_way_bytes + self.waiting_bytes);
    }

    /// Handles a document of this many bytes. Changes queued before an error stay queued.
    pub(super) async fn take(
        &mut self,
        document: Document,
        bytes: usize,
    ) -> Result<(), InletError> {
        let mut taken = VecDeque::new();
        let outcome = take(&mut self.inlet, document, &mut taken).await;
        let mut bytes = bytes as u64;
        for one in taken {
            let bytes = std::mem::take(&mut bytes);
            self.under_way_bytes += bytes;
            self.under_way.push_back((one, bytes));
        }
        outcome
    }

    /// Returns when the next queued entry is stored; pending while none is queued. Cancel-safe.
    pub(super) async fn stored(&mut self) -> Result<(), InletError> {
        let Some((one, bytes)) = self.under_way.front_mut() else {
            return pending().await;
        };
        let (Pending::Stored(position, appended) | Pending::Letter(position, _, appended)) = one;
        poll_fn(|context| Pin::new(&mut *appended).poll(context))
            .await
            .map_err(StoreError::from)?;
        self.inlet
            .replica()
            .stored(*position, u64::from(appended.count));
        self.under_way_bytes -= *bytes;
        self.under_way.pop_front();
        self.inlet
            .replica()
            .holds(self.under_way_bytes + self.waiting_bytes);
        Ok(())
    }
}
