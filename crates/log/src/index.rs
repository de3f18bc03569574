//! The index of a stream: sparse in memory, exact for the newest records.
//!
//! The newest frames of a stream are held as exact references (the tail), older ones as chunks of
//! 64 frames within one segment, of which only the ends are known. Inside a chunk, frames are found
//! by their back offsets or by reading through. A chunk never spans a gap or two segments.
//!
//! A record restored into a gap (a fill) lies in a later segment, out of order; it is stored next
//! to the chunks and takes precedence over them.

mod moving;

pub(crate) use moving::Run;

use crate::frame::Header;
use crate::planted::{self, Defect};
use std::collections::{BTreeMap, VecDeque};

/// Number of frames in a chunk: it costs 48 bytes of memory, and at most this many steps of
/// reading.
pub(crate) const CHUNK_FRAMES: usize = 64;

/// The exact position of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameRef {
    pub(crate) first: u64,
    pub(crate) time_min: i64,
    pub(crate) time_max: i64,
    pub(crate) count: u32,
    pub(crate) offset: u32,
    /// Length of the whole frame.
    pub(crate) bytes: u32,
}

impl FrameRef {
    /// The frame with this header, at an offset in its segment.
    pub(crate) fn new(header: &Header, offset: u32) -> FrameRef {
        FrameRef {
            first: header.first,
            time_min: header.time_min,
            time_max: header.time_max,
            count: header.count,
            offset,
            bytes: header.frame_bytes() as u32,
        }
    }

    /// The number after its last record.
    pub(crate) fn next(&self) -> u64 {
        self.first + u64::from(self.count)
    }
}

/// Up to [`CHUNK_FRAMES`] frames of a stream in one segment, without a gap between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) first: u64,
    pub(crate) next: u64,
    pub(crate) time_min: i64,
    pub(crate) time_max: i64,
    pub(crate) segment: u32,
    /// Offset of the first frame.
    pub(crate) start: u32,
    /// Offset of the last frame.
    pub(crate) last: u32,
    /// Size of the stream's frames in it in bytes.
    pub(crate) bytes: u32,
}

/// Restored records: the numbers from `from` to before `next` are in this frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fill {
    from: u64,
    next: u64,
    segment: u32,
    frame: FrameRef,
}

/// The number of lost records of a stream, by cause, since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    /// Numbers found missing.
    pub(crate) corrupt: u64,
    /// Of these, numbers that were restored.
    pub(crate) filled: u64,
    /// Records removed by the size limit.
    pub(crate) removed: u64,
}

/// The frames to read for a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// These frames of a segment.
    Frames(u32, Vec<FrameRef>),
    /// A chunk whose frames have to be located.
    Chunk(Chunk),
    /// This frame of a segment, in which the number was restored.
    Fill(u32, FrameRef),
    /// The number is missing; reading continues at the second one.
    Gap(u64, u64),
    /// The number is not assigned yet.
    End,
}

/// A stream's index.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    chunks: VecDeque<Chunk>,
    tail: Vec<FrameRef>,
    tail_segment: u32,
    /// First number of the part kept; lower numbers were trimmed or removed by the size limit.
    first: u64,
    /// The number after the last acknowledged one.
    next: u64,
    /// Missing numbers (first, and the one after the last), ascending.
    gaps: Vec<(u64, u64)>,
    /// The parts of the gaps that were given up, ascending.
    given_up: Vec<(u64, u64)>,
    /// The restored parts, ascending, without overlaps.
    fills: Vec<Fill>,
    /// Restored records that are corrupt themselves; their segments stay until the numbers are
    /// trimmed.
    spoilt: Vec<Fill>,
    /// The number of chunks, tail frames and fills in each segment.
    segments: BTreeMap<u32, u32>,
    bytes: u64,
    losses: Losses,
}

impl Index {
    /// An index that starts with a number.
    pub(crate) fn new(first: u64) -> Index {
        Index {
            chunks: VecDeque::new(),
            tail: Vec::new(),
            tail_segment: 0,
            first,
            next: first,
            gaps: Vec::new(),
            given_up: Vec::new(),
            fills: Vec::new(),
            spoilt: Vec::new(),
            segments: BTreeMap::new(),
            bytes: 0,
            losses: Losses::default(),
        }
    }

    /// The losses since opening.
    pub(crate) fn losses(&self) -> Losses {
        self.losses
    }

