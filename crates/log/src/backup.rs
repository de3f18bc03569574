//! Backing up a log while it is written, and repairing one that is not in use.
//!
//! A backup is the log as it was at one moment: old segments never change, and the valid part of the
//! segment being written is copied last. A backup has no marker, so opening it gives its streams new
//! epochs, since the original may have continued.
//!
//! A repair deletes nothing useful: damaged bytes are copied to another disk, and their records are
//! given up, so readers do not wait for them. They can still be restored.

use crate::segment::{
    Found, SEGMENT_HEADER_BYTES, Scanner, SegmentHeader, at, salt, segment_name, segment_number,
};
use crate::snapshot::snapshot_number;
use crate::{Commit, Disk, Error, Options, Recovery, Report, Store, check};
use std::collections::BTreeSet;
use std::io;

/// Attempts to copy while segments are removed at the same time.
const PASSES: usize = 16;
/// Bytes copied at a time.
const COPY_BYTES: usize = 256 * 1024;

/// A copy of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The copied files and their lengths.
    pub files: Vec<(String, u64)>,
    /// The contents of the copy, as read back from it. It may list damage that the original has.
    pub report: Report,
}

/// Copies a log to an empty disk; the original may be written meanwhile, by this or another process.
/// `progress` receives the bytes copied and their total.
///
/// # Errors
/// The disks; [`Error::Io`] also when segments were removed faster than they could be copied.
pub fn back_up(
    from: &dyn Disk,
    to: &dyn Disk,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Backup, Error> {
    let mut copied = BTreeSet::new();
    for _ in 0..PASSES {
        let mut numbers = segments(from)?;
        for gone in copied.difference(&numbers).copied().collect::<Vec<_>>() {
            let name = segment_name(gone);
            at("remove", &name, to.remove(&name))?;
            copied.remove(&gone);
        }
        let Some(last) = numbers.pop_last() else {
            break;
        };
        let left = numbers.difference(&copied).copied().collect::<Vec<_>>();
        let (mut done, mut whole) = (0, true);
        for (n, &number) in left.iter().enumerate() {
            match copy(from, to, number, u64::MAX) {
                Ok(bytes) => {
                    copied.insert(number);
                    done += bytes;
                    // As if the rest had the same length.
                    progress(done, done / (n as u64 + 1) * (left.len() as u64 + 1));
                }
                Err(_) if !segments(from)?.contains(&number) => whole = false,
                Err(error) => return at("copy", &segment_name(number), Err(error)),
            }
        }
        if whole {
            // Nothing is copied of a segment that is just being created: everything is in earlier
            // ones.
            let end = valid_end(from, last);
            let bytes = end.and_then(|end| match end {
                0 => Ok(0),
                end => at("copy", &segment_name(last), copy(from, to, last, end)),
            });
            match bytes {
                Ok(bytes) => {
                    progress(done + bytes, done + bytes);
                    copied.extend((bytes > 0).then_some(last));
                }
                Err(_) if !segments(from)?.contains(&last) => continue,
                Err(error) => return Err(error),
            }
            return finish(to, &copied);
        }
    }
    if copied.is_empty() {
        return finish(to, &copied);
    }
    Err(Error::Io {
        what: "copy the log".to_owned(),
        reason: "the oldest segments are removed faster than they can be copied".to_owned(),
    })
}

fn finish(to: &dyn Disk, copied: &BTreeSet<u32>) -> Result<Backup, Error> {
    at("sync", "the directory", to.sync_directory())?;
    let mut files = Vec::new();
    for &number in copied {
        let name = segment_name(number);
        let length = at("read", &name, to.open(&name).and_then(|file| file.len()))?;
        files.push((name, length));
    }
    let report = check(to)?;
    Ok(Backup { files, report })
}

fn segments(disk: &dyn Disk) -> Result<BTreeSet<u32>, Error> {
    let names = at("list", "the directory", disk.list())?;
    Ok(names.iter().filter_map(|it| segment_number(it)).collect())
}

/// The end of the valid part of the segment being written; 0 if it is just being created.
fn valid_end(disk: &dyn Disk, number: u32) -> Result<u64, Error> {
    let name = segment_name(number);
    let file = at("open", &name, disk.open(&name))?;
    let length = at("read", &name, file.len())?;
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    let read = at("read", &name, file.read_at(0, &mut bytes))?;
    let Some(header) = SegmentHeader::decode(&bytes[..read], number)? else {
        return Ok(0);
    };
    let mut scanner = Scanner::new(&*file, salt(header.store, number), length);
    let mut offset = SEGMENT_HEADER_BYTES as u64;
    let mut end = offset;
    loop {
        match at("read", &name, scanner.look(offset))? {
            Found::Frame(header, _) => {
                offset += header.frame_bytes();
                end = offset;
            }
            // Damage in the middle is copied with the bytes after it.
            Found::BadBody(header, _) => offset += header.frame_bytes(),
            Found::Bad(bytes) => offset += bytes,
            Found::End => return Ok(end),
        }
    }
}

/// Copies a segment up to `end`, synced; returns its length.
fn copy(from: &dyn Disk, to: &dyn Disk, number: u32, end: u64) -> io::Result<u64> {
    let name = segment_name(number);
    let source = from.open(&name)?;
    let mut target = to.create(&name)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = 0;
    while offset < end {
        let want = usize::try_from(end - offset)
            .unwrap_or(COPY_BYTES)
            .min(COPY_BYTES);
        let read = source.read_at(offset, &mut buffer[..want])?;
        if read == 0 {
            break;
        }
        target.append(&buffer[..read])?;
        offset += read as u64;
    }
    target.sync()?;
    Ok(offset)
}

/// The outcome of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The findings before the repair.
    pub before: Report,
    /// The changes made by opening: an incomplete end that was cut, new epochs.
    pub recovery: Recovery,
    /// Files with damaged bytes, on the disk that was given for them.
    pub aside: Vec<String>,
    /// Records that were given up: stream, first and last number.
    pub given_up: Vec<(String, u64, u64)>,
}

