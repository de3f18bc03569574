//! Opens a log: scans it, makes the end safe for appending, decides about new epochs, marks the
//! opening.
//!
//! After an unclean end the valid part of the last segment is rewritten: the content of a file
//! whose sync failed may never reach the disk, and the failure is forgotten once the process has
//! ended. The copy also drops a torn tail.

use crate::commit::{Defined, Fault, Track, Writer};
use crate::draft::Draft;
use crate::epoch::EpochSource;
use crate::frame::{Definition, Kind};
use crate::recover::{Read, Scanned, scan};
use crate::segment::{
    FORMAT_VERSION, Marker, SEGMENT_HEADER_BYTES, SegmentHeader, UNFINISHED, at, mix, segment_name,
    segment_number,
};
use crate::snapshot::{Snapshot, snapshot_name, snapshot_number};
use crate::{
    CorruptRange, Disk, EpochReason, Error, File, Level, MAX_EPOCHS, NewEpoch, Options, Recovery,
};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Bytes copied at a time when a segment is rewritten.
const COPY_BYTES: usize = 256 * 1024;

/// A log that was opened, before its commit thread runs.
pub(crate) struct Opened {
    pub(crate) writer: Writer,
    pub(crate) scanned: Scanned,
    pub(crate) recovery: Recovery,
    /// The source of new epochs.
    pub(crate) epochs: EpochSource,
}

/// Opens or creates the log of a directory.
pub(crate) fn open(disk: &Arc<dyn Disk>, options: &Options, seed: u64) -> Result<Opened, Error> {
    clean_up(&**disk)?;
    let mut scanned = scan(&**disk, Read::Unknown, options.cursor_of)?;
    remove_snapshots(&**disk, &scanned.corrupt)?;
    let mut recovery = Recovery {
        created: scanned.segments.is_empty(),
        clean: scanned.clean,
        copied: scanned.copied,
        segments: scanned.segments.len(),
        indexed: scanned.indexed,
        records: scanned.records,
        streams: scanned.streams.values().map(Scanned::info).collect(),
        torn_tail: scanned.torn.clone(),
        corrupt: scanned.corrupt.clone(),
        ..Recovery::default()
    };
    let mut epochs = EpochSource::new(seed);
    let marker_needed = recovery.created || scanned.copied;
    renew_epochs(&mut scanned, &mut recovery, &mut epochs);
    let store = *scanned
        .store
        .get_or_insert_with(|| mix(seed.rotate_left(32)));
    let mut writer = end_of_log(disk, options, store, &mut scanned, &mut recovery)?;
    for (&id, stream) in &scanned.streams {
        let next = stream.index.next();
        let place = stream
            .index
            .last_place()
            .filter(|(segment, _)| *segment == writer.segment);
        writer.tracks.insert(
            id,
            Track {
                next,
                back: place.map_or(0, |(_, offset)| offset),
                bookmark: stream.bookmark,
            },
        );
        let draft = Draft::definition(id, &stream.definition);
        let defined = Defined {
            epoch: draft.epoch,
            body: draft.body.bytes.to_vec(),
        };
        writer.definitions.insert(id, defined);
        if stream.trimmed > 0 {
            writer.marks.insert(id, (draft.epoch, stream.trimmed));
        }
        let mut segments: Vec<u32> = stream.index.segments().collect();
        segments.dedup();
        segments
            .into_iter()
            .for_each(|segment| writer.enter(segment));
    }
    for (&id, removal) in &scanned.removals {
        let draft = Draft::definition(id, &Definition::removal(removal.epoch));
        let defined = Defined {
            epoch: draft.epoch,
            body: draft.body.bytes.to_vec(),
        };
        writer.definitions.insert(id, defined);
    }
    writer.removals = scanned.removals.clone();
    keep_damaged(&mut writer, &scanned.corrupt);
    writer.reserve();
    mark_open(&mut writer, &scanned, &recovery)?;
    if marker_needed {
        Marker::write(&**disk, store)?;
    }
    Ok(Opened {
        writer,
        scanned,
        recovery,
        epochs,
    })
}

/// Keeps each segment that lacks records until they are trimmed, restored or given up, and the
/// segment before it too: with no segment before it, the damage would be at the start of the log,
/// where the next opening assumes that the size limit removed the missing records.
fn keep_damaged(writer: &mut Writer, corrupt: &[CorruptRange]) {
    for range in corrupt.iter().filter(|range| !range.gaps.is_empty()) {
        let Some(number) = segment_number(&range.segment) else {
            continue;
        };
        let mut older = writer.older.iter().rev().map(|(older, _)| *older);
        let before = older.find(|older| *older < number);
        for segment in before
            .into_iter()
            .chain((!range.absent()).then_some(number))
        {
            writer.enter(segment);
            writer.damaged.push((segment, range.gaps.clone()));
        }
    }
}

