//! A writer of RustDDS, with the exact number of its unacknowledged samples.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rustdds::RTPSEntity as _;
use rustdds::dds::WriteError as Refused;
use rustdds::with_key::DataWriter;

use super::participant::{Matches, guarded, guid_of, library};
use super::raw::{Raw, RawAdapter};
use crate::backend::{Acknowledged, Guid, SAMPLE_BYTES_MAX, Unacknowledged, Writer};
use crate::{DdsError, Payload, Qos, Reliability, WriteError};

/// Acknowledged samples kept for the owner; reason: an owner that does not ask needs only their number, so older
/// ones are dropped.
const ACKNOWLEDGED_KEPT_MAX: usize = 65_536;

type Library = DataWriter<Raw, RawAdapter>;

pub(super) struct RustWriter {
    writer: Arc<Library>,
    guid: Guid,
    reliable: bool,
    window: u64,
    matches: Arc<Matches>,
    waker: Waker,
    written: u64,
    on_the_way: VecDeque<PendingSample>,
    unacknowledged: Unacknowledged,
    told: VecDeque<Acknowledged>,
}

/// An unacknowledged sample.
struct PendingSample {
    number: u64,
    bytes: usize,
    written: Instant,
    /// Completes at the acknowledgement: it was polled once while the sample was the newest.
    acknowledged: Pin<Box<dyn Future<Output = bool> + Send>>,
}

impl RustWriter {
    pub(super) fn new(writer: Library, qos: &Qos, matches: Arc<Matches>, waker: Waker) -> Self {
        Self {
            guid: guid_of(writer.guid()),
            writer: Arc::new(writer),
            reliable: qos.reliability == Reliability::Reliable,
            window: qos.window().into(),
            matches,
            waker,
            written: 0,
            on_the_way: VecDeque::new(),
            unacknowledged: Unacknowledged::default(),
            told: VecDeque::new(),
        }
    }

    /// Removes acknowledged samples from the queue. Acknowledgements are in order: the first pending sample ends
    /// the search, and has registered its waker.
    fn remove_acknowledged(&mut self) {
        if self.matches.is_broken() {
            return;
        }
        let waker = self.waker.clone();
        let mut context = Context::from_waker(&waker);
        while let Some(first) = self.on_the_way.front_mut() {
            let polled = guarded("reading acknowledgements", || {
                Ok(first.acknowledged.as_mut().poll(&mut context))
            });
            match polled {
                Ok(Poll::Ready(_)) => {}
                Ok(Poll::Pending) => return,
                Err(error) => return self.matches.broke(error),
            }
            let (number, bytes) = (first.number, first.bytes);
            let delay = first.written.elapsed();
            self.on_the_way.pop_front();
            self.unacknowledged.remove(bytes);
            if self.told.len() >= ACKNOWLEDGED_KEPT_MAX {
                self.told.pop_front();
            }
            self.told.push_back(Acknowledged {
                number,
                bytes,
                delay,
            });
        }
    }

    fn follow(&mut self, bytes: usize) {
        let writer = self.writer.clone();
        let mut acknowledged: Pin<Box<dyn Future<Output = bool> + Send>> =
            Box::pin(async move { writer.async_wait_for_acknowledgments().await.is_ok() });
        let mut context = Context::from_waker(&self.waker);
        // A future that is ready at once is still reported in order.
        let _ = acknowledged.as_mut().poll(&mut context).map(|ready| {
            acknowledged = Box::pin(std::future::ready(ready));
        });
        self.on_the_way.push_back(PendingSample {
            number: self.written,
            bytes,
            written: Instant::now(),
            acknowledged,
        });
        self.unacknowledged.add(bytes);
    }
}

impl Writer for RustWriter {
    fn guid(&self) -> Guid {
        self.guid
    }

    fn write(&mut self, payload: &Payload) -> Result<u64, WriteError> {
        let bytes = payload.bytes.len();
        if bytes > SAMPLE_BYTES_MAX {
            return Err(WriteError::TooLarge { bytes });
        }
        if self.reliable {
            self.remove_acknowledged();
            let unacknowledged = self.on_the_way.len() as u64;
            if unacknowledged >= self.window || !self.unacknowledged.has_room(bytes) {
                return Err(WriteError::Full(unacknowledged));
            }
        }
        let unacknowledged = self.on_the_way.len() as u64;
        let written = guarded("writing", || {
            match self.writer.write(Raw(payload.clone()), None) {
                Ok(()) => Ok(true),
                Err(Refused::WouldBlock { .. }) => Ok(false),
                Err(error) => Err(library("writing", &error)),
            }
        })?;
        if !written {
            return Err(WriteError::Full(unacknowledged));
        }
        self.written += 1;
        if self.reliable {
            guarded("following a sample", || {
                self.follow(bytes);
                Ok::<_, DdsError>(())
            })?;
        }
        Ok(self.written)
    }

    fn unacknowledged(&mut self) -> u64 {
        self.remove_acknowledged();
        self.on_the_way.len() as u64
    }

    fn acknowledged(&mut self, each: &mut dyn FnMut(Acknowledged)) {
        self.remove_acknowledged();
        self.told.drain(..).for_each(each);
    }

    fn matched(&self) -> usize {
        self.matches.of(self.guid)
    }
}
