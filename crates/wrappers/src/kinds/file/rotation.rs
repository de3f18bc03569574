//! Which file of a rotated series is which.
//!
//! A writer of logs renames its file and begins another one, or copies it and empties it. A position is
//! therefore not an offset alone: it names the file by its device and number in the file system, and by
//! checksums of its first bytes and of those before the offset, so that a copy is recognized and a file
//! that was rewritten in place is not mistaken for the one before.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::{Mark, WrapperError};

/// Bytes of each checksum; reason: a header and some lines.
const SAMPLE_BYTES: u64 = 512;
/// Most files of a series, the newest; reason: they are looked at again after each of them.
const SERIES_MAX: usize = 10_000;
/// Endings of files that are not read.
const PACKED: [&str; 7] = [".gz", ".bz2", ".xz", ".zst", ".zip", ".tmp", ".swp"];

/// A number after a dot below this counts rotations; one from here on is a date.
const COUNT_MAX: i64 = 100_000;

/// The version of a mark.
const FORMAT: u8 = 2;
/// The version without the ends of earlier records.
const WITHOUT_ENDS: u8 = 1;
/// Ends of records that a position has; reason: a writer writes few between the copying and the emptying of a file.
const ENDS: usize = 8;

/// A position in a file of the series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Place {
    /// The device and the number of the file.
    device: u64,
    inode: u64,
    /// The first byte that was not read.
    pub(super) offset: u64,
    /// Checksum of the first bytes, at most to the offset.
    head: u32,
    /// Checksum of the bytes before the offset.
    tail: u32,
    /// When the file was last written, nanoseconds since 1970.
    modified: i64,
    /// The ends of the last records, the newest last; those that are not known are zero.
    ends: [RecordEnd; ENDS],
}

/// The end of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct RecordEnd {
    offset: u64,
    /// Checksum of the bytes before it.
    tail: u32,
}

impl Place {
    /// The mark that stands for it.
    pub(super) fn mark(&self) -> Mark {
        let mut bytes = vec![FORMAT];
        // Plain numbers always encode, and are far shorter than the limit.
        bytes.extend(postcard::to_allocvec(self).unwrap_or_default());
        Mark::new(bytes).unwrap_or_default()
    }

    /// The position that a mark stands for.
    ///
    /// # Errors
    /// A newer program made it.
    pub(super) fn read(mark: &Mark) -> Result<Self, WrapperError> {
        let place = match mark.bytes().split_first() {
            Some((&FORMAT, bytes)) => postcard::from_bytes(bytes).ok(),
            Some((&WITHOUT_ENDS, bytes)) => {
                let bytes = [bytes, &[0; 2 * ENDS]].concat();
                postcard::from_bytes(&bytes).ok()
            }
            _ => None,
        };
        place.ok_or_else(|| WrapperError::unreadable_mark(mark, FORMAT, "a file"))
    }

    fn is_in(&self, metadata: &Metadata) -> bool {
        (self.device, self.inode) == (metadata.dev(), metadata.ino())
    }

    /// Whether the bytes of a file before the offset are those that were read.
    pub(super) fn fits(&self, file: &File) -> io::Result<bool> {
        if file.metadata()?.len() < self.offset {
            return Ok(false);
        }
        let head = checksum(file, 0, self.offset.min(SAMPLE_BYTES))?;
        let tail = checksum(file, self.offset.saturating_sub(SAMPLE_BYTES), self.offset)?;
        Ok((head, tail) == (self.head, self.tail))
    }

    /// Whether a file was copied from the one that was read, before its last records were written: it has records
    /// that were read at their places, and ends before the offset. Short files are too alike to tell.
    fn was_copied_before(&self, file: &File) -> io::Result<bool> {
        let length = file.metadata()?.len();
        let mut ends = self.ends.iter().rev();
        let Some(end) = ends.find(|end| (SAMPLE_BYTES..=length).contains(&end.offset)) else {
            return Ok(false);
        };
        if length >= self.offset || checksum(file, 0, SAMPLE_BYTES)? != self.head {
            return Ok(false);
        }
        Ok(checksum(file, end.offset - SAMPLE_BYTES, end.offset)? == end.tail)
    }
}