    /// Starts counting losses; numbers already missing count.
    pub(crate) fn count_losses(&mut self) {
        self.losses = Losses {
            corrupt: self.missing(),
            ..Losses::default()
        };
    }

    /// The number of missing records.
    pub(crate) fn missing(&self) -> u64 {
        self.gaps.iter().map(|(from, next)| next - from).sum()
    }

    /// Adds one entry in a segment; returns whether it is the first.
    fn hold(&mut self, segment: u32) -> bool {
        let entries = self.segments.entry(segment).or_default();
        *entries += 1;
        *entries == 1
    }

    /// Removes one entry in a segment; returns whether it was the last.
    fn release(&mut self, segment: u32) -> bool {
        let Some(entries) = self.segments.get_mut(&segment) else {
            return false;
        };
        *entries -= 1;
        let last = *entries == 0;
        if last {
            self.segments.remove(&segment);
        }
        last
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The bytes of the records that are kept. Of a chunk that is trimmed in part, whose frames are not known,
    /// a part in proportion to its numbers.
    pub(crate) fn bytes(&self) -> u64 {
        let trimmed = self.chunks.front().map_or(0, |chunk| {
            let numbers = chunk.next.saturating_sub(chunk.first).max(1);
            let trimmed = self.first.saturating_sub(chunk.first).min(numbers);
            let bytes = u128::from(chunk.bytes) * u128::from(trimmed) / u128::from(numbers);
            u64::try_from(bytes).unwrap_or(u64::MAX)
        });
        self.bytes.saturating_sub(trimmed)
    }

    /// The number from which there are `n` records that are not missing; the first if there are
    /// fewer.
    pub(crate) fn newest_from(&self, n: u64) -> u64 {
        let (mut from, mut left) = (self.next, n);
        for &(missing, next) in self.gaps.iter().rev() {
            if from - next >= left {
                break;
            }
            left -= from - next;
            from = missing;
        }
        from.saturating_sub(left).max(self.first)
    }

    /// First and last missing number of each gap, except those given up.
    pub(crate) fn gaps(&self) -> Vec<(u64, u64)> {
        let gaps = self.wanted();
        gaps.iter().map(|&(from, next)| (from, next - 1)).collect()
    }

    /// The missing numbers that were not given up.
    fn wanted(&self) -> Vec<(u64, u64)> {
        let lost = self.given_up.iter();
        lost.fold(self.gaps.clone(), |gaps, lost| {
            without(&gaps, lost.0, lost.1)
        })
    }

    /// First and last number of each range given up.
    pub(crate) fn given_up(&self) -> Vec<(u64, u64)> {
        let lost = self.given_up.iter();
        lost.map(|&(from, next)| (from, next - 1)).collect()
    }

    /// Gives up missing numbers.
    pub(crate) fn give_up(&mut self, from: u64, next: u64) {
        let from = from.max(self.first);
        if from < next.min(self.next) {
            self.given_up = without(&self.given_up, from, next);
            let at = self.given_up.partition_point(|lost| lost.0 < from);
            self.given_up.insert(at, (from, next.min(self.next)));
        }
    }

    /// Adds the frame that continues the stream; returns whether it is the only one held in its
    /// segment.
    pub(crate) fn push(&mut self, segment: u32, frame: FrameRef) -> bool {
        debug_assert_eq!(frame.first, self.next, "frames are pushed in order");
        let entered = !self.segments.contains_key(&segment);
        if segment != self.tail_segment {
            self.seal(self.tail.len());
            self.tail_segment = segment;
        } else if self.tail.len() >= 2 * CHUNK_FRAMES {
            self.seal(CHUNK_FRAMES);
        }
        self.next = frame.next();
        self.bytes += u64::from(frame.bytes);
        if self.tail.is_empty() {
            self.hold(segment);
        }
        self.tail.push(frame);
        entered
    }

    /// Adds a chunk that continues the stream.
    pub(crate) fn push_chunk(&mut self, chunk: Chunk) {
        debug_assert_eq!(chunk.first, self.next, "chunks are pushed in order");
        self.seal(self.tail.len());
        self.next = chunk.next;
        self.bytes += u64::from(chunk.bytes);
        self.hold(chunk.segment);
        self.chunks.push_back(chunk);
    }

    /// The segments of the held frames, ascending.
    pub(crate) fn segments(&self) -> impl DoubleEndedIterator<Item = u32> {
        self.segments.keys().copied()
    }

    /// The numbers in the chunks within a segment, and in the tail as one.
    pub(crate) fn numbers_in(&self, segment: u32) -> Vec<(u64, u64)> {
        let chunks = self.chunks.iter().filter(|chunk| chunk.segment == segment);
        let mut numbers: Vec<_> = chunks.map(|chunk| (chunk.first, chunk.next)).collect();
        if let (Some(first), true) = (self.tail.first(), self.tail_segment == segment) {
            numbers.push((first.first, self.next));
        }
        let fills = self.fills.iter().filter(|fill| fill.segment == segment);
        numbers.extend(fills.map(|fill| (fill.from, fill.next)));
        numbers
    }

    /// Adds a frame that restores numbers, as far as no other one has; returns whether it is the
    /// only one held in its segment.
    pub(crate) fn fill(&mut self, segment: u32, frame: FrameRef) -> bool {
        let mut entered = false;
        let (mut from, end) = (frame.first.max(self.first), frame.next().min(self.next));
        while from < end {
            let at = self.fills.partition_point(|fill| fill.next <= from);
            let next = match self.fills.get(at) {
                Some(fill) if fill.from <= from => {
                    from = fill.next;
                    continue;
                }
                Some(fill) => end.min(fill.from),
                None => end,
            };
            let fill = Fill {
                from,
                next,
                segment,
                frame,
            };
            self.fills.insert(at, fill);
            if self.hold(segment) {
                entered = true;
            }
            self.bytes += u64::from(frame.bytes);
            let before = self.missing();
            self.gaps = without(&self.gaps, from, next);
            self.given_up = without(&self.given_up, from, next);
            self.losses.filled += before - self.missing();
            from = next;
        }
        entered
    }

    /// The first of the numbers right before `number` that were restored or given up; `number`
    /// itself if there are none.
    pub(crate) fn put_back_before(&self, number: u64) -> u64 {
        let fills = self.fills.iter().map(|fill| (fill.from, fill.next));
        let mut known: Vec<(u64, u64)> = fills.chain(self.given_up.iter().copied()).collect();
        known.sort_unstable();
        let below = |first: u64, &(from, next): &(u64, u64)| match from < first && first <= next {
            true => from,
            false => first,
        };
        known.iter().rev().fold(number, below)
    }

    /// Handles a fill that cannot be read: its numbers are missing (again).
    pub(crate) fn unfill(&mut self, segment: u32, offset: u32) {
        let is = |fill: &Fill| fill.segment == segment && fill.frame.offset == offset;
        let (gone, stay): (Vec<_>, Vec<_>) = self.fills.drain(..).partition(is);
        self.fills = stay;
        for fill in &gone {
            self.add_gap(fill.from, fill.next);
        }
        self.spoilt.extend(gone);
    }

    /// The gaps that were not in `before`: first and last numbers.
    pub(crate) fn new_gaps(&self, before: &Index) -> Vec<(u64, u64)> {
        let old = before.gaps.iter();
        let new = old.fold(self.gaps.clone(), |new, gap| without(&new, gap.0, gap.1));
        new.iter().map(|&(from, next)| (from, next - 1)).collect()
    }

    /// Whether every number is missing.
    pub(crate) fn misses(&self, from: u64, next: u64) -> bool {
        let at = self.gaps.partition_point(|gap| gap.1 <= from);
        self.gaps
            .get(at)
            .is_some_and(|gap| gap.0 <= from && next <= gap.1)
    }

    /// Whether any of the numbers is missing and not given up.
    pub(crate) fn misses_some(&self, from: u64, next: u64) -> bool {
        self.wanted().iter().any(|gap| gap.0 < next && from < gap.1)
    }

    /// Marks the numbers up to `next` as missing.
    pub(crate) fn skip_to(&mut self, next: u64) {
        if next > self.next {
            self.seal(self.tail.len());
            let from = self.next;
            self.next = next;
            self.add_gap(from, next);
        }
    }

    /// Records that numbers turned out to be missing when they were read.
    pub(crate) fn add_gap(&mut self, from: u64, next: u64) {
        if next <= self.first {
            return; // trimmed while it was read
        }
        let before = self.missing();
        let mut from = from.max(self.first);
        for fill in self.fills.clone() {
            if fill.from < next && from < fill.next {
                if from < fill.from {
                    self.insert_gap(from, fill.from);
                }
                from = fill.next;
            }
        }
        if from < next {
            self.insert_gap(from, next);
        }
        self.losses.corrupt += self.missing() - before;
    }

    fn insert_gap(&mut self, from: u64, next: u64) {
        let at = self.gaps.partition_point(|gap| gap.1 < from);
        let (mut low, mut high, mut until) = (from, next, at);
        while until < self.gaps.len() && self.gaps[until].0 <= high {
            low = low.min(self.gaps[until].0);
            high = high.max(self.gaps[until].1);
            until += 1;
        }
        self.gaps.splice(at..until, [(low, high)]);
    }

    fn seal(&mut self, frames: usize) {
        let rest = self.tail.split_off(frames);
        let sealed = std::mem::replace(&mut self.tail, rest);
        let all = self.tail.is_empty() && !sealed.is_empty();
        for part in sealed.chunks(CHUNK_FRAMES) {
            let (Some(first), Some(last)) = (part.first(), part.last()) else {
                continue;
            };
            self.hold(self.tail_segment);
            self.chunks.push_back(Chunk {
                first: first.first,
                next: last.next(),
                time_min: part.iter().map(|f| f.time_min).min().unwrap_or(i64::MAX),
                time_max: part.iter().map(|f| f.time_max).max().unwrap_or(i64::MIN),
                segment: self.tail_segment,
                start: first.offset,
                last: last.offset,
                bytes: part.iter().map(|f| f.bytes).fold(0, u32::saturating_add),
            });
        }
        if all {
            self.release(self.tail_segment);
        }
    }

    /// Forgets segments up to and including `segment`, which the size limit removes; returns the
    /// segments in which nothing is held any more.
    pub(crate) fn trim(&mut self, segment: u32) -> Vec<u32> {
        let old = self.first;
        let mut first = old;
        for chunk in self.chunks.iter().take_while(|it| it.segment <= segment) {
            first = first.max(chunk.next);
        }
        let chunks_stay = self.chunks.iter().any(|chunk| chunk.segment > segment);
        if self.tail_segment <= segment && !chunks_stay && !self.tail.is_empty() {
            first = self.next;
        }
        for fill in self.fills.iter().filter(|fill| fill.segment <= segment) {
            first = first.max(fill.next);
        }
        let missing_before = self.missing();
        let left = self.trim_to(first);
        let missing = missing_before - self.missing();
        self.losses.removed += (self.first - old).saturating_sub(missing);
        left
    }

    /// Forgets the records before a number; returns the segments in which nothing is held any more.
    pub(crate) fn trim_to(&mut self, before: u64) -> Vec<u32> {
        let mut left = Vec::new();
        if before <= self.first {
            return left;
        }
        self.first = before.min(self.next);
        if planted::is(Defect::TrimsDamage)
            && let Some(gap) = self
                .gaps
                .iter()
                .find(|gap| gap.0 <= self.first && self.first < gap.1)
        {
            self.first = gap.1;
        }
        // A gap right after it stays: its numbers are missing for another reason.
        self.gaps = without(&self.gaps, 0, self.first);
        self.given_up = without(&self.given_up, 0, self.first);
        let mut bytes = 0;
        while let Some(chunk) = self.chunks.front().filter(|chunk| chunk.next <= self.first) {
            let chunk = *chunk;
            bytes += u64::from(chunk.bytes);
            left.extend(self.release(chunk.segment).then_some(chunk.segment));
            self.chunks.pop_front();
        }
        let first = self.first;
        let past = |fill: &Fill| fill.next <= first;
        let mut gone: Vec<Fill> = self.fills.extract_if(.., |fill| past(fill)).collect();
        gone.extend(self.spoilt.extract_if(.., |fill| past(fill)));
        for fill in gone {
            bytes += u64::from(fill.frame.bytes);
            left.extend(self.release(fill.segment).then_some(fill.segment));
        }
        if self.chunks.is_empty() {
            let frames = self
                .tail
                .partition_point(|frame| frame.next() <= self.first);
            bytes += self
                .tail
                .drain(..frames)
                .map(|frame| u64::from(frame.bytes))
                .sum::<u64>();
            if frames > 0 && self.tail.is_empty() {
                let segment = self.tail_segment;
                left.extend(self.release(segment).then_some(segment));
            }
        }
        self.bytes -= bytes.min(self.bytes);
        left
    }

    /// The frames to read for number `from`.
    pub(crate) fn plan(&self, from: u64) -> Plan {
        if from >= self.next {
            return Plan::End;
        }
        if from < self.first {
            return Plan::Gap(from, self.first);
        }
        let after = self.gaps.partition_point(|gap| gap.1 <= from);
        if let Some(gap) = self.gaps.get(after).filter(|gap| gap.0 <= from) {
            return Plan::Gap(from, gap.1);
        }
        let at = self.fills.partition_point(|fill| fill.next <= from);
        if let Some(fill) = self.fills.get(at).filter(|fill| fill.from <= from) {
            return Plan::Fill(fill.segment, fill.frame);
        }
        let at = self.chunks.partition_point(|chunk| chunk.next <= from);
        if let Some(chunk) = self.chunks.get(at) {
            return match chunk.first <= from {
                true => Plan::Chunk(*chunk),
                false => Plan::Gap(from, chunk.first),
            };
        }
        let at = self.tail.partition_point(|frame| frame.next() <= from);
        Plan::Frames(self.tail_segment, self.tail[at..].to_vec())
    }

    /// The first number from `from` on that may have a time in `[from_ns, to_ns)`; the greatest
    /// `to_ns` is no bound.
    pub(crate) fn seek_time(&self, from: u64, from_ns: i64, to_ns: i64) -> Option<u64> {
        let at = self.chunks.partition_point(|chunk| chunk.next <= from);
        let hit = within(from_ns, to_ns);
        let chunks = self.chunks.iter().skip(at);
        let chunk = chunks
            .filter(|c| hit(c.time_min, c.time_max))
            .map(|c| c.first.max(from));
        let tail = self
            .tail
            .iter()
            .filter(|f| f.next() > from && hit(f.time_min, f.time_max));
        let fill = self
            .fills
            .iter()
            .find(|f| f.next > from && hit(f.frame.time_min, f.frame.time_max));
        let fill = fill.map(|f| f.from.max(from));
        let ordered = chunk.chain(tail.map(|f| f.first.max(from))).next();
        ordered.into_iter().chain(fill).min()
    }

    /// The last number that may have a time in `[from_ns, to_ns)`.
    pub(crate) fn seek_time_back(&self, from_ns: i64, to_ns: i64) -> Option<u64> {
        let hit = within(from_ns, to_ns);
        let tail = self.tail.iter().rev();
        let tail = tail
            .filter(|f| hit(f.time_min, f.time_max))
            .map(FrameRef::next);
        let chunks = self.chunks.iter().rev();
        let chunks = chunks
            .filter(|c| hit(c.time_min, c.time_max))
            .map(|c| c.next);
        let fill = self.fills.iter().rev();
        let mut fill = fill
            .filter(|f| hit(f.frame.time_min, f.frame.time_max))
            .map(|f| f.next);
        let last = tail
            .chain(chunks)
            .next()
            .into_iter()
            .chain(fill.next())
            .max()?;
        (last > self.first).then(|| last - 1)
    }

    /// A range that has all times of what is kept: the least, and the greatest.
    pub(crate) fn times(&self) -> Option<(i64, i64)> {
        let chunks = self.chunks.iter().map(|c| (c.time_min, c.time_max));
        let tail = self.tail.iter().map(|f| (f.time_min, f.time_max));
        let fills = self
            .fills
            .iter()
            .map(|f| (f.frame.time_min, f.frame.time_max));
        let all = chunks.chain(tail).chain(fills);
        all.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    }

    /// What is kept with a time in `[from_ns, to_ns)`: how many records are certainly so by the times of
    /// their frames, and the ranges of numbers (first, and the one after the last) that have to be read.
    pub(crate) fn count_times(&self, from_ns: i64, to_ns: i64) -> (u64, Vec<(u64, u64)>) {
        let chunks = self.chunks.iter().map(|chunk| {
            let numbers = (chunk.first.max(self.first), chunk.next);
            (numbers, (chunk.time_min, chunk.time_max))
        });
        let tail = self.tail.iter().map(|frame| {
            let numbers = (frame.first.max(self.first), frame.next());
            (numbers, (frame.time_min, frame.time_max))
        });
        // Numbers that were written again and could not be removed from their first segment yet.
        let ordered = chunks.chain(tail).flat_map(|(numbers, times)| {
            let at = self.fills.partition_point(|fill| fill.next <= numbers.0);
            let fills = self.fills[at..].iter().take_while(|it| it.from < numbers.1);
            let rest = fills.fold(vec![numbers], |rest, fill| {
                without(&rest, fill.from, fill.next)
            });
            rest.into_iter().map(move |numbers| (numbers, times))
        });
        let fills = self.fills.iter().map(|fill| {
            let numbers = (fill.from.max(self.first), fill.next);
            (numbers, (fill.frame.time_min, fill.frame.time_max))
        });
        let (mut certain, mut unread) = (0, Vec::new());
        for (numbers, (min, max)) in ordered.chain(fills) {
            // A gap that was found by reading may lie within a chunk.
            for (first, next) in self.gaps.iter().fold(vec![numbers], |kept, gap| {
                match gap.0 < numbers.1 && gap.1 > numbers.0 {
                    true => without(&kept, gap.0, gap.1),
                    false => kept,
                }
            }) {
                if min >= from_ns && max < to_ns {
                    certain += next.saturating_sub(first);
                } else if max >= from_ns && min < to_ns && first < next {
                    unread.push((first, next));
                }
            }
        }
        (certain, unread)
    }

    /// Segment and offset of the newest known frame whose records are all before a number.
    pub(crate) fn last_whole_before(&self, number: u64) -> Option<(u32, u32)> {
        let at = self.tail.partition_point(|frame| frame.next() <= number);
        if let Some(frame) = at.checked_sub(1).and_then(|at| self.tail.get(at)) {
            return Some((self.tail_segment, frame.offset));
        }
        let at = self.chunks.partition_point(|chunk| chunk.next <= number);
        let chunk = self.chunks.get(at.checked_sub(1)?)?;
        Some((chunk.segment, chunk.last))
    }

    /// Segment and offset at or after which a number and all that follow it are; `None` when they are
    /// not there yet.
    pub(crate) fn place_of(&self, number: u64) -> Option<(u32, u32)> {
        let at = self.fills.partition_point(|fill| fill.next <= number);
        let fills = self.fills[at..]
            .iter()
            .map(|fill| (fill.segment, fill.frame.offset));
        self.place_in_order(number).into_iter().chain(fills).min()
    }

    /// Like [`Index::place_of`], without restored records.
    fn place_in_order(&self, number: u64) -> Option<(u32, u32)> {
        let at = self.chunks.partition_point(|chunk| chunk.next <= number);
        if let Some(chunk) = self.chunks.get(at) {
            return Some((chunk.segment, chunk.start));
        }
        let at = self.tail.partition_point(|frame| frame.next() <= number);
        Some((self.tail_segment, self.tail.get(at)?.offset))
    }

    /// The first number of which a frame may be after segment and offset. Records that were restored or moved
    /// there may be older ones that a reader has not read.
    pub(crate) fn first_after(&self, place: (u32, u32)) -> u64 {
        let is_after = |fill: &&Fill| (fill.segment, fill.frame.offset) > place;
        let fill = self.fills.iter().find(is_after);
        let ordered = self.first_in_order_after(place);
        fill.map_or(ordered, |fill| ordered.min(fill.from.max(self.first)))
    }

    fn first_in_order_after(&self, place: (u32, u32)) -> u64 {
        let past = |chunk: &Chunk| (chunk.segment, chunk.last) <= place;
        if let Some(chunk) = self.chunks.get(self.chunks.partition_point(past)) {
            return chunk.first.max(self.first);
        }
        let past = |frame: &FrameRef| (self.tail_segment, frame.offset) <= place;
        let frame = self.tail.get(self.tail.partition_point(past));
        frame.map_or(self.next, |frame| frame.first.max(self.first))
    }

    /// The place of the stream's last frame.
    pub(crate) fn last_place(&self) -> Option<(u32, u32)> {
        match self.tail.last() {
            Some(frame) => Some((self.tail_segment, frame.offset)),
            None => self.chunks.back().map(|chunk| (chunk.segment, chunk.last)),
        }
    }
}

/// Whether times from a least to a greatest one may be in `[from_ns, to_ns)`.
pub(crate) fn within(from_ns: i64, to_ns: i64) -> impl Fn(i64, i64) -> bool + Copy {
    move |min, max| max >= from_ns && (min < to_ns || to_ns == i64::MAX)
}

/// The ranges without the numbers from `from` to before `next`.
fn without(gaps: &[(u64, u64)], from: u64, next: u64) -> Vec<(u64, u64)> {
    let parts = gaps.iter().flat_map(|&(low, high)| {
        let before = (low, high.min(from));
        let after = (low.max(next), high);
        [before, after].into_iter().filter(|part| part.0 < part.1)
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(first: u64, count: u32, offset: u32) -> FrameRef {
        let time = first as i64;
        FrameRef {
            first,
            time_min: time,
            time_max: time + 9,
            count,
            offset,
            bytes: 100,
        }
    }

    fn filled(frames: u32) -> Index {
        let mut index = Index::new(1);
        for n in 0..frames {
            index.push(1 + n / 100, frame(1 + u64::from(n) * 10, 10, n * 100));
        }
        index
    }

    #[test]
    fn every_number_is_in_what_is_planned_for_it() {
        let index = filled(1000);
        for number in 1..=10_000 {
            match index.plan(number) {
                Plan::Chunk(chunk) => assert!((chunk.first..chunk.next).contains(&number)),
                Plan::Frames(_, frames) => {
                    assert!((frames[0].first..frames[0].next()).contains(&number));
                }
                other => panic!("{number}: {other:?}"),
            }
        }
        assert_eq!(index.plan(10_001), Plan::End);
    }

    #[test]
    fn gaps_are_planned_and_merged() {
        let mut index = filled(3);
        index.skip_to(50);
        index.push(1, frame(50, 10, 900));
        assert_eq!(index.plan(31), Plan::Gap(31, 50));
        assert_eq!(index.plan(49), Plan::Gap(49, 50));
        assert!(matches!(index.plan(50), Plan::Frames(1, _)));
        index.add_gap(21, 31);
        assert_eq!(index.gaps(), vec![(21, 49)]);
        index.add_gap(1, 11);
        assert_eq!(index.gaps(), vec![(1, 10), (21, 49)]);
        assert_eq!(index.plan(25), Plan::Gap(25, 50));
    }

    #[test]
    fn trimming_moves_the_first_number() {
        let mut index = filled(1000);
        index.trim(3);
        assert_eq!(index.first(), 3001);
        assert_eq!(index.plan(5), Plan::Gap(5, 3001));
        index.trim(100);
        assert_eq!((index.first(), index.next()), (10_001, 10_001));
        assert_eq!(index.bytes(), 0);
    }

    #[test]
    fn trimming_to_a_number_leaves_segments_one_by_one() {
        let mut index = filled(1000);
        let bytes = index.bytes();
        let mut left = Vec::new();
        for before in (0..=10_001).step_by(7).chain([10_001]) {
            left.extend(index.trim_to(before));
            assert_eq!(index.first(), before.max(1));
            // Ten bytes for each number; a frame of the tail is kept whole.
            let exact = (10_001 - index.first()) * 10;
            let counted = index.bytes();
            assert!(
                (exact..=exact + 100).contains(&counted),
                "{before}: {counted}"
            );
            let kept = index.segments().next().unwrap_or(11);
            assert!(index.segments().is_sorted());
            assert!(left.iter().all(|gone| *gone < kept), "{before}: {left:?}");
            if (2..10_001).contains(&before) {
                assert_eq!(index.plan(before - 1), Plan::Gap(before - 1, before));
                assert!(!matches!(index.plan(before), Plan::Gap(..) | Plan::End));
            }
        }
        assert_eq!(left, Vec::from_iter(1..=10));
        assert_eq!((index.bytes(), index.trim_to(u64::MAX)), (0, vec![]));
        assert!(bytes > 0 && index.push(10, frame(10_001, 10, 99_999)));
        assert!(!index.push(10, frame(10_011, 10, 100_099)));
    }

    #[test]
    fn times_are_sought() {
        let index = filled(1000);
        let from = index.seek_time(1, 5_000, 5_001).expect("there");
        assert!(from <= 5_000 && from > 3_500);
        assert_eq!(index.seek_time(1, 20_000, 30_000), None);
        let last = index.seek_time_back(5_000, 5_001).expect("there");
        assert!((5_000..6_500).contains(&last), "{last}");
        assert_eq!(index.seek_time_back(20_000, 30_000), None);
        assert_eq!(index.seek_time_back(0, i64::MAX), Some(10_000));
        assert_eq!(index.times(), Some((1, 10_000)));
        assert_eq!(Index::new(1).times(), None);
    }
}
