//! The newest records in memory, as they were written, for all who follow live data: they share them
//! instead of reading the file each for himself.

use crate::commit::Draft;
use crate::frame::each_of;
use crate::read::Take;
use crate::stream::Core;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// A frame of records in memory.
#[derive(Clone)]
pub(crate) struct Recent {
    pub(crate) epoch: u64,
    pub(crate) first: u64,
    count: u32,
    pub(crate) body: Arc<Vec<u8>>,
}

impl Recent {
    /// The body of a draft, shared with it.
    pub(crate) fn new(draft: &Draft) -> Recent {
        Recent {
            epoch: draft.epoch,
            first: draft.first,
            count: draft.body.count,
            body: Arc::clone(&draft.body.bytes),
        }
    }

    /// The number after its last record.
    pub(crate) fn next(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// Calls `take` for each record (epoch, sequence, time, payload) until it answers false.
    pub(crate) fn each(&self, take: &mut Take<'_>) {
        each_of(self.first, self.count, &self.body, |n, time, payload| {
            take(self.epoch, n, time, payload)
        });
    }
}

/// What of all streams is held in memory, oldest first.
pub(crate) struct Recents {
    limit: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// Each frame's stream and what it takes.
    frames: VecDeque<(Arc<Core>, usize)>,
    bytes: usize,
}

impl Recents {
    /// Holds about so many bytes.
    pub(crate) fn new(limit: usize) -> Recents {
        Recents {
            limit,
            held: Mutex::default(),
        }
    }

    /// Counts a frame that its stream is about to hold, and lets the oldest go for it; none when it
    /// is too large, and then nothing is held, for what a stream holds has no gap.
    pub(crate) fn keep(&self, core: &Arc<Core>, recent: Recent) -> Option<Recent> {
        /// What a frame takes besides its body.
        const ENTRY_BYTES: usize = 96;
        let bytes = recent.body.len() + ENTRY_BYTES;
        let fits = bytes <= self.limit;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
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
