//! The newest records of all streams in memory, shared by the readers of live data, which otherwise
//! would each read the file.

use crate::recent::Recent;
use crate::state::Core;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The frames of all streams held in memory, oldest first.
pub(crate) struct RecentCache {
    limit: usize,
    frames: Mutex<CachedFrames>,
}

#[derive(Default)]
struct CachedFrames {
    /// Each frame's stream and size.
    frames: VecDeque<(Arc<Core>, usize)>,
    bytes: usize,
}

impl RecentCache {
    /// A cache of about `limit` bytes.
    pub(crate) fn new(limit: usize) -> RecentCache {
        RecentCache {
            limit,
            frames: Mutex::default(),
        }
    }

    /// Counts a frame that its stream is about to hold, and evicts the oldest for it. Returns none
    /// if the frame is too large; then the stream holds nothing, because its frames in memory have
    /// no gap.
    pub(crate) fn keep(&self, core: &Arc<Core>, recent: Recent) -> Option<Recent> {
        /// Overhead of a frame in addition to its body.
        const ENTRY_BYTES: usize = 96;
        let bytes = recent.body.len() + ENTRY_BYTES;
        let fits = bytes <= self.limit;
        let mut held = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let room = if fits { self.limit - bytes } else { 0 };
        while held.bytes > room {
            let Some((oldest, bytes)) = held.frames.pop_front() else {
                break;
            };
            held.bytes -= bytes;
            oldest.view().recent.pop_front();
        }
        if !fits {
            return None;
        }
        held.frames.push_back((Arc::clone(core), bytes));
        held.bytes += bytes;
        Some(recent)
    }
}