/// The position in a file that is being read, kept without reading anything again: the file may be
/// emptied at any time.
#[derive(Debug)]
pub(super) struct Track {
    device: u64,
    inode: u64,
    modified: i64,
    pub(super) offset: u64,
    /// The first bytes, and the last ones before the offset.
    head: Vec<u8>,
    recent: Vec<u8>,
    ends: [RecordEnd; ENDS],
}

impl Track {
    /// Goes on at a position.
    pub(super) fn resume(file: &File, place: &Place) -> io::Result<Self> {
        let mut track = Self::at(file, place.offset)?;
        track.ends = place.ends;
        Ok(track)
    }

    /// Starts at the offset of a file.
    pub(super) fn at(file: &File, offset: u64) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            modified: modified(&metadata),
            offset,
            head: bytes(file, 0, offset.min(SAMPLE_BYTES))?,
            recent: bytes(file, offset.saturating_sub(SAMPLE_BYTES), offset)?,
            ends: Default::default(),
        })
    }

    /// Notes when the file was last written.
    pub(super) fn look(&mut self, file: &File) -> io::Result<Metadata> {
        let metadata = file.metadata()?;
        self.modified = modified(&metadata);
        Ok(metadata)
    }

    /// Moves over bytes that were read.
    pub(super) fn pass(&mut self, bytes: &[u8]) {
        const SAMPLE: usize = SAMPLE_BYTES as usize;
        let room = SAMPLE.saturating_sub(self.head.len());
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.recent
            .extend_from_slice(&bytes[bytes.len().saturating_sub(SAMPLE)..]);
        // Moved together rarely, not for each line.
        if self.recent.len() > 8 * SAMPLE {
            self.recent.drain(..self.recent.len() - SAMPLE);
        }
        self.offset += bytes.len() as u64;
    }

    /// The position, at which a record ends.
    pub(super) fn end_record(&mut self) -> Place {
        let tail = self.tail();
        self.ends.rotate_left(1);
        self.ends[ENDS - 1] = RecordEnd {
            offset: self.offset,
            tail,
        };
        self.place()
    }

    /// Checksum of the bytes before the offset.
    fn tail(&self) -> u32 {
        let recent = self.recent.len().saturating_sub(SAMPLE_BYTES as usize);
        crc32fast::hash(&self.recent[recent..])
    }

    /// The position.
    pub(super) fn place(&self) -> Place {
        Place {
            device: self.device,
            inode: self.inode,
            offset: self.offset,
            head: crc32fast::hash(&self.head),
            tail: self.tail(),
            modified: self.modified,
            ends: self.ends,
        }
    }
}

/// The checksum of the bytes from `from` to before `to`.
fn checksum(file: &File, from: u64, to: u64) -> io::Result<u32> {
    Ok(crc32fast::hash(&bytes(file, from, to)?))
}

fn bytes(file: &File, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(0)];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}

fn modified(metadata: &Metadata) -> i64 {
    let nanoseconds = metadata.mtime_nsec();
    metadata
        .mtime()
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

/// A file of the series.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    path: PathBuf,
    device: u64,
    inode: u64,
    born: Option<SystemTime>,
    /// When it was last written, nanoseconds since 1970.
    modified: i64,
    /// When it was made, or written if that was earlier: it was restored with its times.
    begun: i64,
    is_empty: bool,
    /// See [`rank`].
    rank: i64,
}

impl Member {
    fn identity(&self) -> Identity {
        (self.device, self.inode, self.born)
    }
}

/// Where to go on.
#[derive(Debug)]
pub(super) enum Found {
    /// In this file, which was read before.
    Same(File),
    /// At the beginning of this file; the one that was read before is gone or was emptied.
    Other(File),
    /// At the beginning of the file after this copy of the one that was read; its last records are not in the copy.
    After(File),
    /// There is no file yet.
    None,
}

