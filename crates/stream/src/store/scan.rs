//! Reads a range of a stream piece by piece, so that memory is bounded by a piece, whatever the
//! number and size of the elements.

use std::ops::Range;
use std::sync::Arc;

use chappe_log::GapReason;

use super::elements::decode_record;
use super::metadata::Metadata;
use super::{StoreError, StreamLog};
use crate::{StreamElement, StreamSchema, Timestamp};

/// Maximum number of elements of a piece; reason: one lookup in the log's index serves this many.
const PIECE_ELEMENTS: usize = 1_024;
/// Bytes after which a piece ends, as stored and as decoded. 1 MiB: for each piece of a batch the
/// log reads the whole batch, of up to 4 MiB.
const PIECE_BYTES: usize = 1 << 20;

/// Reads elements in the order of their numbers, up to the newest at the time it started.
#[derive(Clone)]
pub struct Scan {
    log: StreamLog,
    next: u64,
    last: u64,
    times: Option<Range<Timestamp>>,
    /// Whether anything was read.
    begun: bool,
    /// The schema when the newest piece was decoded.
    metadata: Arc<Metadata>,
}

impl StreamLog {
    /// Reads the elements from number `from` (0: from the first kept) with a source time in
    /// `times`, or all if there are none, piece by piece.
    #[must_use]
    pub fn scan(&self, from: u64, times: Option<Range<Timestamp>>) -> Scan {
        Scan::new(self, from, times)
    }
}

impl Scan {
    fn new(log: &StreamLog, from: u64, times: Option<Range<Timestamp>>) -> Self {
        Self {
            next: if from == 0 { log.log().first() } else { from },
            last: log.log().last(),
            times,
            begun: false,
            metadata: log.snapshot(),
            log: log.clone(),
        }
    }

    /// The next elements, at most `most` and about 1 MiB of them; `None` at the end. A piece may be
    /// empty where elements of other times lie in between.
    ///
    /// # Errors
    /// A gap, after which the next call continues; elements that do not decode; the log's error.
    pub fn next_piece(&mut self, most: usize) -> Result<Option<Vec<StreamElement>>, StoreError> {
        let Some(from) = self.seek() else {
            self.next = self.last + 1;
            return Ok(None);
        };
        self.next = from;
        let most = most.clamp(1, PIECE_ELEMENTS);
        self.metadata = self.log.snapshot();
        let metadata = self.metadata.clone();
        let (mut piece, mut bytes, mut failed) = (Vec::new(), 0, None);
        let mut take = |position: chappe_log::Position, time, payload: &[u8]| {
            let is_full = piece.len() >= most || bytes >= PIECE_BYTES;
            if is_full || position.sequence > self.last || failed.is_some() {
                return;
            }
            self.next = position.sequence + 1;
            self.begun = true;
            let times = self.times.as_ref();
            if times.is_some_and(|times| !times.contains(&Timestamp(time))) {
                return;
            }
            match decode_record(&metadata, position, time, payload) {
                Ok(element) => {
                    bytes += element.size_bytes();
                    piece.push(element);
                }
                Err(error) => failed = Some(error),
            }
        };
        let stream = &self.log.stream;
        let visited = stream.visit(from, PIECE_ELEMENTS, PIECE_BYTES, &mut take);
        if let Err(chappe_log::Error::Gap { next, .. }) = &visited {
            self.next = *next;
        }
        visited?;
        match failed {
            Some(error) => Err(error),
            // The log no longer has the number: it was rolled back.
            None if self.next == from => Ok(None),
            None => Ok(Some(piece)),
        }
    }

    /// The schema of the elements of the newest piece. The stream may have another one by the time
    /// they are used.
    #[must_use]
    pub fn schema(&self) -> &StreamSchema {
        self.metadata.current()
    }

    /// Like [`Scan::next_piece`], but skips damaged elements, which [`StreamLog::damaged`] counts.
    /// Elements that retention removes before the first one is read are skipped; later ones are an
    /// error, since those before them were read.
    ///
    /// # Errors
    /// Like [`Scan::next_piece`].
    pub fn next_undamaged(
        &mut self,
        most: usize,
    ) -> Result<Option<Vec<StreamElement>>, StoreError> {
        match self.next_piece(most) {
            Err(StoreError::Log(chappe_log::Error::Gap { reason, .. }))
                if reason == GapReason::Corrupt || !self.begun =>
            {
                Ok(Some(Vec::new()))
            }
            piece => piece,
        }
    }

    /// The number to read from, if any.
    fn seek(&self) -> Option<u64> {
        let from = match &self.times {
            None => self.next,
            Some(times) => {
                let stream = &self.log.stream;
                stream.seek_time(self.next, times.start.0, times.end.0)?
            }
        };
        (from <= self.last).then_some(from)
    }
}
