//! Reads the files of a rotated series one after another, record by record. Blocks on the disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use chappe_stream::Timestamp;

use super::records::{Record, Records, Rows};
use super::rotation::{
    Found, Known, Place, Track, after, find, first, is_at, is_quiet, is_same, later,
};
use crate::decode::Decoder;
use crate::{Batch, Lost, Undecodable, WrapperError};

/// Bytes read at once; reason: some hundred lines, and little to repeat after a crash.
const PIECE_BYTES: usize = 64 << 10;
/// Time after which a file that was rotated away and does not grow is finished; reason: its writer may
/// go on writing until it opens the new one.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// Where a series that was never read starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Start {
    /// At the oldest file.
    Oldest,
    /// At the beginning of the current file.
    #[default]
    Current,
    /// At the end of the current file.
    End,
}

/// What is followed.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) path: PathBuf,
    /// How rows are written, if it is a CSV.
    pub(super) rows: Option<Rows>,
    pub(super) start: Start,
    /// Time after which a file that was rotated away and does not grow is finished.
    pub(super) grace: Duration,
}

/// A record that was read.
#[derive(Debug)]
pub(super) struct Item {
    /// Its elements, or why there are none; without a mark.
    pub(super) batch: Batch,
    /// The position after the record.
    pub(super) end: Place,
}

/// What one call read.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) items: Vec<Item>,
    pub(super) lost: Vec<Lost>,
    /// Why there was nothing to read, if there was nothing.
    pub(super) waits: Option<String>,
}

/// Follows a series.
#[derive(Debug)]
pub(super) struct Follower {
    series: Series,
    decoder: Decoder,
    /// Where to begin; `None` once a file is open.
    resume: Option<Place>,
    open: Option<Open>,
    /// The file that was finished before.
    previous: Option<File>,
    /// The files that were there before the first one was opened, and are not read.
    known: Known,
}

/// The file that is read.
#[derive(Debug)]
struct Open {
    file: File,
    records: Records,
    /// The first byte that was not read.
    track: Track,
    /// The bytes before the first row of a CSV, which name the columns.
    prologue: Vec<u8>,
    /// Whether the decoder has read from this file.
    is_begun: bool,
    /// Whether a record of this file was read, by which a copy of it is recognized.
    has_records: bool,
    /// The end of the last complete record.
    boundary: Place,
    /// When the file was first seen under another name, or deleted.
    rotated: Option<Instant>,
    /// The file that was read before, of which this is a copy.
    original: Option<File>,
    /// Whether it ends within a record.
    has_partial: bool,
    /// Whether the first record may be the rest of one that the file before ends with.
    is_rest: bool,
}

impl Follower {
    pub(super) fn new(series: Series, decoder: Decoder, resume: Option<Place>) -> Self {
        Self {
            series,
            decoder,
            resume,
            open: None,
            previous: None,
            known: Known::default(),
        }
    }

    /// Reads on.
    pub(super) fn read(&mut self, now: Timestamp) -> Result<Piece, WrapperError> {
        let mut piece = Piece::default();
        let path = self.series.path.display().to_string();
        let outcome = self.advance(now, &mut piece);
        outcome.map_err(|error| match error {
            ReadError::Io(error) => WrapperError::peer(format!("cannot read {path}: {error}")),
            ReadError::Header(reason) => WrapperError::peer(format!("{path}: {reason}"))
                .with_hint("set `columns` or `skip_lines` of format.csv to match the file"),
        })?;
        Ok(piece)
    }