/// Removes unfinished files, and snapshots whose segments do not exist.
fn clean_up(disk: &dyn Disk) -> Result<(), Error> {
    let names = at("list", "the directory", disk.list())?;
    let segments: BTreeSet<u32> = names.iter().filter_map(|it| segment_number(it)).collect();
    for name in &names {
        let orphan = snapshot_number(name).is_some_and(|number| !segments.contains(&number));
        if name.ends_with(UNFINISHED) || orphan {
            at("remove", name, disk.remove(name))?;
        }
    }
    Ok(())
}

/// Removes the snapshots of damaged segments, durably before anything is written: otherwise the
/// next opening would find records in them that this one does not, and whose numbers are assigned
/// again in another epoch.
fn remove_snapshots(disk: &dyn Disk, corrupt: &[CorruptRange]) -> Result<(), Error> {
    let names: BTreeSet<String> = at("list", "the directory", disk.list())?
        .into_iter()
        .collect();
    let damaged = corrupt.iter().filter_map(|it| segment_number(&it.segment));
    let damaged: BTreeSet<String> = damaged.map(snapshot_name).collect();
    let mut stale = damaged.intersection(&names).peekable();
    if stale.peek().is_none() {
        return Ok(());
    }
    for name in stale {
        at("remove", name, disk.remove(name))?;
    }
    at("sync", "the directory", disk.sync_directory())
}

/// Gives a new epoch to each stream whose highest number may be unknown.
fn renew_epochs(scanned: &mut Scanned, recovery: &mut Recovery, source: &mut EpochSource) {
    let reasons: Vec<(u32, EpochReason)> = scanned
        .streams
        .iter()
        .filter_map(|(&id, stream)| {
            let below = stream.definition.level < Level::Power;
            let reason = match () {
                () if scanned.copied => EpochReason::Copied,
                () if scanned.torn.is_some() => EpochReason::TornTail,
                () if scanned.end_unknown(stream) => EpochReason::Corrupt,
                () if !scanned.clean && below => EpochReason::UncleanEnd,
                () => return None,
            };
            Some((id, reason))
        })
        .collect();
    for (id, reason) in reasons {
        let Some(stream) = scanned.streams.get_mut(&id) else {
            continue;
        };
        let epochs = &mut stream.definition.epochs;
        let epoch = source.draw(epochs);
        let first = stream.index.next();
        epochs.push((epoch, first));
        if epochs.len() > MAX_EPOCHS {
            epochs.remove(0);
        }
        let stream = stream.definition.name.clone();
        recovery.new_epochs.push(NewEpoch {
            stream,
            epoch,
            first,
            reason,
        });
    }
}

fn fault(fault: Fault, options: &Options) -> Error {
    match fault {
        Fault::Full(free) => Error::Full {
            free,
            reserve: options.reserve_bytes,
        },
        Fault::Failed(reason) => Error::Failed { reason },
    }
}

