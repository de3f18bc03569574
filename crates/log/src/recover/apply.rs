//! What each valid frame changes in the scan: records, restored records, definitions, removals and trim marks.

use super::scanned::{Beginning, ScannedStream};
use super::{Scan, SegmentFile, head_of};
use crate::frame::{Bookmark, Definition, Header, Kind, Removal, mark};
use crate::index::{FrameRef, Index};
use crate::planted::{self, Defect};
use crate::segment::{at, segment_name};
use crate::snapshot::Snapshot;
use crate::{Error, Level, MAX_EPOCHS};

impl Scan {
    /// The stream of a frame of records; a stream whose definition is lost gets a generated name.
    pub(super) fn stream(&mut self, header: &Header) -> &mut ScannedStream {
        self.stream_from(header.stream, header.epoch, header.first)
    }

    pub(super) fn stream_from(&mut self, id: u32, epoch: u64, first: u64) -> &mut ScannedStream {
        let (ranges_seen, opaque_seen) = (self.found.corrupt.len(), self.found.opaque.len());
        let lost_in = self.lost_beginning();
        let name = self.names.get(&id);
        self.found.streams.entry(id).or_insert_with(|| {
            let mut index = Index::new(1);
            index.skip_to(first);
            ScannedStream {
                definition: Definition {
                    name: name.map_or_else(|| format!("lost-name-{id}"), String::clone),
                    level: Level::Power,
                    metadata: Vec::new(),
                    epochs: vec![(epoch, first)],
                },
                defined: false,
                index,
                frames: 0,
                records: 0,
                trimmed: 0,
                bookmark: None,
                born: (first, lost_in),
                ranges_seen,
                opaque_seen,
            }
        })
    }

    /// The damage that may contain the start of a stream with no earlier frame.
    pub(super) fn lost_beginning(&self) -> Option<Beginning> {
        let range = self.found.opaque.last().copied()?;
        let in_oldest = self.found.corrupt[range].segment == segment_name(self.oldest);
        let sure = self.oldest == 1 || !in_oldest;
        Some(Beginning { range, sure })
    }

    /// Marks numbers of a stream up to `next` as missing, in the range that held them.
    pub(super) fn skip(&mut self, id: u32, next: u64) {
        let (ranges, opaque) = (self.found.corrupt.len(), self.found.opaque.len());
        let Some(stream) = self.found.streams.get_mut(&id) else {
            return;
        };
        let from = stream.index.next();
        let seen = std::mem::replace(&mut stream.ranges_seen, ranges);
        stream.opaque_seen = opaque;
        if next <= from {
            return;
        }
        stream.index.skip_to(next);
        let gap = (stream.definition.name.clone(), from, next - 1);
        if seen >= ranges {
            let segment = self.found.segments.last().map_or(1, |(number, _)| *number);
            self.corrupt(segment, 0, 0, "records are missing", false);
        }
        let at = seen.min(self.found.corrupt.len() - 1);
        self.found.corrupt[at].gaps.push(gap);
    }

    pub(super) fn apply_records(&mut self, header: &Header, segment: u32, offset: u64) {
        let expected = self.stream(header).index.next();
        if header.first < expected {
            let bytes = header.frame_bytes();
            return self.corrupt(
                segment,
                offset,
                bytes,
                "the numbers of a frame are lower than those before",
                false,
            );
        }
        self.skip(header.stream, header.first);
        let stream = self.stream(header);
        let epochs = &mut stream.definition.epochs;
        if epochs
            .last()
            .is_none_or(|(epoch, _)| *epoch != header.epoch)
        {
            epochs.push((header.epoch, header.first));
            if epochs.len() > MAX_EPOCHS {
                epochs.remove(0);
            }
        }
        stream.frames += 1;
        stream.records += u64::from(header.count);
        stream.index.push(
            segment,
            FrameRef {
                first: header.first,
                time_min: header.time_min,
                time_max: header.time_max,
                count: header.count,
                offset: offset as u32,
                bytes: header.frame_bytes() as u32,
            },
        );
        self.found.records += u64::from(header.count);
    }

