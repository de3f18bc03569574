//! What a scan found: streams with their indexes, segments, damage, and the report of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::frame::{Bookmark, Definition, Removal};
use crate::index::Index;
use crate::segment::segment_name;
use crate::snapshot::Snapshot;
use crate::{CorruptRange, Report, StreamInfo, StreamReport, TornTail};

/// A stream as found by the scan.
pub(crate) struct ScannedStream {
    pub(crate) definition: Definition,
    /// Its definition was read, not made up.
    pub(super) defined: bool,
    pub(crate) index: Index,
    pub(crate) frames: u64,
    pub(crate) records: u64,
    /// The first number kept by the newest trim mark; 0 if there is none.
    pub(crate) trimmed: u64,
    /// The newest cursor.
    pub(crate) bookmark: Option<Bookmark>,
    /// The first number that its first frame states, and the damage that may have held earlier
    /// ones.
    pub(super) born: (u64, Option<Beginning>),
    /// Number of corrupt ranges, and of those with unknown content, before its last frame.
    pub(super) ranges_seen: usize,
    pub(super) opaque_seen: usize,
}

impl ScannedStream {
    /// Number of records that exist: neither trimmed, nor missing, nor given up.
    fn kept(&self) -> u64 {
        let gone = [self.index.gaps(), self.index.given_up()];
        let gone = gone.iter().flatten();
        let missing: u64 = gone.map(|(first, last)| last - first + 1).sum();
        (self.index.next() - self.index.first()).saturating_sub(missing)
    }
}

/// Damage that may contain the start of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beginning {
    /// The index of the range.
    pub(super) range: usize,
    /// Not in the oldest segment: nothing before it was removed.
    pub(super) sure: bool,
}

/// An entire log as found by the scan.
#[derive(Default)]
pub(crate) struct Scanned {
    /// The key of the checksums; `None` when there is no log yet.
    pub(crate) store: Option<u64>,
    /// There is a marker of another store (or none though there is a log).
    pub(crate) copied: bool,
    pub(crate) streams: BTreeMap<u32, ScannedStream>,
    /// Streams that were removed.
    pub(crate) removals: BTreeMap<u32, Removal>,
    /// Number of the last segment, and its length up to the end of the last valid frame.
    pub(crate) segments: Vec<(u32, u64)>,
    pub(crate) corrupt: Vec<CorruptRange>,
    pub(crate) torn: Option<TornTail>,
    pub(crate) frames: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) clean: bool,
    /// Checksum of the last frame, for the chain.
    pub(crate) last_crc: u32,
    /// Segments that were not read because their snapshots are trusted.
    pub(crate) indexed: usize,
    /// Snapshots of the segments that were read, except the last one.
    pub(crate) snapshots: Vec<Snapshot>,
    /// The snapshot of the last segment, if it has no damage.
    pub(crate) last_snapshot: Option<Snapshot>,
    /// Format versions of the segments.
    pub(crate) versions: BTreeMap<u32, u32>,
    /// Of the newest segments, those that begin with all definitions and marks.
    pub(super) complete: BTreeSet<u32>,
    /// Which of `corrupt` may have held anything.
    pub(super) opaque: Vec<usize>,
    /// Indexes of the ranges of `corrupt` that are missing segments.
    pub(super) holes: Vec<usize>,
}

impl Scanned {
    /// Applies the trim marks: trimmed records neither exist nor are missing.
    pub(super) fn apply_marks(&mut self) {
        let mut marks = BTreeMap::new();
        for stream in self.streams.values_mut() {
            let (first, lost_in) = stream.born;
            let kept = stream.trimmed.max(1);
            // Without a mark, the size limit removed everything before the oldest segment.
            let lost_in = lost_in.filter(|lost_in| lost_in.sure || stream.trimmed > 0);
            match lost_in.filter(|_| kept < first) {
                Some(Beginning { range, .. }) => {
                    let gap = (stream.definition.name.clone(), kept, first - 1);
                    self.corrupt[range].gaps.push(gap);
                }
                // Restored records lie in later segments, and stay without the damaged one.
                None => drop(stream.index.trim_to(stream.index.put_back_before(first))),
            }
            stream.index.trim_to(stream.trimmed);
            stream.index.count_losses();
            marks.insert(stream.definition.name.clone(), kept);
        }
        let by_name = match self.corrupt.is_empty() {
            true => BTreeMap::new(),
            false => {
                let streams = self.streams.values().rev();
                streams.map(|it| (&*it.definition.name, it)).collect()
            }
        };
        let named = |name: &str| by_name.get(name);
        for range in &mut self.corrupt {
            for (name, from, _) in &mut range.gaps {
                let kept = marks.get(name.as_str()).copied();
                *from = kept.map_or(*from, |kept| kept.max(*from));
            }
            // Restored records are no longer missing.
            range.gaps.retain(|(name, from, last)| {
                let missing = |it: &&ScannedStream| it.index.misses_some(*from, *last + 1);
                from <= last && named(name).is_none_or(missing)
            });
        }
        // Damage in the newest segment may have held records that no later frame mentions.
        let newest = self
            .segments
            .last()
            .map(|(number, _)| segment_name(*number));
        for range in &mut self.corrupt {
            range.settled = range.gaps.is_empty() && Some(&range.segment) != newest.as_ref();
        }
        for hole in self.holes.drain(..).rev() {
            if self.corrupt[hole].gaps.is_empty() {
                self.corrupt.remove(hole);
            }
        }
    }

    /// Whether the newest segments, which were read, tell of every stream: one of them is whole, and so
    /// are the definitions and marks that it begins with.
    pub(super) fn tells_of_all(&self) -> bool {
        let damaged = |number: u32| {
            let name = segment_name(number);
            let torn = self.torn.as_ref().is_some_and(|it| it.segment == name);
            torn || self.corrupt.iter().any(|it| it.segment == name)
        };
        let whole = self.complete.iter().any(|number| !damaged(*number));
        whole && self.streams.values().all(|stream| stream.defined)
    }

    /// The newest numbers of the stream may be lost in a corrupt range.
    pub(crate) fn end_unknown(&self, stream: &ScannedStream) -> bool {
        stream.opaque_seen < self.opaque.len()
    }

    /// A summary of a stream.
    pub(crate) fn info(stream: &ScannedStream) -> StreamInfo {
        StreamInfo {
            name: stream.definition.name.clone(),
            level: stream.definition.level,
            metadata: stream.definition.metadata.clone(),
            epoch: stream
                .definition
                .epochs
                .last()
                .map_or(0, |(epoch, _)| *epoch),
            first: stream.index.first(),
            last: stream.index.next() - 1,
            bytes: stream.index.bytes(),
        }
    }

    /// The scan as a report.
    pub(crate) fn report(self) -> Report {
        let streams = self.streams.values().map(|stream| StreamReport {
            info: Scanned::info(stream),
            records: stream.kept(),
            frames: stream.frames,
            gaps: stream.index.gaps(),
            given_up: stream.index.given_up(),
        });
        Report {
            streams: streams.collect(),
            segments: self.segments.len(),
            bytes: self.bytes,
            frames: self.frames,
            records: self.records,
            clean: self.clean,
            copied: self.copied,
            torn_tail: self.torn,
            corrupt: self.corrupt,
        }
    }
}