    fn advance(&mut self, now: Timestamp, piece: &mut Piece) -> Result<(), ReadError> {
        if self.open.is_none() && !self.begin(piece)? {
            let path = &self.series.path;
            // A pipe, a socket or a device is no file of a series.
            let what = match path.exists() {
                true => "is not a regular file",
                false => "does not exist",
            };
            piece.waits = Some(format!("{} {what}", path.display()));
            return Ok(());
        }
        let Some(open) = &self.open else {
            return Ok(());
        };
        let mut buffer = vec![0; PIECE_BYTES];
        let count = open.file.read_at(&mut buffer, open.track.offset)?;
        // A file may be copied and emptied at any time: only what is as it was after the bytes were read
        // shows that they belong to it.
        if let Some(file) = self.earlier()? {
            return self.start(file);
        }
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        if open.was_rewritten()? {
            return self.relocate(piece);
        }
        if count > 0 {
            open.rotated = None;
            return open.take(&buffer[..count], now, &mut self.decoder, piece);
        }
        if is_at(&self.series.path, &open.file)? {
            open.rotated = None;
            piece.waits = Some("everything in the file is read".to_owned());
            return Ok(());
        }
        let Some(later) = later(&self.series.path, &open.file)? else {
            piece.waits = Some("the file was rotated and no other exists".to_owned());
            return Ok(());
        };
        let rotated = *open.rotated.get_or_insert_with(Instant::now);
        let is_over = rotated.elapsed() >= self.series.grace
            || later.count > 1
            || is_quiet(&open.file, self.series.grace)?;
        // Until something is in the next one, its writer may not have opened it.
        if later.are_empty || !is_over {
            piece.waits = Some("the file was rotated".to_owned());
            return Ok(());
        }
        open.finish(now, &mut self.decoder, piece)?;
        self.go_to(later.next)
    }

    /// The file before the one that is open, as long as no record of that was read: its contents may have
    /// been copied away since, which nothing in it shows.
    fn earlier(&self) -> Result<Option<File>, ReadError> {
        let Some(open) = self.open.as_ref().filter(|open| !open.has_records) else {
            return Ok(None);
        };
        let path = &self.series.path;
        let earlier = match &self.previous {
            Some(previous) => after(path, previous)?,
            None => self.known.new_before(path, &open.file)?,
        };
        match earlier {
            Some(file) if !is_same(&file, &open.file)? => Ok(Some(file)),
            _ => Ok(None),
        }
    }

    /// Opens the first file; false if there is none.
    fn begin(&mut self, piece: &mut Piece) -> Result<bool, ReadError> {
        let series = &self.series;
        // Before the first file is opened: what appears later may be a copy of it.
        let known = match (&self.resume, series.start) {
            (None, Start::Oldest) => Known::default(),
            _ => Known::of(&series.path)?,
        };
        let is_open = match self.resume {
            Some(place) => self.go_on(place, piece)?,
            None => match first(&series.path, series.start == Start::Oldest)? {
                Some(file) => {
                    let offset = match series.start {
                        Start::End => last_line_end(&file)?,
                        _ => 0,
                    };
                    let track = Track::at(&file, offset)?;
                    self.open = Some(Open::new(file, track, series.rows, &mut self.decoder)?);
                    true
                }
                None => false,
            },
        };
        if is_open {
            (self.resume, self.known) = (None, known);
        }
        Ok(is_open)
    }

    /// Goes on at a position; false if there is no file yet.
    fn go_on(&mut self, place: Place, piece: &mut Piece) -> Result<bool, ReadError> {
        let path = &self.series.path;
        let next = match find(path, &place)? {
            Found::Same(file) => {
                let track = Track::resume(&file, &place)?;
                self.open = Some(Open::new(file, track, self.series.rows, &mut self.decoder)?);
                return Ok(true);
            }
            Found::Other(file) => Some(file),
            Found::After(copy) => {
                let next = after(path, &copy)?;
                self.previous = Some(copy);
                next
            }
            Found::None => None,
        };
        let Some(next) = next else {
            return Ok(false);
        };
        piece.lost.push(unknown("file_replaced"));
        self.start(next)?;
        Ok(true)
    }

    /// Finds the records after the last one again, in a file that was rewritten.
    fn relocate(&mut self, piece: &mut Piece) -> Result<(), ReadError> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        if !open.has_records {
            // Nothing was taken from it; what it had is in an earlier file, which is found next.
            return self.start(open.file);
        }
        let place = open.boundary;
        if !self.go_on(place, piece)? {
            self.resume = Some(place);
        }
        if let Some(copy) = &mut self.open
            && !is_same(&copy.file, &open.file)?
        {
            copy.original = Some(open.file);
        }
        Ok(())
    }

    /// Opens the file after the one that is finished.
    fn go_to(&mut self, next: File) -> Result<(), ReadError> {
        let finished = self.open.take();
        let is_rest = match &finished {
            // A writer whose file was emptied within a record goes on with the rest.
            Some(Open {
                original: Some(original),
                has_partial: true,
                ..
            }) => is_same(original, &next)?,
            _ => false,
        };
        self.previous = finished.map(|finished| finished.file);
        self.start(next)?;
        if let Some(open) = &mut self.open {
            open.is_rest = is_rest;
        }
        Ok(())
    }

    /// Opens a file at its beginning.
    fn start(&mut self, file: File) -> Result<(), ReadError> {
        let track = Track::at(&file, 0)?;
        self.open = Some(Open::new(file, track, self.series.rows, &mut self.decoder)?);
        Ok(())
    }
}

