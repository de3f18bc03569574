//! A writer of Cyclone DDS.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use super::participant::Known;
use crate::backend::{
    Acknowledged, Guid, SAMPLE_BYTES_MAX, UNACKNOWLEDGED_BYTES_MAX, Unacknowledged, Writer,
};
use crate::unsafe_cyclone::{End, Refused};
use crate::{DdsError, Payload, Qos, Reliability, Sending, WriteError};

/// Acknowledged samples kept for the owner; reason: an owner that does not ask needs only their number, so older
/// ones are dropped.
const ACKNOWLEDGED_KEPT_MAX: usize = 65_536;

pub(super) struct CycloneWriter {
    known: Arc<Known>,
    reliable: bool,
    window: u64,
    is_batched: bool,
    /// What a batched writer has written since it was flushed.
    unsent_samples: u64,
    unsent_bytes: usize,
    on_the_way: VecDeque<(u64, usize, Instant)>,
    /// Readers of other participants at the last look at acknowledgements.
    readers: u32,
    unacknowledged: Unacknowledged,
    told: VecDeque<Acknowledged>,
    /// Bytes retransmitted until acknowledgements were last read, and until the owner last asked.
    retransmitted_bytes: u64,
    retransmitted_reported: u64,
}

impl CycloneWriter {
    pub(super) fn new(known: Arc<Known>, qos: &Qos) -> Self {
        Self {
            known,
            reliable: qos.reliability == Reliability::Reliable,
            window: qos.window().into(),
            is_batched: qos.sending == Sending::Batched,
            unsent_samples: 0,
            unsent_bytes: 0,
            on_the_way: VecDeque::new(),
            readers: 0,
            unacknowledged: Unacknowledged::default(),
            told: VecDeque::new(),
            retransmitted_bytes: 0,
            retransmitted_reported: 0,
        }
    }

    fn library(&self) -> MutexGuard<'_, End> {
        self.known
            .end
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a sample of this size may be written, by the acknowledgements seen so far.
    fn has_room(&self, bytes: usize) -> bool {
        (self.on_the_way.len() as u64) < self.window && self.unacknowledged.has_room(bytes)
    }

    /// Removes acknowledged samples from the queue.
    fn remove_acknowledged(&mut self) {
        if self.on_the_way.is_empty() {
            return;
        }
        let mut library = self.library();
        // An error here recurs where it can be returned.
        let Ok(through) = library.acknowledged() else {
            return;
        };
        let readers = library.readers();
        if readers != self.readers
            && let Ok(matched) = library.matched()
        {
            // What a reader lacked when it left counts as acknowledged: the owner must see both at once.
            self.known.matched.store(matched.len(), Ordering::Relaxed);
        }
        let retransmitted = library.retransmitted();
        drop(library);
        self.readers = readers;
        self.retransmitted_bytes = retransmitted;
        // A late reader requests samples that were acknowledged already: they are not counted again.
        while let Some((number, bytes, written)) = self.on_the_way.front().copied() {
            if number > through {
                return;
            }
            self.on_the_way.pop_front();
            self.unacknowledged.remove(bytes);
            if self.told.len() >= ACKNOWLEDGED_KEPT_MAX {
                self.told.pop_front();
            }
            self.told.push_back(Acknowledged {
                number,
                bytes,
                delay: written.elapsed(),
            });
        }
    }
}

impl Writer for CycloneWriter {
    fn guid(&self) -> Guid {
        self.known.guid
    }

    fn write(&mut self, payload: &Payload) -> Result<u64, WriteError> {
        let bytes = payload.bytes.len();
        if bytes > SAMPLE_BYTES_MAX {
            return Err(WriteError::TooLarge { bytes });
        }
        if !self.has_room(bytes) {
            self.remove_acknowledged();
        }
        let unacknowledged = self.on_the_way.len() as u64;
        if !self.has_room(bytes) {
            return Err(WriteError::Full(unacknowledged));
        }
        let written = Instant::now();
        let number = self.library().write(payload);
        let number = number.map_err(|refused| match refused {
            Refused::Full => WriteError::Full(unacknowledged),
            Refused::Dds(error) => error.into(),
        })?;
        if self.reliable {
            self.on_the_way.push_back((number, bytes, written));
            self.unacknowledged.add(bytes);
        }
        if self.is_batched {
            self.unsent_samples += 1;
            self.unsent_bytes += bytes;
            // One half is acknowledged while the other is written.
            if self.unsent_samples * 2 >= self.window
                || self.unsent_bytes * 2 >= UNACKNOWLEDGED_BYTES_MAX
            {
                self.flush()?;
            }
        }
        Ok(number)
    }

    fn flush(&mut self) -> Result<(), DdsError> {
        if self.unsent_samples == 0 {
            return Ok(());
        }
        (self.unsent_samples, self.unsent_bytes) = (0, 0);
        self.library().flush()
    }

    fn unacknowledged(&mut self) -> u64 {
        self.remove_acknowledged();
        self.on_the_way.len() as u64
    }

    fn acknowledged(&mut self, each: &mut dyn FnMut(Acknowledged)) {
        self.remove_acknowledged();
        self.told.drain(..).for_each(each);
    }

    fn retransmitted_bytes(&mut self) -> u64 {
        let reported = &mut self.retransmitted_reported;
        let before = std::mem::replace(reported, self.retransmitted_bytes);
        self.retransmitted_bytes.saturating_sub(before) / (self.matched() as u64).max(1)
    }

    fn matched(&self) -> usize {
        self.known.matched.load(Ordering::Relaxed)
    }
}
