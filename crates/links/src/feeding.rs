//! Assigns each local stream to at most one link. The read position of a stream is in its log, so a
//! link may read it only when no other link is about to append.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_flow::Position;
use chappe_link::LostRanges;
use tokio::sync::Notify;

use super::LinkError;

/// Streams without a feeder whose lost ranges are remembered; reason: an origin may invent any
/// number of names.
const REMEMBERED_MAX: usize = 65_536;

/// The streams that links feed.
#[derive(Default)]
pub(crate) struct Feeding {
    streams: Mutex<BTreeMap<String, Fed>>,
    freed: Notify,
}

/// One stream, by its local name.
#[derive(Default)]
struct Fed {
    by: Option<Arc<Feeder>>,
    /// Ranges counted as lost, whichever link reported them.
    lost: LostRanges,
}

/// A link that feeds streams.
pub(crate) struct Feeder {
    name: String,
    is_removed: AtomicBool,
}

impl Feeder {
    pub(crate) fn new(name: &str) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            is_removed: AtomicBool::new(false),
        })
    }

    /// Marks the link as removed: its streams are released soon.
    pub(crate) fn remove(&self) {
        self.is_removed.store(true, Ordering::Relaxed);
    }

    fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }
}

/// The right to feed a stream; dropping it releases the stream.
pub(crate) struct Claim {
    feeding: Arc<Feeding>,
    stream: String,
}

impl Claim {
    /// Claims the stream of this local name. Waits if the current claim is about to be released: if
    /// it belongs to a removed link, or to the same feeder.
    ///
    /// # Errors
    /// Another link feeds it.
    pub(crate) async fn new(
        feeding: &Arc<Feeding>,
        feeder: &Arc<Feeder>,
        stream: &str,
    ) -> Result<Self, LinkError> {
        loop {
            let freed = feeding.freed.notified();
            {
                let mut streams = feeding.streams();
                let fed = streams.entry(stream.to_owned()).or_default();
                match &fed.by {
                    Some(by) if Arc::ptr_eq(by, feeder) || by.is_removed() => {}
                    Some(by) => {
                        return Err(LinkError::Fed {
                            stream: stream.to_owned(),
                            link: by.name.clone(),
                        });
                    }
                    None => {
                        fed.by = Some(feeder.clone());
                        return Ok(Self {
                            feeding: feeding.clone(),
                            stream: stream.to_owned(),
                        });
                    }
                }
            }
            freed.await;
        }
    }

    /// Counts the numbers from `from` to `next` (exclusive) as lost; returns how many were not
    /// counted before.
    pub(crate) fn count_lost(&self, from: Position, next: u64) -> u64 {
        let mut streams = self.feeding.streams();
        let fed = streams.entry(self.stream.clone()).or_default();
        fed.lost.add(from, next)
    }

    /// Notes that everything up to this position is stored.
    pub(crate) fn stored(&self, position: Position) {
        let mut streams = self.feeding.streams();
        if let Some(fed) = streams.get_mut(&self.stream) {
            fed.lost.forget_to(position);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        {
            let mut streams = self.feeding.streams();
            let is_full = streams.len() > REMEMBERED_MAX;
            match streams.get_mut(&self.stream) {
                Some(fed) if !fed.lost.is_empty() && !is_full => fed.by = None,
                _ => drop(streams.remove(&self.stream)),
            }
        }
        self.feeding.freed.notify_waiters();
    }
}

impl Feeding {
    fn streams(&self) -> MutexGuard<'_, BTreeMap<String, Fed>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