/// Creates the disk for damaged bytes; called only if there are some.
pub type Aside<'a> = dyn FnMut() -> Result<Box<dyn Disk>, Error> + 'a;

/// Repairs a log that is not open: saves damaged bytes to another disk, cuts an incomplete end as
/// opening does, gives up missing records, and rewrites the segments' snapshots.
///
/// # Errors
/// The disks; errors of [`Store::open`].
pub fn repair(disk: Box<dyn Disk>, aside: &mut Aside<'_>, seed: u64) -> Result<Repaired, Error> {
    let before = check(&*disk)?;
    let torn = before.torn_tail.iter();
    let torn = torn.map(|tail| (&tail.segment, tail.offset, tail.bytes));
    let rotten = before.corrupt.iter();
    let rotten = rotten.map(|range| (&range.segment, range.offset, range.bytes));
    let damaged: Vec<_> = rotten.chain(torn).filter(|place| place.2 > 0).collect();
    let mut names = Vec::new();
    if !damaged.is_empty() {
        let aside = aside()?;
        for (segment, offset, bytes) in damaged {
            let name = format!("{segment}.{offset}");
            let file = at("open", segment, disk.open(segment))?;
            let mut kept = vec![0; usize::try_from(bytes).unwrap_or(0)];
            let read = at("read", segment, file.read_at(offset, &mut kept))?;
            let made = aside.create(&name).and_then(|mut file| {
                file.append(&kept[..read])?;
                file.sync()
            });
            at("write", &name, made)?;
            names.push(name);
        }
        at("sync", "the directory", aside.sync_directory())?;
    }
    let newest = segments(&*disk)?.last().map(|number| segment_name(*number));
    let in_newest = before
        .corrupt
        .iter()
        .any(|range| Some(&range.segment) == newest.as_ref());
    for name in at("list", "the directory", disk.list())? {
        if snapshot_number(&name).is_some() {
            at("remove", &name, disk.remove(&name))?;
        }
    }
    let options = Options {
        commit: Commit::Caller,
        ..Options::default()
    };
    let (store, recovery) = Store::open(disk, options, seed)?;
    if in_newest {
        // Damage in the newest segment may hide records that nothing mentions, so a check reports it until another
        // segment follows. Opening gave the streams that it concerns new epochs.
        store.owner().start_segment();
    }
    let mut given_up = Vec::new();
    for info in store.streams() {
        let Some(stream) = store.existing(&info.name) else {
            continue;
        };
        for (from, last) in stream.gaps() {
            stream.give_up(from, last)?.wait()?;
            given_up.push((info.name.clone(), from, last));
        }
    }
    store.commit()?;
    store.close()?;
    Ok(Repaired {
        before,
        recovery,
        aside: names,
        given_up,
    })
}
