//! How far a reader of many streams is, in a few bytes: a frame in the one order of the log.
//!
//! A list of the reader's positions grows with its streams. Since all streams share one order, a single
//! [`Place`] says that everything up to a frame was read, whatever stream it belongs to. It holds the
//! frame's checksum, which covers the frame before it, so a log that went back since is recognized.
//!
//! A reader is not at one place in every stream, so it continues somewhat earlier in some: it receives up
//! to 128 frames of a stream again, and everything after the oldest element that it had not read. It loses
//! nothing. Streams that are far behind are therefore listed apart.
//!
//! Records that were put back into a gap, or moved to a newer segment, are out of order: a reader whose place
//! is before them receives them and what follows them, though it may have them already.

use crate::frame::{HEADER_BYTES, Header};
use crate::scrub::pass::segments;
use crate::segment::{at, salt, segment_name};
use crate::{Error, Store, Stream};
use std::fmt;
use std::str::FromStr;

/// A frame in the one order of the log. The text form is three hexadecimal numbers joined by dots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    segment: u32,
    offset: u32,
    checksum: u32,
}

impl Place {
    /// Before every frame.
    pub const START: Place = Place {
        segment: 0,
        offset: 0,
        checksum: 0,
    };
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:x}.{:x}.{:x}",
            self.segment, self.offset, self.checksum
        )
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Place, ()> {
        let mut numbers = text.split('.').map(|it| u32::from_str_radix(it, 16));
        let mut next = || numbers.next().and_then(Result::ok).ok_or(());
        let place = Place {
            segment: next()?,
            offset: next()?,
            checksum: next()?,
        };
        match numbers.next() {
            None => Ok(place),
            Some(_) => Err(()),
        }
    }
}

/// Where a reader with a [`Place`] continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// Segment and offset: frames after it are read.
    after: (u32, u32),
    /// The log up to the place is what it was. Otherwise the log went back, or the segment was removed,
    /// and the reader continues earlier.
    pub is_exact: bool,
}

impl Store {
    /// The newest place up to which a reader has everything of its streams, each given with the number
    /// that it reads next, except for at most `apart` of them that are further behind; these are
    /// returned by their index.
    ///
    /// # Errors
    /// The disk does not read.
    pub fn place(
        &self,
        reading: &[(&Stream, u64)],
        apart: usize,
    ) -> Result<(Place, Vec<usize>), Error> {
        // Frames become readable in the order of the log: one that is not readable below comes later.
        let read = reading.iter().map(|(stream, next)| {
            let view = stream.core.view();
            view.index.last_whole_before(*next)
        });
        let read: Vec<Option<(u32, u32)>> = read.collect();
        let unread = reading
            .iter()
            .enumerate()
            .filter_map(|(n, (stream, next))| {
                let place = stream.core.view().index.place_of(*next)?;
                Some((place, n))
            });
        let mut unread: Vec<((u32, u32), usize)> = unread.collect();
        unread.sort_unstable();
        let behind: Vec<usize> = unread.iter().take(apart).map(|(_, n)| *n).collect();
        let before = unread.get(apart).map(|(place, _)| *place);
        let known = read.into_iter().flatten();
        let newest = known.filter(|it| before.is_none_or(|before| *it < before));
        let Some((segment, offset)) = newest.max() else {
            return Ok((Place::START, behind));
        };
        let checksum = self.checksum_at(segment, offset)?;
        let place = checksum.map_or(Place::START, |checksum| Place {
            segment,
            offset,
            checksum,
        });
        Ok((place, behind))
    }

    /// Where a reader that has everything up to a place continues.
    ///
    /// # Errors
    /// The disk does not read.
    pub fn continue_after(&self, place: Place) -> Result<Continuation, Error> {
        if place == Place::START {
            return Ok(Continuation {
                after: (0, 0),
                is_exact: true,
            });
        }
        let (disk, _) = self.owner().shared.reader.disk();
        let is_there = segments(disk)?.contains(&place.segment);
        let is_exact =
            is_there && self.checksum_at(place.segment, place.offset)? == Some(place.checksum);
        let after = match is_exact {
            true => (place.segment, place.offset),
            // A segment is synced before the next begins: what was lost is not before its own.
            false => (place.segment.saturating_sub(1), 0),
        };
        Ok(Continuation { after, is_exact })
    }