/// Perhaps some messages, whose number is not known.
fn unknown(reason: &'static str) -> Lost {
    Lost {
        stream: None,
        reason,
        messages: 0,
    }
}

/// The offset after the last complete line. Of a last line that is too long, only the end is searched.
fn last_line_end(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let least = end.saturating_sub(2 * super::records::RECORD_BYTES_MAX as u64);
    let mut buffer = vec![0; PIECE_BYTES];
    while end > least {
        let from = end.saturating_sub(PIECE_BYTES as u64).max(least);
        let piece = &mut buffer[..usize::try_from(end - from).unwrap_or(0)];
        file.read_exact_at(piece, from)?;
        if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(least)
}

/// Why reading failed.
#[derive(Debug)]
enum ReadError {
    Io(io::Error),
    /// The first lines are not what the format expects.
    Header(String),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Open {
    /// Opens a file at the end of one of its records, or at its beginning.
    fn new(
        file: File,
        track: Track,
        rows: Option<Rows>,
        decoder: &mut Decoder,
    ) -> Result<Self, ReadError> {
        let mut open = Self {
            boundary: track.place(),
            records: Records::new(rows),
            prologue: Vec::new(),
            is_begun: false,
            has_records: false,
            file,
            track,
            rotated: None,
            original: None,
            has_partial: false,
            is_rest: false,
        };
        open.read_prologue(decoder)?;
        Ok(open)
    }

    /// Reads the columns again before a file is read from its middle.
    fn read_prologue(&mut self, decoder: &mut Decoder) -> Result<(), ReadError> {
        let mut at = 0;
        let mut buffer = vec![0; PIECE_BYTES];
        while at < self.track.offset && !self.records.is_past_prologue() {
            let count = self.file.read_at(&mut buffer, at)?;
            if count == 0 {
                break;
            }
            for line in buffer[..count].split_inclusive(|byte| *byte == b'\n') {
                at += line.len() as u64;
                if let Some(Record::Prologue(bytes)) = self.records.push(line) {
                    self.has_records = at < self.track.offset;
                    return self.begin(bytes, decoder);
                }
            }
        }
        self.has_records = at < self.track.offset;
        Ok(())
    }

    /// Whether bytes that were read are no longer in the file.
    fn was_rewritten(&mut self) -> io::Result<bool> {
        self.track.look(&self.file)?;
        Ok(!self.track.place().fits(&self.file)?)
    }

    /// Takes bytes that were read at the offset.
    fn take(
        &mut self,
        bytes: &[u8],
        now: Timestamp,
        decoder: &mut Decoder,
        piece: &mut Piece,
    ) -> Result<(), ReadError> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.track.pass(part);
            if let Some(record) = self.records.push(part) {
                self.end_record(record, now, decoder, piece)?;
            }
        }
        Ok(())
    }

    /// Takes a last record without a line end: it is refused, unless it is surely whole.
    fn finish(
        &mut self,
        now: Timestamp,
        decoder: &mut Decoder,
        piece: &mut Piece,
    ) -> Result<(), ReadError> {
        let bytes = match self.records.finish() {
            // No row follows.
            None | Some(Record::Prologue(_)) => return Ok(()),
            Some(Record::Row(bytes)) if !decoder.is_whole(&bytes) => bytes,
            Some(record) => return self.end_record(record, now, decoder, piece),
        };
        self.has_partial = true;
        self.refuse(
            &bytes,
            "the file ends before the end of the line",
            decoder,
            piece,
        );
        Ok(())
    }

    /// Takes a record without decoding it.
    fn refuse(&mut self, bytes: &[u8], reason: &str, decoder: &Decoder, piece: &mut Piece) {
        self.boundary = self.track.end_record();
        self.has_records = true;
        let mut batch = Batch::default();
        decoder.refuse(bytes, &self.prologue, reason, &mut batch);
        piece.items.push(Item {
            batch,
            end: self.boundary,
        });
    }

    fn end_record(
        &mut self,
        record: Record,
        now: Timestamp,
        decoder: &mut Decoder,
        piece: &mut Piece,
    ) -> Result<(), ReadError> {
        let is_rest = std::mem::take(&mut self.is_rest);
        if let (true, Record::Row(bytes)) = (is_rest, &record) {
            let reason = "the file was emptied within a line, of which this may be the rest";
            self.refuse(bytes, reason, decoder, piece);
            return Ok(());
        }
        self.boundary = self.track.end_record();
        let mut batch = Batch::default();
        match record {
            Record::Prologue(bytes) => return self.begin(bytes, decoder),
            Record::Row(bytes) => {
                let is_first = !std::mem::replace(&mut self.is_begun, true);
                decoder.piece(&bytes, now, is_first, &self.prologue, &mut batch);
            }
            Record::Long(bytes) => batch.undecodable.push(Undecodable {
                stream: decoder.only_stream().map(str::to_owned),
                reason: "the record is too long".to_owned(),
                message: bytes,
                is_cut: true,
            }),
        }
        self.has_records = true;
        if batch.elements() > 0 || !batch.undecodable.is_empty() {
            piece.items.push(Item {
                batch,
                end: self.boundary,
            });
        }
        Ok(())
    }

    /// Gives the decoder the columns.
    fn begin(&mut self, prologue: Vec<u8>, decoder: &mut Decoder) -> Result<(), ReadError> {
        let mut batch = Batch::default();
        decoder.piece(&prologue, Timestamp(0), true, &[], &mut batch);
        if let Some(wrong) = batch.undecodable.pop() {
            return Err(ReadError::Header(wrong.reason));
        }
        (self.prologue, self.is_begun) = (prologue, true);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::path::Path;

    use super::*;
    use crate::tests::wrapper_file;
    use chappe_stream::Value;
    use proptest::prelude::*;

    /// What a writer, an operator and a node do.
    #[derive(Debug, Clone)]
    enum Event {
        /// Writes this many lines, the last one perhaps without its end, which comes with the next.
        Write(u8, bool),
        /// Renames the files and begins another one.
        Rename,
        /// Copies the file and empties it.
        CopyAndEmpty,
        /// Reads once; the node stores this many of the records.
        Read(u8),
        /// The node starts again from the last mark.
        Restart,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (1_u8..6, any::<bool>()).prop_map(|(lines, ends)| Event::Write(lines, ends)),
            1 => Just(Event::Rename),
            1 => Just(Event::CopyAndEmpty),
            4 => any::<u8>().prop_map(Event::Read),
            2 => Just(Event::Restart),
        ]
    }

    struct World {
        series: Series,
        file: crate::WrapperFile,
        follower: Follower,
        mark: Option<crate::Mark>,
        stored: Vec<i64>,
        next: i64,
        half: Option<String>,
        rotations: u32,
    }

    impl World {
        fn new(directory: &Path, is_csv: bool) -> Self {
            let format = if is_csv { "csv" } else { "json" };
            let file = wrapper_file(&format!(
                "kind = \"file\"\npath = \"a.log\"\nformat = \"{format}\"\n[[stream]]\nname = \"a\"\n\
                 fields = [{{ name = \"count\", type = \"integer\" }}]\n"
            ));
            let series = Series {
                path: directory.join("a.log"),
                rows: file
                    .keys
                    .format
                    .as_ref()
                    .and_then(|it| it.get_ref().csv())
                    .map(Rows::of),
                start: Start::Oldest,
                grace: Duration::ZERO,
            };
            let decoder = || Decoder::new(&file, &[]).unwrap();
            Self {
                follower: Follower::new(series.clone(), decoder(), None),
                series,
                file,
                mark: None,
                stored: Vec::new(),
                next: 1,
                half: None,
                rotations: 0,
            }
        }

        fn write(&mut self, lines: u8, ends: bool) {
            let mut text = String::new();
            let is_new = fs::metadata(&self.series.path).map_or(true, |it| it.len() == 0);
            if is_new && self.series.rows.is_some() {
                text.push_str("count\n");
            }
            text.extend(self.half.take());
            for _ in 0..lines {
                match self.series.rows {
                    Some(_) => text.push_str(&format!("{}\n", self.next)),
                    None => text.push_str(&format!("{{\"count\": {}}}\n", self.next)),
                }
                self.next += 1;
            }
            if !ends {
                let half = text.len() - 2;
                self.half = Some(text.split_off(half));
            }
            let mut options = fs::OpenOptions::new();
            let mut file = options
                .create(true)
                .append(true)
                .open(&self.series.path)
                .unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        /// Moves `a.log.1` to `a.log.2`, and so on; a line is never divided.
        fn shift(&mut self) {
            if self.half.is_some() {
                self.write(0, true);
            }
            for number in (1..=self.rotations).rev() {
                let numbered = |number| self.series.path.with_extension(format!("log.{number}"));
                fs::rename(numbered(number), numbered(number + 1)).unwrap();
            }
            self.rotations += 1;
        }

        fn rotate(&mut self, by_copy: bool) {
            if !self.series.path.exists() {
                return;
            }
            self.shift();
            let first = self.series.path.with_extension("log.1");
            if by_copy {
                fs::copy(&self.series.path, first).unwrap();
                let mut options = fs::OpenOptions::new();
                let file = options.write(true).open(&self.series.path).unwrap();
                file.set_len(0).unwrap();
            } else {
                fs::rename(&self.series.path, first).unwrap();
            }
        }

        /// Reads once and stores at most `most` records; returns whether there were any.
        fn read(&mut self, most: usize) -> bool {
            let piece = self.follower.read(Timestamp(0)).unwrap();
            assert_eq!(piece.lost, [], "nothing was lost");
            let count = piece.items.len();
            for item in piece.items.into_iter().take(most) {
                assert_eq!(item.batch.undecodable, []);
                for element in item.batch.parts.iter().flat_map(|part| &part.elements) {
                    match element.values[0] {
                        Value::Integer(number) => self.stored.push(number),
                        ref other => panic!("{other:?}"),
                    }
                }
                self.mark = Some(item.end.mark());
            }
            if count > most {
                // The rest was not stored when the node ended.
                self.restart();
            }
            count > 0 || piece.waits.is_none()
        }

        /// Reads until nothing is left; returns what was decoded, and what was not.
        fn read_all(&mut self) -> (Vec<i64>, Vec<Undecodable>) {
            let (mut values, mut wrong) = (Vec::new(), Vec::new());
            for _ in 0..9 {
                for item in self.follower.read(Timestamp(0)).unwrap().items {
                    let parts = item.batch.parts.iter();
                    for element in parts.flat_map(|part| &part.elements) {
                        let Value::Integer(number) = element.values[0] else {
                            panic!("{element:?}");
                        };
                        values.push(number);
                    }
                    wrong.extend(item.batch.undecodable);
                    self.mark = Some(item.end.mark());
                }
            }
            (values, wrong)
        }

        fn restart(&mut self) {
            let resume = self.mark.as_ref().map(|mark| Place::read(mark).unwrap());
            let decoder = Decoder::new(&self.file, &[]).unwrap();
            self.follower = Follower::new(self.series.clone(), decoder, resume);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn each_line_is_read_exactly_once(
            events in prop::collection::vec(event(), 1..24),
            is_csv in any::<bool>(),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let mut world = World::new(directory.path(), is_csv);
            for event in events {
                match event {
                    Event::Write(lines, ends) => world.write(lines, ends),
                    Event::Rename => world.rotate(false),
                    Event::CopyAndEmpty => world.rotate(true),
                    Event::Read(most) => drop(world.read(usize::from(most))),
                    Event::Restart => world.restart(),
                }
            }
            world.write(1, true);
            // A file that was rotated away ends a call later.
            let mut idle = 0;
            while idle < 3 {
                idle = if world.read(usize::MAX) { 0 } else { idle + 1 };
            }
            prop_assert_eq!(&world.stored, &(1..world.next).collect::<Vec<i64>>());
        }
    }

    #[test]
    fn the_copy_of_a_file_that_was_not_read_yet_is_read_and_older_files_are_not() {
        for (is_csv, is_seen) in [(false, false), (true, false), (false, true), (true, true)] {
            let directory = tempfile::tempdir().unwrap();
            let mut world = World::new(directory.path(), is_csv);
            // A file from before, which `start = "current"` leaves out.
            let old = if is_csv {
                "count\n-1\n"
            } else {
                "{\"count\": -1}\n"
            };
            fs::write(world.series.path.with_extension("log.1"), old).unwrap();
            world.rotations = 1;
            world.series.start = Start::Current;
            world.restart();
            fs::write(&world.series.path, "").unwrap();
            if is_seen && is_csv {
                fs::write(&world.series.path, "count\n").unwrap();
            }
            if is_seen && !is_csv {
                world.write(1, false);
            }
            for _ in 0..2 {
                world.read(usize::MAX);
            }
            assert!(world.stored.is_empty(), "there is no record yet");
            for _ in 0..3 {
                world.write(2, true);
                world.rotate(true);
            }
            world.write(1, true);
            for _ in 0..20 {
                world.read(usize::MAX);
            }
            assert_eq!(
                world.stored,
                (1..world.next).collect::<Vec<i64>>(),
                "csv: {is_csv}, seen: {is_seen}"
            );
        }
    }

    #[test]
    fn lines_that_are_not_in_the_copy_make_it_no_other_file() {
        for (is_csv, restarts_at, cut) in [
            (false, 9, 0),
            (true, 0, 0),
            (false, 1, 5),
            (true, 2, 1),
            (false, 3, 2),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let mut world = World::new(directory.path(), is_csv);
            let mut step = 0;
            let mut lost = Vec::new();
            let mut read = |world: &mut World| {
                if step == restarts_at {
                    world.restart();
                }
                step += 1;
                for _ in 0..4 {
                    let piece = world.follower.read(Timestamp(0)).unwrap();
                    lost.extend(piece.lost);
                    for item in piece.items {
                        let parts = item.batch.parts.iter();
                        for element in parts.flat_map(|part| &part.elements) {
                            let Value::Integer(number) = element.values[0] else {
                                panic!("{element:?}");
                            };
                            world.stored.push(number);
                        }
                        world.mark = Some(item.end.mark());
                    }
                }
            };
            world.write(200, true);
            read(&mut world);
            // The copy ends before the last lines, perhaps within one.
            let copy = world.series.path.with_extension("log.1");
            fs::copy(&world.series.path, &copy).unwrap();
            let file = fs::OpenOptions::new().write(true).open(&copy).unwrap();
            file.set_len(file.metadata().unwrap().len() - cut).unwrap();
            world.write(3, true);
            read(&mut world);
            let file = fs::OpenOptions::new().write(true).open(&world.series.path);
            file.unwrap().set_len(0).unwrap();
            read(&mut world);
            world.write(2, true);
            read(&mut world);
            let expected: Vec<i64> = (1..world.next).collect();
            assert_eq!(
                world.stored, expected,
                "csv: {is_csv}, {restarts_at}, {cut}"
            );
            // A node that starts again from the same mark finds the same again.
            lost.dedup();
            assert_eq!(lost, [unknown("file_replaced")]);
        }
    }

    #[test]
    fn files_that_were_read_are_not_read_again_after_a_loss() {
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(directory.path(), false);
        for _ in 0..3 {
            world.write(1, true);
            world.rotate(false);
        }
        world.write(1, true);
        for _ in 0..12 {
            world.read(usize::MAX);
        }
        assert_eq!(world.stored, [1, 2, 3, 4]);
        // The file with the position is deleted, and the next ones are there.
        fs::remove_file(&world.series.path).unwrap();
        world.write(1, true);
        world.restart();
        let mut lost = Vec::new();
        for _ in 0..6 {
            let piece = world.follower.read(Timestamp(0)).unwrap();
            lost.extend(piece.lost);
            let parts = piece.items.iter().flat_map(|item| &item.batch.parts);
            for element in parts.flat_map(|part| &part.elements) {
                assert_eq!(element.values[0], Value::Integer(5), "it was read before");
            }
        }
        assert_eq!(lost, [unknown("file_replaced")]);
    }

    #[test]
    fn a_line_that_is_none_is_kept_with_its_columns() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        fs::write(&path, "count\n1\nx\n\"y\n\"\n3").unwrap();
        let mut world = World::new(directory.path(), true);
        let piece = world.follower.read(Timestamp(0)).unwrap();
        let items = piece.items.iter();
        let wrong: Vec<_> = items.flat_map(|it| &it.batch.undecodable).collect();
        assert_eq!(wrong.len(), 2, "{piece:?}");
        assert_eq!(wrong[0].message, b"count\nx\n");
        assert_eq!(piece.items.len(), 3, "the last line has no end yet");
        // Once the file is rotated away, nothing completes its last line.
        fs::rename(&path, path.with_extension("log.1")).unwrap();
        assert!(world.follower.read(Timestamp(0)).unwrap().items.is_empty());
        let mut items = Vec::new();
        for _ in 0..3 {
            items.extend(world.follower.read(Timestamp(0)).unwrap().items);
        }
        assert_eq!(items.len(), 0, "there is no other file yet: {items:?}");
        fs::write(&path, "count\n4\n").unwrap();
        for _ in 0..3 {
            items.extend(world.follower.read(Timestamp(0)).unwrap().items);
        }
        assert_eq!(items.len(), 2, "{items:?}");
        let cut = &items[0].batch.undecodable[0];
        assert_eq!(cut.message, b"count\n3");
        assert!(cut.reason.contains("end of the line"), "{cut:?}");
        let error = world.follower.read(Timestamp(0)).map(|piece| piece.waits);
        assert_eq!(
            error.unwrap().as_deref(),
            Some("everything in the file is read")
        );
    }

    #[test]
    fn a_record_that_its_writer_did_not_end_is_no_other_number() {
        for (is_csv, last, stored) in [
            (true, "12", vec![1, 5]),
            (false, "{\"count\": 12}", vec![1, 12, 5]),
            (false, "{\"count\": 12", vec![1, 5]),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let mut world = World::new(directory.path(), is_csv);
            world.write(1, true);
            let path = world.series.path.clone();
            let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(last.as_bytes()).unwrap();
            fs::rename(&path, path.with_extension("log.1")).unwrap();
            world.next = 5;
            world.write(1, true);
            let (values, wrong) = world.read_all();
            assert_eq!(values, stored, "{last}");
            assert_eq!(wrong.len(), 3 - stored.len(), "{last}: {wrong:?}");
        }
    }

    #[test]
    fn a_record_that_is_divided_by_a_copy_is_no_other_number() {
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(directory.path(), false);
        world.file = wrapper_file(
            "kind = \"file\"\npath = \"a.log\"\nformat = \"key_value\"\n[[stream]]\nname = \"a\"\n\
             fields = [{ name = \"count\", type = \"integer\" }]\n",
        );
        world.restart();
        let path = world.series.path.clone();
        fs::write(&path, "count=1001\n").unwrap();
        assert_eq!(world.read_all(), (vec![1001], vec![]));
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"count=1002\ncount=10").unwrap();
        fs::copy(&path, path.with_extension("log.1")).unwrap();
        file.set_len(0).unwrap();
        file.write_all(b"03 count=7\ncount=1004\n").unwrap();
        let (values, wrong) = world.read_all();
        assert_eq!(values, [1002, 1004]);
        let wrong: Vec<_> = wrong.iter().map(|it| it.message.as_slice()).collect();
        assert_eq!(wrong, [&b"count=10"[..], b"03 count=7\n"]);
    }

    #[test]
    fn a_renamed_file_is_read_until_its_writer_has_begun_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(directory.path(), false);
        world.series.grace = Duration::from_secs(3_600);
        world.restart();
        world.write(1, true);
        let path = world.series.path.clone();
        let (first, second) = (path.with_extension("log.1"), path.with_extension("log.2"));
        let mut late = fs::OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(world.read_all().0, [1]);
        fs::rename(&path, &first).unwrap();
        fs::write(&path, "").unwrap();
        assert_eq!(world.read_all().0, [0_i64; 0]);
        late.write_all(b"{\"count\": 2}\n").unwrap();
        assert_eq!(world.read_all().0, [2]);
        world.next = 3;
        world.write(1, true);
        assert_eq!(world.read_all().0, [0_i64; 0], "its writer may write more");
        // The next one was rotated, too.
        fs::rename(&first, second).unwrap();
        fs::rename(&path, first).unwrap();
        world.write(1, true);
        assert_eq!(world.read_all().0, [3]);
    }

    #[test]
    fn a_header_that_does_not_fit_is_an_error_with_a_hint() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a.log"), "count,count\n1,1\n").unwrap();
        let mut world = World::new(directory.path(), true);
        let error = world.follower.read(Timestamp(0)).unwrap_err();
        assert!(
            error.to_string().contains("occurs twice") && error.hint().is_some(),
            "{error}"
        );
    }

    #[test]
    fn the_end_of_a_file_without_lines_is_found_near_its_end() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        let end = last_line_end(&file).unwrap();
        assert_eq!(end, (1 << 40) - (512 << 10));
        file.write_at(b"\n", end + 7).unwrap();
        assert_eq!(last_line_end(&file).unwrap(), end + 8);
        file.set_len(3).unwrap();
        assert_eq!(last_line_end(&file).unwrap(), 0);
    }
}