/// The file in which a position after a record is; otherwise the first one written after it. The number of a
/// file alone decides nothing: that of a deleted file belongs to the next one that is made.
pub(super) fn find(path: &Path, place: &Place) -> io::Result<Found> {
    let members = series(path)?;
    let mut copy = None;
    for member in &members {
        let Ok(file) = File::open(&member.path) else {
            continue;
        };
        if !place.fits(&file)? {
            continue;
        }
        if place.is_in(&file.metadata()?) {
            return Ok(Found::Same(file));
        }
        copy.get_or_insert(file);
    }
    if let Some(file) = copy {
        return Ok(Found::Same(file));
    }
    // What was written after a copy was made and before its original was emptied is in no file.
    for member in members.iter().filter(|member| member.path != path) {
        if let Ok(file) = File::open(&member.path)
            && place.was_copied_before(&file)?
        {
            return Ok(Found::After(file));
        }
    }
    let later = members
        .iter()
        .find(|member| member.modified > place.modified);
    match later.or(members.last()) {
        Some(member) => Ok(Found::Other(File::open(&member.path)?)),
        None => Ok(Found::None),
    }
}

/// The files that were begun after one that is open.
#[derive(Debug)]
pub(super) struct Later {
    pub(super) next: File,
    pub(super) count: usize,
    /// Whether nothing was written to any of them.
    pub(super) are_empty: bool,
}

/// The files that were begun after the one that is open; `None` if there is none.
pub(super) fn later(path: &Path, file: &File) -> io::Result<Option<Later>> {
    let metadata = file.metadata()?;
    let members = series(path)?;
    let own = |member: &Member| (member.device, member.inode) == (metadata.dev(), metadata.ino());
    let from = match members.iter().position(own) {
        Some(index) => index + 1,
        // It was deleted.
        None => {
            let since = modified(&metadata);
            let written_later = |member: &Member| member.modified >= since;
            let found = members.iter().position(written_later);
            found.unwrap_or(members.len().saturating_sub(1))
        }
    };
    let later = members.get(from..).unwrap_or_default();
    let Some(next) = later.first() else {
        return Ok(None);
    };
    Ok(Some(Later {
        next: File::open(&next.path)?,
        count: later.len(),
        are_empty: later.iter().all(|member| member.is_empty),
    }))
}

/// The file that was begun after the one that is open.
pub(super) fn after(path: &Path, file: &File) -> io::Result<Option<File>> {
    Ok(later(path, file)?.map(|later| later.next))
}

/// Whether a file was not written for so long.
pub(super) fn is_quiet(file: &File, time: Duration) -> io::Result<bool> {
    let elapsed = file.metadata()?.modified()?.elapsed();
    Ok(elapsed.is_ok_and(|elapsed| elapsed >= time))
}

/// The files that a series has now.
#[derive(Debug, Default)]
pub(super) struct Known(Vec<Identity>);

/// Device, number, and time of birth where the file system records it: numbers are used again.
type Identity = (u64, u64, Option<SystemTime>);

impl Known {
    /// The files of a series.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let members = series(path)?.into_iter();
        Ok(Self(members.map(|member| member.identity()).collect()))
    }

    /// The first file before the open one that was not there: the contents of the open one may have been
    /// copied to it.
    pub(super) fn new_before(&self, path: &Path, file: &File) -> io::Result<Option<File>> {
        let metadata = file.metadata()?;
        let own =
            |member: &Member| (member.device, member.inode) == (metadata.dev(), metadata.ino());
        for member in series(path)? {
            if own(&member) {
                break;
            }
            if !self.0.contains(&member.identity()) {
                return Ok(Some(File::open(&member.path)?));
            }
        }
        Ok(None)
    }
}

/// Whether the path names the open file.
pub(super) fn is_at(path: &Path, file: &File) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (open.dev(), open.ino())),
        // Between two renames there is none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether both are the same file.
