//! The scrub finds bit rot before a reader does: it reads old segments again, piece by piece, and
//! verifies every checksum.
//!
//! The segment being written is excluded: opening and reading check it. Damage is recorded as gaps
//! of its streams at once, so that readers see it and [`crate::Stream::fill`] can restore the
//! records. Records that are still in memory are restored from there.

pub(crate) mod pass;

use crate::frame::Kind;
use crate::owner::Owner;
use crate::recent::Recent;
use crate::segment::segment_name;
use crate::{CorruptRange, Error, Position, Store, Stream};
use pass::{Damage, Progress};
use std::sync::{Arc, PoisonError};

/// The result of one step of the scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes read.
    pub bytes: u64,
    /// Damage that was not known before.
    pub corrupt: Vec<CorruptRange>,
    /// Damaged records that are still in memory and are being written again; with
    /// [`crate::Commit::Caller`] the next commit does that.
    pub from_memory: u64,
    /// Number of segments of this round that are finished.
    pub segments_done: usize,
    /// Total number of segments of this round, without the one being written.
    pub segments: usize,
    /// The last segment is finished: the next step starts a new round.
    pub round_done: bool,
}

impl Store {
    /// Reads about `budget_bytes` of the segments that are no longer written, verifies every
    /// checksum, and reports new damage. Each call continues where the previous one ended; after
    /// the newest segment it starts over. Blocks on the disk.
    ///
    /// # Errors
    /// The disk fails to read.
    pub fn scrub(&self, budget_bytes: u64) -> Result<Scrubbed, Error> {
        self.owner().scrub(budget_bytes)
    }
}

impl Owner {
    /// Reads about `budget` more bytes.
    fn scrub(self: &Arc<Owner>, budget: u64) -> Result<Scrubbed, Error> {
        let shared = &self.shared;
        let mut pass = self.scrub.lock().unwrap_or_else(PoisonError::into_inner);
        let mut corrupt = Vec::new();
        let progress = pass.read(shared.reader.disk(), budget, &mut |damage| {
            corrupt.push(self.note_damage(&damage));
        })?;
        let Progress {
            bytes,
            segments_done,
            segments,
            pass_done,
        } = progress;
        let from_memory = self.put_back_from_memory();
        let mut queue = shared.lock();
        queue.counters.scrubbed_bytes += bytes;
        queue.counters.scrub_rounds += u64::from(pass_done);
        queue.counters.scrub_found += corrupt.len() as u64;
        Ok(Scrubbed {
            bytes,
            corrupt,
            from_memory,
            segments_done,
            segments,
            round_done: pass_done,
        })
    }

    /// Writes damaged records again that are still in memory; returns their number.
    fn put_back_from_memory(self: &Arc<Owner>) -> u64 {
        let cores: Vec<_> = self.shared.lock().streams.values().cloned().collect();
        let mut put_back = 0;
        for core in cores {
            let (gaps, recents) = {
                let view = core.view();
                let gaps = view.index.gaps();
                let held = |it: &&Recent| {
                    gaps.iter()
                        .any(|gap| it.first <= gap.1 && it.next() > gap.0)
                };
                let recents: Vec<Recent> = view.recent.iter().filter(held).cloned().collect();
                (gaps, recents)
            };
            let owner = Arc::clone(self);
            let stream = Stream { core, owner };
            for (recent, (first, last)) in recents
                .iter()
                .flat_map(|it| gaps.iter().map(move |gap| (it, gap)))
            {
                let sequence = recent.first.max(*first);
                let mut batch = Vec::new();
                recent.each(&mut |_, number, time, payload| {
                    if number >= sequence && number <= *last {
                        batch.push((time, payload.to_vec()));
                    }
                    number < *last
                });
                let (epoch, count) = (recent.epoch, batch.len() as u64);
                // If the queue has no room, the next call tries again.
                if count > 0 && stream.fill(Position { epoch, sequence }, batch).is_ok() {
                    put_back += count;
                }
            }
        }
        put_back
    }

    /// Records the numbers lost by some damage, and that the next opening must read the segment.
    fn note_damage(self: &Arc<Owner>, damage: &Damage) -> CorruptRange {
        let segment = damage.segment;
        self.shared.reader.distrust(segment);
        let mut gaps = Vec::new();
        let cores: Vec<_> = self.shared.lock().streams.values().cloned().collect();
        for core in cores {
            if damage.header.is_some_and(|header| header.stream != core.id) {
                continue;
            }
            let before = core.view().index.clone();
            match damage.header {
                Some(header) if header.kind == Kind::Records => {
                    core.view().index.add_gap(header.first, header.next());
                }
                Some(header) if header.kind == Kind::Fill => {
                    core.view().index.unfill(segment, damage.offset as u32);
                }
                Some(_) => {}
                None => {
                    let stream = Stream {
                        core: Arc::clone(&core),
                        owner: Arc::clone(self),
                    };
                    for (first, next) in before.numbers_in(segment) {
                        stream.verify(first, next);
                    }
                }
            }
            let view = core.view();
            for (first, last) in view.index.new_gaps(&before) {
                gaps.push((view.definition.name.clone(), first, last));
            }
        }
        CorruptRange {
            segment: segment_name(segment),
            offset: damage.offset,
            bytes: damage.bytes,
            what: damage.what.to_owned(),
            unsynced: false,
            settled: gaps.is_empty(),
            gaps,
        }
    }
}
