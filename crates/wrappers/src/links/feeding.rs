//! Which link feeds which stream here: one at a time. How far a stream was read stands in its log, so
//! a link may only read that when nobody else is about to write behind it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_stream::Position;
use tokio::sync::Notify;

use super::LinkError;
use super::link::Link;

/// Streams that nobody feeds of which is remembered what was told lost; reason: an origin may make up
/// names without end.
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
    by: Option<Arc<Link>>,
    /// Elements up to here were told lost, and counted, whichever link was told.
    lost: Option<Position>,
}

/// The right to feed a stream, until it is dropped.
pub(crate) struct Claim {
    link: Arc<Link>,
    stream: String,
}

impl Claim {
    /// The right to feed the stream of this name here. One that is about to be given back is waited
    /// for: that of a link that was removed, or the link's own.
    ///
    /// # Errors
    /// Another link has it.
    pub(crate) async fn new(link: &Arc<Link>, stream: &str) -> Result<Self, LinkError> {
        let feeding = &link.shared.feeding;
        loop {
            let freed = feeding.freed.notified();
            {
                let mut streams = feeding.streams();
                let fed = streams.entry(stream.to_owned()).or_default();
                match &fed.by {
                    Some(by) if Arc::ptr_eq(by, link) || by.is_ended() => {}
                    Some(by) => {
                        return Err(LinkError::Fed {
                            stream: stream.to_owned(),
                            link: by.config.name.clone(),
                        });
                    }
                    None => {
                        fed.by = Some(link.clone());
                        return Ok(Self {
                            link: link.clone(),
                            stream: stream.to_owned(),
                        });
                    }
                }
            }
            freed.await;
        }
    }

    /// The numbers from `from` up to `next` are told lost: the first of them that was not told before.
    pub(crate) fn told_lost(&self, from: Position, next: u64) -> u64 {
        let mut streams = self.link.shared.feeding.streams();
        let fed = streams.entry(self.stream.clone()).or_default();
        let first = match fed.lost {
            Some(lost) if lost.epoch == from.epoch => from.sequence.max(lost.sequence + 1),
            _ => from.sequence,
        };
        if next > first {
            let sequence = next - 1;
            fed.lost = Some(Position { sequence, ..from });
        }
        first
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let feeding = &self.link.shared.feeding;
        {
            let mut streams = feeding.streams();
            let full = streams.len() > REMEMBERED_MAX;
            match streams.get_mut(&self.stream) {
                Some(fed) if fed.lost.is_some() && !full => fed.by = None,
                _ => drop(streams.remove(&self.stream)),
            }
        }
        feeding.freed.notify_waiters();
    }
}

impl Feeding {
    fn streams(&self) -> MutexGuard<'_, BTreeMap<String, Fed>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