    /// Handles restored records, whose numbers were assigned before.
    pub(super) fn apply_fill(&mut self, header: &Header, segment: u32, offset: u64) {
        if planted::is(Defect::ForgetsFills) {
            return;
        }
        if header.next() > self.stream(header).index.next() {
            let bytes = header.frame_bytes();
            let what = "restored records have numbers that were never assigned";
            return self.corrupt(segment, offset, bytes, what, false);
        }
        let stream = self.stream(header);
        stream.frames += 1;
        stream.records += u64::from(header.count);
        stream
            .index
            .fill(segment, FrameRef::new(header, offset as u32));
        self.found.records += u64::from(header.count);
    }

    /// Whether a snapshot continues where the streams end.
    pub(super) fn continues(&self, snapshot: &Snapshot) -> bool {
        snapshot.parts.iter().all(|(id, part)| {
            let known = self.found.streams.get(id).map_or(0, |it| it.index.next());
            known <= part.first
        })
    }

    /// Takes the content of a segment from its snapshot.
    pub(super) fn apply_snapshot(&mut self, snapshot: Snapshot) {
        for (id, part) in snapshot.parts {
            self.found.frames += part.frames;
            self.found.records += part.records;
            if self.found.removals.contains_key(&id) {
                continue;
            }
            self.stream_from(id, part.epoch, part.first);
            self.skip(id, part.first);
            let stream = self.stream_from(id, part.epoch, part.first);
            for chunk in part.chunks {
                stream.index.push_chunk(chunk);
            }
            let fills = part.fills.into_iter();
            for fill in fills.filter(|_| !planted::is(Defect::ForgetsFills)) {
                stream.index.fill(snapshot.header.number, fill);
            }
            for (from, next) in part.given_up {
                stream.index.give_up(from, next);
            }
            Bookmark::renew(&mut stream.bookmark, part.bookmark, Kind::Trim);
            stream.frames += part.frames;
            stream.records += part.records;
        }
        for (id, epoch) in snapshot.removals {
            self.apply_removal(id, epoch, snapshot.header.number);
        }
        self.found.clean = snapshot.closed;
        self.found.indexed += 1;
        self.found.last_crc = snapshot.last_crc;
        self.found
            .segments
            .push((snapshot.header.number, snapshot.bytes));
        self.chain = Some(snapshot.last_crc);
    }

    /// What a segment begins with tells how far each stream was; false if it cannot be read.
    pub(super) fn apply_head(&mut self, one: &SegmentFile) -> Result<bool, Error> {
        let store = self.found.store.unwrap_or_default();
        let name = segment_name(one.number);
        let head = at("read", &name, head_of(one, store))?;
        let Some(head) = head.filter(|it| it.is_complete) else {
            return Ok(false);
        };
        for (header, body) in head.frames {
            match header.kind {
                Kind::Trim => self.apply_mark(&header, mark(&body).unwrap_or_default()),
                _ => match Definition::decode(&body) {
                    Some(definition) if definition.is_removal() => {
                        self.apply_removal(header.stream, header.epoch, one.number);
                    }
                    Some(definition) => self.apply_definition(&header, definition),
                    None => return Ok(false),
                },
            }
        }
        Ok(true)
    }

    /// Removes the stream: nothing of it counts as missing.
    pub(super) fn apply_removal(&mut self, id: u32, epoch: u64, segment: u32) {
        if let Some(stream) = self.found.streams.remove(&id) {
            let name = stream.definition.name;
            for range in &mut self.found.corrupt {
                range.gaps.retain(|(of, _, _)| *of != name);
            }
        }
        let removal = Removal { epoch, segment };
        self.found.removals.entry(id).or_insert(removal);
    }

    pub(super) fn apply_definition(&mut self, header: &Header, definition: Definition) {
        self.found.removals.remove(&header.stream);
        self.stream(header);
        self.skip(header.stream, header.first);
        let stream = self.stream(header);
        (stream.definition, stream.defined) = (definition, true);
    }

    pub(super) fn apply_mark(&mut self, header: &Header, before: u64) {
        self.stream(header);
        self.skip(header.stream, header.first);
        let stream = self.stream(header);
        stream.trimmed = stream.trimmed.max(before.min(header.first));
    }
}