pub(super) fn is_same(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// The first file of the series: with `oldest` the one that was written first, else the current one.
pub(super) fn first(path: &Path, oldest: bool) -> io::Result<Option<File>> {
    let members = series(path)?;
    let wanted = |member: &&Member| oldest || member.path == path;
    let first = members.iter().find(wanted);
    first.map(|member| File::open(&member.path)).transpose()
}

/// The file of the series that was written last, besides the current one.
pub(super) fn newest_rotated(path: &Path) -> io::Result<Option<File>> {
    let members = series(path)?;
    let rotated = members.iter().rfind(|member| member.path != path);
    rotated.map(|member| File::open(&member.path)).transpose()
}

/// The files of a series, oldest first: `NAME`, `NAME.1`, `NAME-20260101`, `STEM-20260101.EXTENSION`.
fn series(path: &Path) -> io::Result<Vec<Member>> {
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let entries = match fs::read_dir(directory.unwrap_or(Path::new("."))) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut members = Vec::new();
    for entry in entries {
        let entry = entry?;
        let found = entry.file_name().to_string_lossy().into_owned();
        let Some(rank) = rank(&name, &found) else {
            continue;
        };
        let member = path.with_file_name(&found);
        // It may have been renamed since.
        let Ok(metadata) = fs::metadata(&member) else {
            continue;
        };
        if !metadata.is_file() {
            continue;
        }
        let born = metadata.created().ok();
        members.push(Member {
            device: metadata.dev(),
            inode: metadata.ino(),
            born,
            modified: modified(&metadata),
            begun: begun(born, &metadata),
            is_empty: metadata.len() == 0,
            rank,
            path: member,
        });
        if members.len() >= 2 * SERIES_MAX {
            keep_newest(&mut members);
        }
    }
    keep_newest(&mut members);
    Ok(members)
}

/// Sorts files, the oldest first, and keeps as many as there may be.
///
/// The names say in which order files were begun, if either time confirms it. That of the last write does not if a
/// process goes on writing to a renamed file, that of birth not if files were copied as well as renamed. Some writers
/// count the other way: then the last write alone decides.
fn keep_newest(members: &mut Vec<Member>) {
    members.sort_by_key(|member| member.rank);
    let rotated = match &members[..] {
        [rotated @ .., last] if last.rank == i64::MAX => rotated,
        all => all,
    };
    let is_confirmed = rotated.is_sorted_by_key(|member| member.modified)
        || rotated.is_sorted_by_key(|member| member.begun);
    if !is_confirmed {
        let is_current = |member: &Member| member.rank == i64::MAX;
        members.sort_by_key(|member| (is_current(member), member.modified, member.rank));
    }
    members.drain(..members.len().saturating_sub(SERIES_MAX));
}

fn begun(born: Option<SystemTime>, metadata: &Metadata) -> i64 {
    let since = born.and_then(|born| born.duration_since(SystemTime::UNIX_EPOCH).ok());
    let born = since.and_then(|since| i64::try_from(since.as_nanos()).ok());
    born.unwrap_or(i64::MAX).min(modified(metadata))
}

/// Where a file of the series of `name` stands among the others by its name, the newest highest; `None` for
/// other files. The current file is the newest; `NAME.2` is older than `NAME.1`, and an earlier date older
/// than a later one.
fn rank(name: &str, found: &str) -> Option<i64> {
    if found == name {
        return Some(i64::MAX);
    }
    if PACKED.iter().any(|ending| found.ends_with(ending)) {
        return None;
    }
    let within = |text: &str| {
        let number = text.strip_prefix(['.', '-', '_'])?;
        let fits = |b: u8| b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.' | b'T');
        if !number.starts_with(|c: char| c.is_ascii_digit()) || !number.bytes().all(fits) {
            return None;
        }
        let digits = number.chars().filter(char::is_ascii_digit).take(18);
        let number = digits.collect::<String>().parse().unwrap_or(0);
        let is_count = text.starts_with('.') && number < COUNT_MAX;
        Some(if is_count { -number } else { number })
    };
    if let Some(rank) = found.strip_prefix(name).and_then(within) {
        return Some(rank);
    }
    let (stem, extension) = name.rsplit_once('.')?;
    let rest = found.strip_prefix(stem)?.strip_suffix(extension)?;
    within(rest.strip_suffix('.')?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_known_by_its_names() {
        for (found, expected) in [
            ("a.csv", Some(i64::MAX)),
            ("a.csv.1", Some(-1)),
            ("a.csv.12", Some(-12)),
            ("a.csv.20260101", Some(20_260_101)),
            ("a.csv-20260101", Some(20_260_101)),
            ("a-20260101.csv", Some(20_260_101)),
            ("a-2026-01-01T10.csv", Some(2_026_010_110)),
            ("a.csv.1.gz", None),
            ("a.csv.bak", None),
            ("ab.csv", None),
            ("a-b.csv", None),
            ("a.cs", None),
        ] {
            assert_eq!(rank("a.csv", found), expected, "{found}");
        }
    }

    #[test]
    fn a_position_is_found_in_the_renamed_file_in_a_copy_and_not_in_a_rewritten_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        fs::write(&path, "one\ntwo\n").unwrap();
        let mut track = Track::at(&File::open(&path).unwrap(), 0).unwrap();
        track.pass(b"one\n");
        let place = track.place();
        assert_eq!(
            place,
            Track::at(&File::open(&path).unwrap(), 4).unwrap().place()
        );
        assert_eq!(Place::read(&place.mark()).unwrap(), place);
        let is_same = |path: &Path| matches!(find(path, &place).unwrap(), Found::Same(_));
        assert!(is_same(&path));
        let rotated = directory.path().join("a.log.1");
        fs::rename(&path, &rotated).unwrap();
        fs::write(&path, "six\n").unwrap();
        assert!(is_same(&path));
        // A copy in another file, and the file itself rewritten.
        let copy = directory.path().join("a.log.2");
        fs::copy(&rotated, &copy).unwrap();
        fs::write(&rotated, "xxx\nyyy\n").unwrap();
        assert!(is_same(&path));
        fs::remove_file(&copy).unwrap();
        assert!(matches!(find(&path, &place).unwrap(), Found::Other(_)));
        fs::remove_file(&path).unwrap();
        fs::remove_file(&rotated).unwrap();
        assert!(matches!(find(&path, &place).unwrap(), Found::None));
    }

    #[test]
    fn a_rotated_file_is_not_skipped_for_the_next_one_that_got_the_number_of_a_deleted_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        fs::write(&path, "one\n").unwrap();
        let mut track = Track::at(&File::open(&path).unwrap(), 0).unwrap();
        track.pass(b"one\n");
        let mut place = track.place();
        fs::remove_file(&path).unwrap();
        let rotated = directory.path().join("a.log.1");
        fs::write(&rotated, "two\n").unwrap();
        fs::write(&path, "six\n").unwrap();
        place.inode = fs::metadata(&path).unwrap().ino();
        // Nothing was written within the clock tick of the position.
        place.modified -= 1_000_000_000;
        let Found::Other(next) = find(&path, &place).unwrap() else {
            panic!("another file follows");
        };
        assert!(is_same(&next, &File::open(&rotated).unwrap()).unwrap());
    }

    #[test]
    fn a_series_is_in_the_order_in_which_its_files_were_begun() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        let probe = directory.path().join("probe");
        let now = || {
            fs::remove_file(&probe).ok();
            File::create(&probe).unwrap().metadata().unwrap().created()
        };
        if now().is_err() {
            eprintln!("skipped: the file system does not record when a file was begun");
            return;
        }
        // Until a file that is made now is younger than those before.
        let tick = || {
            let before = now().unwrap();
            while now().unwrap() <= before {}
        };
        fs::write(&path, "1\n").unwrap();
        let mut oldest = File::options().append(true).open(&path).unwrap();
        tick();
        fs::rename(&path, path.with_extension("log.2")).unwrap();
        fs::write(path.with_extension("log.1"), "3\n").unwrap();
        tick();
        fs::write(&path, "4\n").unwrap();
        tick();
        // A process that has not opened the new file yet.
        io::Write::write_all(&mut oldest, b"2\n").unwrap();
        let found = series(&path).unwrap();
        let names: Vec<_> = found.iter().map(|it| it.path.clone()).collect();
        let numbered = |number: &str| path.with_extension(number);
        assert_eq!(names, [numbered("log.2"), numbered("log.1"), path.clone()]);
    }

    #[test]
    fn the_newest_files_of_a_long_series_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        for number in 0..2 * SERIES_MAX {
            let rotated = directory
                .path()
                .join(format!("a.log-{}", 20_000_000 + number));
            File::create(rotated).unwrap();
        }
        fs::write(&path, "1\n").unwrap();
        let found = series(&path).unwrap();
        assert_eq!(found.len(), SERIES_MAX);
        assert_eq!(found.last().map(|it| &it.path), Some(&path));
        assert_eq!(found[0].rank, 20_000_000 + SERIES_MAX as i64 + 1);
    }
}