    /// The checksum of the frame at an offset.
    fn checksum_at(&self, segment: u32, offset: u32) -> Result<Option<u32>, Error> {
        let (disk, store) = self.owner().shared.reader.disk();
        let name = segment_name(segment);
        let file = match disk.open(&name) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => at("open", &name, opened)?,
        };
        let mut bytes = [0; HEADER_BYTES];
        let read = at("read", &name, file.read_at(u64::from(offset), &mut bytes))?;
        let header = Header::decode(&bytes[..read], salt(store, segment), offset);
        Ok(header.map(|(_, checksum)| checksum))
    }
}

impl Stream {
    /// The number with which a reader continues this stream; records before it were read, or are not kept.
    pub fn continue_from(&self, continuation: Continuation) -> u64 {
        self.core.view().index.first_after(continuation.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Level, MemoryDisk, Options};

    #[test]
    fn a_place_comes_back_and_others_are_refused() {
        let place = Place {
            segment: 17,
            offset: u32::MAX,
            checksum: 0,
        };
        assert_eq!(place.to_string().parse(), Ok(place));
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "1.2.g",
            "1.2.100000000",
            "-1.2.3",
            "1..3",
        ] {
            assert_eq!(text.parse::<Place>(), Err(()), "{text}");
        }
    }

    /// A reader that has read each stream up to some number continues without a loss, wherever it was.
    #[test]
    fn nothing_is_lost_from_any_place() {
        let options = Options {
            segment_bytes: 8 * 1024,
            reserve_bytes: 0,
            ..Options::default()
        };
        let disk = MemoryDisk::new();
        let (store, _) = Store::open(Box::new(disk.clone()), options, 1).unwrap();
        let names: Vec<String> = (0..5).map(|n| format!("s{n}")).collect();
        let define = |name: &String| store.stream(name, Level::Power, b"").unwrap();
        let streams: Vec<Stream> = names.iter().map(define).collect();
        let mut state = 7u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..600 {
            let batch = (0..1 + random(3)).map(|n| (n as i64, vec![1; 20]));
            let stream = &streams[random(5) as usize];
            stream
                .append(batch.collect::<Vec<_>>())
                .unwrap()
                .wait()
                .unwrap();
        }
        let mut again = 0;
        for round in 0..500 {
            // Mostly near the end, as a live reader is.
            let reach = if round % 2 == 0 { 10 } else { 10_000 };
            let next = |stream: &Stream, random: &mut dyn FnMut(u64) -> u64| {
                stream.last() + 1 - random((stream.last() + 1).min(reach))
            };
            let nexts: Vec<u64> = streams.iter().map(|it| next(it, &mut random)).collect();
            let reading: Vec<_> = streams.iter().zip(nexts.iter().copied()).collect();
            let apart = random(3) as usize;
            let (place, behind) = store.place(&reading, apart).unwrap();
            assert!(behind.len() <= apart);
            let parsed: Place = place.to_string().parse().unwrap();
            let continuation = store.continue_after(parsed).unwrap();
            assert!(continuation.is_exact);
            for (n, (stream, next)) in reading.iter().enumerate() {
                if !behind.contains(&n) {
                    let from = stream.continue_from(continuation);
                    assert!(from <= *next, "{from} {next}");
                    again += next - from;
                }
            }
        }
        assert!(again > 0);
        // With everything read, nothing comes twice.
        let reading: Vec<_> = streams.iter().map(|it| (it, it.last() + 1)).collect();
        let (place, behind) = store.place(&reading, 0).unwrap();
        assert!(behind.is_empty());
        let continuation = store.continue_after(place).unwrap();
        for (stream, next) in &reading {
            assert_eq!(stream.continue_from(continuation), *next);
        }
        // A log that went back is recognized, and the reader continues earlier.
        let other = Place {
            checksum: place.checksum ^ 1,
            ..place
        };
        let continuation = store.continue_after(other).unwrap();
        assert!(!continuation.is_exact);
        assert!(
            streams
                .iter()
                .any(|it| it.continue_from(continuation) <= it.last())
        );
        let gone = Place {
            segment: u32::MAX,
            ..place
        };
        assert!(!store.continue_after(gone).unwrap().is_exact);
    }
}
