//! What a stream keeps in a segment, and its removal from there once it was written again elsewhere.

use super::{Chunk, FrameRef, Index};

/// Kept numbers within one segment, and where they are.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) from: u64,
    pub(crate) next: u64,
    /// The chunk whose frames have to be located.
    pub(crate) chunk: Option<Chunk>,
    /// The frames, if there is no chunk.
    pub(crate) frames: Vec<FrameRef>,
}

impl Index {
    /// Whether a segment holds something.
    pub(crate) fn holds(&self, segment: u32) -> bool {
        self.segments.contains_key(&segment)
    }

    /// Calls `add` with the bytes in each segment; several times for some.
    pub(crate) fn bytes_by_segment(&self, mut add: impl FnMut(u32, u64)) {
        for chunk in &self.chunks {
            add(chunk.segment, u64::from(chunk.bytes));
        }
        let tail = self.tail.iter().map(|frame| u64::from(frame.bytes));
        add(self.tail_segment, tail.sum());
        for fill in &self.fills {
            add(fill.segment, u64::from(fill.frame.bytes));
        }
    }

    /// The kept numbers in a segment, ascending: without those that are missing there, and those that a later
    /// segment has too.
    pub(crate) fn runs_in(&self, segment: u32) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut add = |from: u64, next: u64, chunk: Option<Chunk>, frames: &[FrameRef]| {
            let from = from.max(self.first);
            let mut numbers: Vec<(u64, u64)> = Vec::new();
            numbers.extend((from < next).then_some((from, next)));
            let fills = self.fills.iter().map(|fill| (fill.from, fill.next));
            for gap in self.gaps.iter().copied().chain(fills) {
                if gap.0 < next && from < gap.1 {
                    numbers = super::without(&numbers, gap.0, gap.1);
                }
            }
            for (from, next) in numbers {
                let frames = frames
                    .iter()
                    .filter(|it| it.first < next && from < it.next());
                runs.push(Run {
                    from,
                    next,
                    chunk,
                    frames: frames.copied().collect(),
                });
            }
        };
        for chunk in self.chunks.iter().filter(|it| it.segment == segment) {
            add(chunk.first, chunk.next, Some(*chunk), &[]);
        }
        if self.tail_segment == segment
            && let (Some(first), Some(last)) = (self.tail.first(), self.tail.last())
        {
            add(first.first, last.next(), None, &self.tail);
        }
        let fills = self.fills.iter().filter(|it| it.segment == segment);
        runs.extend(fills.map(|fill| Run {
            from: fill.from.max(self.first),
            next: fill.next,
            chunk: None,
            frames: vec![fill.frame],
        }));
        runs.sort_by_key(|run| run.from);
        runs
    }

    /// Forgets what a segment holds: it was written again elsewhere, and [`Index::fill`] adds that. Returns
    /// whether something was there.
    pub(crate) fn move_out(&mut self, segment: u32) -> bool {
        if self.tail_segment == segment {
            self.seal(self.tail.len());
        }
        let is_there = self.segments.remove(&segment).is_some();
        let mut bytes = 0;
        self.chunks.retain(|chunk| {
            let stays = chunk.segment != segment;
            bytes += if stays { 0 } else { u64::from(chunk.bytes) };
            stays
        });
        self.fills.retain(|fill| {
            let stays = fill.segment != segment;
            bytes += if stays {
                0
            } else {
                u64::from(fill.frame.bytes)
            };
            stays
        });
        self.spoilt.retain(|fill| fill.segment != segment);
        self.bytes -= bytes.min(self.bytes);
        is_there
    }
}
