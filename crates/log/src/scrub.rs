//! Looking for rot before somebody needs what has rotted: old segments are read again, piece by
//! piece, and every checksum is looked at.
//!
//! The segment that is being written is left out: opening and reading look at it. What is found is
//! remembered as gaps of its streams at once, so that readers are told and [`crate::Stream::fill`]
//! can put the records back. What is still in memory is put back from there.

use crate::frame::{Header, Kind};
use crate::queue::Shared;
use crate::recent::Recent;
use crate::segment::{
    Found, SEGMENT_HEADER_BYTES, Scanner, SegmentHeader, at, salt, segment_name, segment_number,
};
use crate::store::Owner;
use crate::{CorruptRange, Error, Position, Stream};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

/// What a step of the scrub did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes read.
    pub bytes: u64,
    /// Damage that was not known before.
    pub corrupt: Vec<CorruptRange>,
    /// Damaged records that are still in memory and are being written again; with
    /// [`crate::Commit::Caller`] the next commit does that.
    pub from_memory: u64,
    /// Segments of this round that are done.
    pub segments_done: usize,
    /// Segments of this round in all; the one that is being written is none of them.
    pub segments: usize,
    /// The last segment is done: the next step begins a new round.
    pub round_done: bool,
}

/// Where the scrub is.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    segment: u32,
    offset: u64,
    /// The frame before: its header, place and checksum.
    before: Option<(Header, u64, u32)>,
    /// Places of damage that was told.
    known: BTreeSet<(u32, u64)>,
}

impl Scrub {
    /// One that does not tell again what opening has told.
    pub(crate) fn new(told: &[CorruptRange]) -> Scrub {
        let place = |range: &CorruptRange| Some((segment_number(&range.segment)?, range.offset));
        Scrub {
            known: told.iter().filter_map(place).collect(),
            ..Scrub::default()
        }
    }
}

/// A place that does not pass.
struct Damage {
    offset: u64,
    bytes: u64,
    what: &'static str,
    /// The header, if it can be read.
    header: Option<Header>,
}

impl Owner {
    /// Reads about `budget` bytes on.
    pub(crate) fn scrub(self: &Arc<Owner>, budget: u64) -> Result<Scrubbed, Error> {
        let shared = &self.shared;
        let mut scrub = shared.scrub.lock().unwrap_or_else(PoisonError::into_inner);
        let mut step = Scrubbed::default();
        let mut numbers = segments(shared)?;
        // The last is being written.
        numbers.pop();
        step.segments = numbers.len();
        while step.bytes < budget {
            let next = numbers.iter().position(|number| *number >= scrub.segment);
            step.segments_done = next.unwrap_or(numbers.len());
            let Some(number) = next.map(|next| numbers[next]) else {
                (scrub.segment, scrub.offset, scrub.before) = (0, 0, None);
                step.round_done = true;
                break;
            };
            if number != scrub.segment {
                (scrub.segment, scrub.offset, scrub.before) = (number, 0, None);
            }
            match self.scrub_segment(&mut scrub, budget, &mut step) {
                Err(_) if !segments(shared)?.contains(&number) => {
                    // It was removed meanwhile.
                    (scrub.segment, scrub.offset) = (number + 1, 0);
                }
                other => other?,
            }
        }
        step.from_memory = self.put_back_from_memory();
        let mut queue = shared.lock();
        queue.counters.scrubbed_bytes += step.bytes;
        queue.counters.scrub_rounds += u64::from(step.round_done);
        queue.counters.scrub_found += step.corrupt.len() as u64;
        Ok(step)
    }

    /// Writes damaged records again that are still in memory; how many.
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
                // Without room in the queue it is tried again the next time.
                if count > 0 && stream.fill(Position { epoch, sequence }, batch).is_ok() {
                    put_back += count;
                }
            }
        }
        put_back
    }

    /// Reads on in the segment; at its end the next one is set.
    fn scrub_segment(
        self: &Arc<Owner>,
        scrub: &mut Scrub,
        budget: u64,
        step: &mut Scrubbed,
    ) -> Result<(), Error> {
        let number = scrub.segment;
        let name = segment_name(number);
        let (disk, store) = self.shared.reader.disk();
        let file = at("open", &name, disk.open(&name))?;
        file.forget();
        let length = at("read", &name, file.len())?;
        if scrub.offset == 0 {
            let mut bytes = [0; SEGMENT_HEADER_BYTES];
            let read = at("read", &name, file.read_at(0, &mut bytes))?;
            if SegmentHeader::decode(&bytes[..read], number)?.is_none() {
                let damage = Damage {
                    offset: 0,
                    bytes: read as u64,
                    what: "the segment's header is invalid",
                    header: None,
                };
                self.found(scrub, step, damage);
            }
            scrub.offset = SEGMENT_HEADER_BYTES as u64;
        }
        let mut scanner = Scanner::new(&*file, salt(store, number), length);
        while step.bytes < budget {
            let offset = scrub.offset;
            let damage = |bytes, what, header| Damage {
                offset,
                bytes,
                what,
                header,
            };
            let (bytes, before) = match at("read", &name, scanner.look(offset))? {
                Found::Frame(header, crc) => {
                    if let Some((last, place, last_crc)) = scrub.before
                        && last_crc != header.previous
                    {
                        let damage = Damage {
                            offset: place,
                            bytes: last.frame_bytes(),
                            what: "the frame after names another one",
                            header: Some(last),
                        };
                        self.found(scrub, step, damage);
                    }
                    (header.frame_bytes(), Some((header, offset, crc)))
                }
                Found::BadBody(header, crc) => {
                    let bytes = header.frame_bytes();
                    let what = "a frame's body is not what was written";
                    self.found(scrub, step, damage(bytes, what, Some(header)));
                    (bytes, Some((header, offset, crc)))
                }
                Found::Bad(bytes) => {
                    self.found(scrub, step, damage(bytes, "no frame can be read", None));
                    (bytes, None)
                }
                Found::End => {
                    (scrub.segment, scrub.offset, scrub.before) = (number + 1, 0, None);
                    return Ok(());
                }
            };
            scrub.before = before;
            scrub.offset += bytes;
            step.bytes += bytes;
        }
        Ok(())
    }

    /// Notes damage: which records are missing by it, and that the segment is to be read when the log
    /// is opened the next time.
    fn found(self: &Arc<Owner>, scrub: &mut Scrub, step: &mut Scrubbed, damage: Damage) {
        let segment = scrub.segment;
        if !scrub.known.insert((segment, damage.offset)) {
            return;
        }
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
        step.corrupt.push(CorruptRange {
            segment: segment_name(segment),
            offset: damage.offset,
            bytes: damage.bytes,
            what: damage.what.to_owned(),
            unsynced: false,
            settled: gaps.is_empty(),
            gaps,
        });
    }
}

/// The numbers of the segments that are there, ascending.
fn segments(shared: &Shared) -> Result<Vec<u32>, Error> {
    let names = at("list", "the directory", shared.reader.disk().0.list())?;
    let mut numbers: Vec<u32> = names.iter().filter_map(|it| segment_number(it)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}
