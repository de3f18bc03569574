//! Reads a stream's records, by number or by time.

use super::Stream;
use crate::frame::record;
use crate::index::{FrameRef, Plan, within};
use crate::read::{ReadOutcome, RecordVisitor};
use crate::{Error, GapReason, Position, Record};

/// Maximum number of payload bytes that one read collects before it returns.
pub(crate) const READ_BYTES: usize = 8 * 1024 * 1024;

impl Stream {
    /// At most `max_records` acknowledged records from `from_sequence` (0: from the first kept),
    /// and no more than about 8 MiB of them. Stops before a gap; for a number in a gap it returns
    /// [`Error::Gap`].
    pub fn read(&self, from_sequence: u64, max_records: usize) -> Result<Vec<Record>, Error> {
        self.read_within(from_sequence, max_records, READ_BYTES)
    }

    /// Like [`Stream::read`], and no more than about `max_bytes` of payload; at least one record.
    pub fn read_within(
        &self,
        from_sequence: u64,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<Record>, Error> {
        let mut records = Vec::new();
        let mut take = |position: Position, time, payload: &[u8]| {
            records.push(record(position.epoch, position.sequence, time, payload));
        };
        self.visit(from_sequence, max_records, max_bytes, &mut take)?;
        Ok(records)
    }

    /// Passes records to `take` as position, time and payload, without copying them. Stops after
    /// `max_records`, after about `max_bytes` of payload, or before a gap. Returns the number to continue
    /// from. The newest records come from memory ([`crate::Options::recent_bytes`]).
    ///
    /// Like [`Stream::read`].
    /// As [`Stream::read`].
    pub fn visit(
        &self,
        from_sequence: u64,
        max_records: usize,
        max_bytes: usize,
        take: &mut dyn FnMut(Position, i64, &[u8]),
    ) -> Result<u64, Error> {
        let mut next = match from_sequence {
            0 => self.first(),
            from => from,
        };
        let (mut records, mut bytes) = (0, 0);
        if max_records == 0 {
            return Ok(next);
        }
        let outcome = self.each(next, &mut |epoch, sequence, time, payload| {
            take(Position { epoch, sequence }, time, payload);
            next = sequence + 1;
            records += 1;
            bytes += payload.len();
            records < max_records && bytes < max_bytes
        });
        match outcome {
            Err(Error::Gap { .. }) if records > 0 => Ok(next),
            Err(error) => Err(error),
            Ok(()) => Ok(next),
        }
    }

    /// Passes records (epoch, number, time, payload) from a number to `take` until it returns
    /// false, a gap or the end.
    fn each(&self, from: u64, take: &mut RecordVisitor<'_>) -> Result<(), Error> {
        let reader = &self.owner.shared.reader;
        let (mut from, mut more) = (from, true);
        while more {
            let (recents, plan) = self.core.view().plan(from);
            for recent in &recents {
                recent.each(&mut |epoch, n, time, payload| {
                    if n == from && more {
                        from += 1;
                        more = take(epoch, n, time, payload);
                    }
                    more
                });
            }
            let mut fill = None;
            let (segment, frames, until) = match plan {
                None => continue,
                Some(Plan::End) => return Ok(()),
                Some(Plan::Gap(at, next)) => return Err(self.gap(at, next)),
                Some(Plan::Frames(segment, frames)) => {
                    let until = frames.last().map_or(from, FrameRef::next);
                    (segment, frames, until)
                }
                Some(Plan::Fill(segment, frame)) => {
                    fill = Some((segment, frame.offset));
                    (segment, vec![frame], frame.next())
                }
                Some(Plan::Chunk(chunk)) => {
                    let mut frames = match reader.frames_of(self.core.id, &chunk) {
                        Err(_) if self.has_moved(from, chunk.segment) => continue,
                        frames => frames.or_else(|error| self.trimmed(from, error))?,
                    };
                    frames.retain(|frame| frame.next() > from);
                    (chunk.segment, frames, chunk.next)
                }
            };
            let got = reader.records(
                self.core.id,
                segment,
                &frames,
                &mut |epoch, n, time, body| {
                    if n > from {
                        return false; // a frame is missing in between
                    }
                    if n == from {
                        from += 1;
                        more = take(epoch, n, time, body);
                    }
                    more
                },
            );
            if got.is_err() && self.has_moved(from, segment) {
                continue;
            }
            match got.or_else(|error| self.trimmed(from, error))? {
                ReadOutcome::Corrupt(..) if let Some((segment, offset)) = fill => {
                    reader.distrust(segment);
                    self.core.view().index.unfill(segment, offset);
                }
                // Earlier frames could not be found either.
                ReadOutcome::Corrupt(next) => self.found_gap(segment, from, next),
                // Frames of the chunk could not be found.
                ReadOutcome::All if more && from < until => {
                    let next = frames.iter().map(|f| f.first).find(|first| *first > from);
                    self.found_gap(segment, from, next.unwrap_or(until));
                }
                ReadOutcome::All => {}
            }
        }
        Ok(())
    }

    /// Reads the numbers from `from` to before `next`, so that corrupt records among them are noticed.
    pub(crate) fn verify(&self, mut from: u64, next: u64) {
        while from < next {
            let outcome = self.each(from, &mut |_, sequence, _, _| {
                from = sequence + 1;
                from < next
            });
            match outcome {
                Err(Error::Gap { next: after, .. }) => from = after,
                Ok(()) if from >= next => {}
                // The end, or a disk that fails to read: nothing is known of the rest.
                _ => return,
            }
        }
    }

    /// Whether a number was moved to another segment while this one was read.
    fn has_moved(&self, number: u64, segment: u32) -> bool {
        let view = self.core.view();
        number >= view.index.first() && !view.index.holds(segment)
    }

    /// A segment that vanished while it was read was trimmed or removed by the size limit.
    fn trimmed<T>(&self, from: u64, error: Error) -> Result<T, Error> {
        let first = self.first();
        Err(if from < first {
            self.gap(from, first)
        } else {
            error
        })
    }

    fn found_gap(&self, segment: u32, from: u64, next: u64) {
        self.owner.shared.reader.distrust(segment);
        self.core.view().index.add_gap(from, next);
    }

    fn gap(&self, from: u64, next: u64) -> Error {
        let view = self.core.view();
        let trimmed = from < view.index.first();
        let reason = if trimmed {
            GapReason::Trimmed
        } else {
            GapReason::Corrupt
        };
        Error::Gap {
            stream: view.definition.name.clone(),
            from,
            next,
            reason,
        }
    }

    /// The newest records in order, at most `n`. Skips gaps, which [`Stream::gaps`] lists.
    pub fn newest(&self, n: usize) -> Result<Vec<Record>, Error> {
        let from = self.newest_from(n as u64);
        self.gather(from, n, &mut |_| true, &mut Some)
    }

    /// Records with `from_ns <= time < to_ns` in order of their numbers, at most `limit`. Skips
    /// gaps, which [`Stream::gaps`] lists.
    pub fn range(&self, from_ns: i64, to_ns: i64, limit: usize) -> Result<Vec<Record>, Error> {
        let mut seek = |from| self.seek_time(from, from_ns, to_ns);
        let within = &mut |record: &Record| record.time >= from_ns && record.time < to_ns;
        self.gather(self.first(), limit, within, &mut seek)
    }

    /// The number from which there are `n` records, gaps not counted; the first kept if there are fewer.
    pub fn newest_from(&self, n: u64) -> u64 {
        let view = self.core.view();
        let waiting = view.end() - view.index.next();
        match n.checked_sub(waiting) {
            Some(n) => view.index.newest_from(n),
            None => view.end() - n,
        }
    }

    /// The first number from `from` whose record may have a time with `from_ns <= time < to_ns`;
    /// `None` if none has. Call it before each [`Stream::visit`] to skip records of other times.
    pub fn seek_time(&self, mut from: u64, from_ns: i64, to_ns: i64) -> Option<u64> {
        loop {
            let (found, plan) = {
                let view = self.core.view();
                let waiting = from.max(view.index.next());
                let Some(found) = view.index.seek_time(from, from_ns, to_ns) else {
                    // Records that wait for room have no time index.
                    return (waiting < view.end()).then_some(waiting);
                };
                (found, view.index.plan(found))
            };
            let Plan::Chunk(chunk) = plan else {
                return Some(found);
            };
            let is_all = chunk.time_min >= from_ns && chunk.time_max < to_ns;
            let frames = match is_all {
                true => return Some(found),
                // The frames have times of their own. If they cannot be read, the caller finds out why.
                false => self.owner.shared.reader.frames_of(self.core.id, &chunk),
            };
            let frames = frames.unwrap_or_default();
            if !covers(&frames, found, chunk.next) {
                return Some(found);
            }
            let hit = within(from_ns, to_ns);
            let mut later = frames.iter().filter(|frame| frame.next() > found);
            match later.find(|frame| hit(frame.time_min, frame.time_max)) {
                Some(frame) => return Some(frame.first.max(found)),
                None => from = chunk.next,
            }
        }
    }

    /// The last number whose record may have a time with `from_ns <= time < to_ns`; `None` when none
    /// has.
    #[must_use]
    pub fn seek_time_back(&self, from_ns: i64, to_ns: i64) -> Option<u64> {
        let view = self.core.view();
        // Of those that wait for room no times are kept.
        if view.index.next() < view.end() {
            return Some(view.end() - 1);
        }
        view.index.seek_time_back(from_ns, to_ns)
    }

    /// The least and the greatest time that a kept record may have, from the index alone: the range
    /// includes all times and is close to them. `None` when nothing is kept, or nothing is indexed yet.
    #[must_use]
    pub fn times(&self) -> Option<(i64, i64)> {
        self.core.view().index.times()
    }

    fn gather(
        &self,
        mut from: u64,
        limit: usize,
        wanted: &mut dyn FnMut(&Record) -> bool,
        seek: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<Vec<Record>, Error> {
        const STEP: usize = 1024;
        let mut records = Vec::new();
        while records.len() < limit {
            let Some(next) = seek(from) else { break };
            match self.read(next, STEP) {
                Ok(read) => {
                    let Some(last) = read.last() else { break };
                    from = last.position.sequence + 1;
                    records.extend(read.into_iter().filter(|record| wanted(record)));
                }
                Err(Error::Gap { next, .. }) => from = next,
                Err(error) => return Err(error),
            }
        }
        records.truncate(limit);
        Ok(records)
    }
}

/// Whether frames have all numbers from `from` to before `next`.
fn covers(frames: &[FrameRef], from: u64, next: u64) -> bool {
    let has_first = frames.first().is_some_and(|frame| frame.first <= from);
    let has_last = frames.last().is_some_and(|frame| frame.next() == next);
    let has_gap = |pair: &[FrameRef]| pair[0].next() != pair[1].first;
    has_first && has_last && !frames.windows(2).any(has_gap)
}
