//! The reading half of the scrub: goes through old segments and finds bytes that fail their
//! checksums.

use crate::frame::Header;
use crate::segment::{
    Found, SEGMENT_HEADER_BYTES, Scanner, SegmentHeader, at, salt, segment_name, segment_number,
};
use crate::{CorruptRange, Disk, Error};
use std::collections::BTreeSet;

/// Damage that was not known before.
pub(crate) struct Damage {
    pub(crate) segment: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) what: &'static str,
    /// The header, if it can be read.
    pub(crate) header: Option<Header>,
}

/// The result of one step of a pass.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) bytes: u64,
    /// Number of segments of this pass that are finished.
    pub(crate) segments_done: usize,
    /// Total number of segments of this pass, without the one being written.
    pub(crate) segments: usize,
    /// The last segment is finished.
    pub(crate) pass_done: bool,
}

/// One pass over all segments that are no longer written, and its progress.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    segment: u32,
    offset: u64,
    /// The previous frame: its header, offset and checksum.
    before: Option<(Header, u64, u32)>,
    /// Segment and offset of damage that was reported.
    known: BTreeSet<(u32, u64)>,
}

impl Pass {
    /// A pass that does not report damage known since opening.
    pub(crate) fn new(reported: &[CorruptRange]) -> Pass {
        let place = |range: &CorruptRange| Some((segment_number(&range.segment)?, range.offset));
        Pass {
            known: reported.iter().filter_map(place).collect(),
            ..Pass::default()
        }
    }

    /// Reads about `budget` bytes of the store `store` and calls `found` for new damage.
    pub(crate) fn read(
        &mut self,
        (disk, store): (&dyn Disk, u64),
        budget: u64,
        found: &mut dyn FnMut(Damage),
    ) -> Result<Progress, Error> {
        let mut numbers = segments(disk)?;
        // The last one is being written.
        numbers.pop();
        let mut progress = Progress {
            segments: numbers.len(),
            ..Progress::default()
        };
        while progress.bytes < budget {
            let next = numbers.iter().position(|number| *number >= self.segment);
            progress.segments_done = next.unwrap_or(numbers.len());
            let Some(number) = next.map(|next| numbers[next]) else {
                self.go_to(0);
                progress.pass_done = true;
                break;
            };
            if number != self.segment {
                self.go_to(number);
            }
            match self.read_segment((disk, store), budget, &mut progress, found) {
                Err(_) if !segments(disk)?.contains(&number) => {
                    // It was removed meanwhile.
                    (self.segment, self.offset) = (number + 1, 0);
                }
                other => other?,
            }
        }
        Ok(progress)
    }

    fn go_to(&mut self, segment: u32) {
        (self.segment, self.offset, self.before) = (segment, 0, None);
    }

    /// Continues reading in the segment; at its end moves to the next one.
    fn read_segment(
        &mut self,
        (disk, store): (&dyn Disk, u64),
        budget: u64,
        progress: &mut Progress,
        found: &mut dyn FnMut(Damage),
    ) -> Result<(), Error> {
        let number = self.segment;
        let name = segment_name(number);
        let file = at("open", &name, disk.open(&name))?;
        file.forget();
        let length = at("read", &name, file.len())?;
        if self.offset == 0 {
            let mut bytes = [0; SEGMENT_HEADER_BYTES];
            let read = at("read", &name, file.read_at(0, &mut bytes))?;
            if SegmentHeader::decode(&bytes[..read], number)?.is_none() {
                self.report(
                    0,
                    read as u64,
                    "the header of the segment is invalid",
                    None,
                    found,
                );
            }
            self.offset = SEGMENT_HEADER_BYTES as u64;
        }
        let mut scanner = Scanner::new(&*file, salt(store, number), length);
        while progress.bytes < budget {
            let offset = self.offset;
            let (bytes, before) = match at("read", &name, scanner.look(offset))? {
                Found::Frame(header, crc) => {
                    if let Some((last, last_offset, last_crc)) = self.before
                        && last_crc != header.previous
                    {
                        let what = "the next frame has another predecessor";
                        self.report(last_offset, last.frame_bytes(), what, Some(last), found);
                    }
                    (header.frame_bytes(), Some((header, offset, crc)))
                }
                Found::BadBody(header, crc) => {
                    let bytes = header.frame_bytes();
                    let what = "the body of a frame fails its checksum";
                    self.report(offset, bytes, what, Some(header), found);
                    (bytes, Some((header, offset, crc)))
                }
                Found::Bad(bytes) => {
                    self.report(offset, bytes, "no valid frame", None, found);
                    (bytes, None)
                }
                Found::End => {
                    self.go_to(number + 1);
                    return Ok(());
                }
            };
            self.before = before;
            self.offset += bytes;
            progress.bytes += bytes;
        }
        Ok(())
    }

    fn report(
        &mut self,
        offset: u64,
        bytes: u64,
        what: &'static str,
        header: Option<Header>,
        found: &mut dyn FnMut(Damage),
    ) {
        let segment = self.segment;
        if self.known.insert((segment, offset)) {
            found(Damage {
                segment,
                offset,
                bytes,
                what,
                header,
            });
        }
    }
}

/// The numbers of the segments that exist, ascending.
pub(crate) fn segments(disk: &dyn Disk) -> Result<Vec<u32>, Error> {
    let names = at("list", "the directory", disk.list())?;
    let mut numbers: Vec<u32> = names.iter().filter_map(|it| segment_number(it)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}
