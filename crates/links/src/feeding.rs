//! Which link feeds which stream here: one at a time. How far a stream was read is in its log, so a link
//! may read that position only when no other link is about to append after it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_flow::Position;
use chappe_link::LostRanges;
use tokio::sync::Notify;

use super::LinkError;

/// Streams without a feeder whose lost ranges are remembered; reason: an origin may make up names without
/// end.
const REMEMBERED_MAX: usize = 65_536;

/// The streams that links feed.
#[derive(Default)]
pub(crate) struct Feeding {
    streams: Mutex<BTreeMap<String, Fed>>,
    freed: Notify,
}

/// One stream, by its name here.
#[derive(Default)]
struct Fed {
    by: Option<Arc<Feeder>>,
    /// Counted as lost, whichever link reported it.
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

    /// The link was removed: its streams are about to be free.
    pub(crate) fn remove(&self) {
        self.is_removed.store(true, Ordering::Relaxed);
    }

    fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Relaxed)
    }
}

/// The right to feed a stream, until it is dropped.
pub(crate) struct Claim {
    feeding: Arc<Feeding>,
    stream: String,
}

impl Claim {
    /// The right to feed the stream of this name here. Waits for one that is about to be given back: that
    /// of a removed link, or the feeder's own.
    ///
    /// # Errors
    /// Another link has it.
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

    /// Counts the numbers from `from` up to `next` as lost; returns how many were not counted before.
    pub(crate) fn count_lost(&self, from: Position, next: u64) -> u64 {
        let mut streams = self.feeding.streams();
        let fed = streams.entry(self.stream.clone()).or_default();
        fed.lost.add(from, next)
    }

    /// Everything up to this position is stored.
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