/// The writer at the end of the log, on a file that can be trusted.
fn end_of_log(
    disk: &Arc<dyn Disk>,
    options: &Options,
    store: u64,
    scanned: &mut Scanned,
    recovery: &mut Recovery,
) -> Result<Writer, Error> {
    let mut number = 1;
    // A last segment in which nothing is valid was just being created.
    while let Some(&(last, 0)) = scanned.segments.last() {
        let name = segment_name(last);
        at("remove", &name, disk.remove(&name))?;
        scanned.segments.pop();
        // Its number is reused for a segment that the next opening reads.
        scanned.last_snapshot = None;
        number = last;
    }
    let (segment, file, offset, must_start_segment) = match scanned.segments.pop() {
        None => {
            let header = SegmentHeader {
                version: FORMAT_VERSION,
                number,
                store,
                previous: 0,
                previous_bytes: 0,
            };
            let made = Writer::make_segment(&**disk, header, |_| false);
            let snapshot = Snapshot::new(header, options.cursor_of.is_some());
            scanned.last_snapshot = Some(snapshot);
            let file = made.map_err(|error| fault(error, options))?;
            (number, file, SEGMENT_HEADER_BYTES as u64, false)
        }
        Some((last, end)) if scanned.clean && scanned.torn.is_none() => {
            (last, Writer::open_file(&**disk, last)?, end, false)
        }
        Some((last, end)) => {
            recovery.rewritten = rewrite(&**disk, last, end)?;
            let mut file = Writer::open_file(&**disk, last)?;
            if !recovery.rewritten {
                let name = segment_name(last);
                if at("read", &name, file.len())? > end {
                    at("cut", &name, file.truncate(end))?;
                }
                // After a failed sync the system may show content that no later sync saves.
                at("write again", &name, write_again(&mut *file, end))?;
                at("sync", &name, file.sync())?;
            }
            (last, file, end, !recovery.rewritten)
        }
    };
    let name = segment_name(segment);
    let damage = scanned.corrupt.iter().filter(|it| it.segment == name);
    // The header of a frame that was cut off would claim the bytes that follow.
    let damaged_end = damage.map(|it| it.offset + it.bytes).max() >= Some(offset);
    // A program for the old version could not read the frames written from now on.
    let older = scanned
        .versions
        .get(&segment)
        .is_some_and(|it| *it < FORMAT_VERSION);
    Ok(Writer {
        disk: Arc::clone(disk),
        options: options.clone(),
        store,
        segment,
        file,
        offset,
        reserved: 0,
        base: SEGMENT_HEADER_BYTES as u64,
        synced: offset,
        previous: scanned.last_crc,
        must_start_segment: must_start_segment || older || damaged_end,
        tracks: Default::default(),
        definitions: Default::default(),
        marks: Default::default(),
        live: Default::default(),
        look_for_dead: true,
        older: VecDeque::from(std::mem::take(&mut scanned.segments)),
        removals: Default::default(),
        damaged: Vec::new(),
        buffer: Vec::new(),
        buffered_frames: Vec::new(),
        snapshot: scanned.last_snapshot.take(),
        snapshots: std::mem::take(&mut scanned.snapshots),
        done: Default::default(),
    })
}

/// Copies the valid part of a segment and replaces the old file with the copy; false if there is no
/// room for that.
fn rewrite(disk: &dyn Disk, number: u32, end: u64) -> Result<bool, Error> {
    let name = segment_name(number);
    let new = format!("{name}{UNFINISHED}");
    match copy(disk, &name, &new, end) {
        Ok(()) => {}
        Err(error) if crate::commit::no_room(&error) => {
            at("remove", &new, disk.remove(&new))?;
            return Ok(false);
        }
        Err(error) => return at("rewrite", &name, Err(error)),
    }
    at("rename", &new, disk.rename(&new, &name))?;
    at("sync", "the directory", disk.sync_directory())?;
    Ok(true)
}

/// Overwrites the valid part of a file with itself if there is no room for a copy.
fn write_again(file: &mut dyn File, end: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = 0;
    while offset < end {
        let want = usize::try_from(end - offset).unwrap_or(COPY_BYTES);
        let want = want.min(COPY_BYTES);
        let read = file.read_at(offset, &mut buffer[..want])?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        file.write_again(offset, &buffer[..read])?;
        offset += read as u64;
    }
    Ok(())
}

fn copy(disk: &dyn Disk, from: &str, to: &str, end: u64) -> std::io::Result<()> {
    let source = disk.open(from)?;
    let mut target = disk.create(to)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut offset = 0;
    while offset < end {
        let want = usize::try_from(end - offset)
            .unwrap_or(COPY_BYTES)
            .min(COPY_BYTES);
        let read = source.read_at(offset, &mut buffer[..want])?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        target.append(&buffer[..read])?;
        offset += read as u64;
    }
    target.sync()
}

/// Writes the mark of opening and the definitions of streams with a new epoch, synced.
fn mark_open(writer: &mut Writer, scanned: &Scanned, recovery: &Recovery) -> Result<(), Error> {
    /// Drafts that are laid out at once.
    const DRAFTS: usize = 4096;
    let new: BTreeSet<(u64, u64)> = recovery
        .new_epochs
        .iter()
        .map(|new| (new.epoch, new.first))
        .collect();
    let is_new =
        |definition: &Definition| definition.epochs.last().is_some_and(|it| new.contains(it));
    let definitions = scanned.streams.iter();
    let definitions = definitions.filter(|(_, stream)| is_new(&stream.definition));
    let definitions = definitions.map(|(&id, stream)| Draft::definition(id, &stream.definition));
    let mut drafts = std::iter::once(Draft::mark(Kind::Open)).chain(definitions);
    loop {
        let piece: Vec<Draft> = drafts.by_ref().take(DRAFTS).collect();
        if piece.is_empty() {
            return Ok(());
        }
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let placed = writer.commit(rest.iter(), false);
            let placed = placed.map_err(|error| fault(error, &writer.options))?;
            rest = &rest[placed.len()..];
        }
    }
}
