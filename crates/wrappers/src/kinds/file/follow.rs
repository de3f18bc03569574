//! Reads the files of a rotated series one after another, record by record. Blocks on the disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_stream::lines::{Broken, ElementReader, Format, Line};
use chappe_stream::{StreamElement, StreamSchema, Timestamp};

use super::rotation::{Found, Place, Track, after, find, first, is_at};
use crate::{Lost, WrapperError};

/// Bytes read at once; reason: some hundred lines, and little to repeat after a crash.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes of an undecodable record that are kept.
const KEPT_BYTES: usize = 4 << 10;
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
    pub(super) format: Format,
    pub(super) schema: Arc<StreamSchema>,
    /// The columns of files without a header.
    pub(super) columns: Option<Vec<String>>,
    pub(super) start: Start,
    /// Time after which a file that was rotated away and does not grow is finished.
    pub(super) grace: Duration,
    /// How far ahead of this node's clock a time may be, in nanoseconds.
    pub(super) future_ns: i64,
}

/// A record that was read.
#[derive(Debug)]
pub(super) struct Item {
    /// The element, or the reason why there is none and the record.
    pub(super) element: Result<StreamElement, (String, Vec<u8>)>,
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
    /// Where to begin; `None` once a file is open.
    resume: Option<Place>,
    open: Option<Open>,
}

/// The file that is read.
#[derive(Debug)]
struct Open {
    file: File,
    reader: ElementReader,
    /// The first byte that was not read.
    track: Track,
    /// The record of a CSV that names the columns, once it is read.
    header: Vec<u8>,
    /// The beginning of the record that is not complete.
    record: Vec<u8>,
    /// The end of the last complete record.
    boundary: Place,
    is_csv: bool,
    /// When the file was first seen under another name, or deleted.
    rotated: Option<Instant>,
}

impl Follower {
    pub(super) fn new(series: Series, resume: Option<Place>) -> Self {
        Self {
            series,
            resume,
            open: None,
        }
    }

    /// Reads on.
    pub(super) fn read(&mut self, now: Timestamp) -> Result<Piece, WrapperError> {
        let mut piece = Piece::default();
        let path = self.series.path.display().to_string();
        let outcome = self.advance(now, &mut piece);
        outcome.map_err(|error| match error {
            ReadError::Io(error) => WrapperError::peer(format!("cannot read {path}: {error}")),
            ReadError::Broken(reason) => WrapperError::peer(format!("{path}: {reason}"))
                .with_hint("the columns must have the names of the stream's fields"),
        })?;
        Ok(piece)
    }

    fn advance(&mut self, now: Timestamp, piece: &mut Piece) -> Result<(), ReadError> {
        if self.open.is_none() && !self.begin(piece)? {
            piece.waits = Some(format!("{} does not exist", self.series.path.display()));
            return Ok(());
        }
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        if open.was_rewritten()? {
            return self.relocate(piece);
        }
        let mut buffer = vec![0; PIECE_BYTES];
        let count = open.file.read_at(&mut buffer, open.track.offset)?;
        if count > 0 {
            open.rotated = None;
            return open.take(&buffer[..count], now, piece);
        }
        if is_at(&self.series.path, &open.file)? {
            open.rotated = None;
            piece.waits = Some("everything in the file is read".to_owned());
            return Ok(());
        }
        let rotated = *open.rotated.get_or_insert_with(Instant::now);
        if rotated.elapsed() < self.series.grace {
            piece.waits = Some("the file was rotated".to_owned());
            return Ok(());
        }
        let next = after(&self.series.path, &open.file)?;
        open.finish(now, piece)?;
        match next {
            Some(file) => self.open = Some(Open::new(file, 0, &self.series)?),
            None => piece.waits = Some("the file was rotated and no other exists".to_owned()),
        }
        Ok(())
    }

    /// Opens the first file; false if there is none.
    fn begin(&mut self, piece: &mut Piece) -> Result<bool, ReadError> {
        let series = &self.series;
        let (file, offset) = match &self.resume {
            Some(place) => match find(&series.path, place)? {
                Found::Same(file) => (file, place.offset),
                Found::Other(file) => {
                    piece.lost.push(unknown("file_replaced"));
                    (file, 0)
                }
                Found::None => return Ok(false),
            },
            None => match first(&series.path, series.start == Start::Oldest)? {
                Some(file) if series.start == Start::End => {
                    let end = last_line_end(&file)?;
                    (file, end)
                }
                Some(file) => (file, 0),
                None => return Ok(false),
            },
        };
        self.open = Some(Open::new(file, offset, series)?);
        self.resume = None;
        Ok(true)
    }

    /// Finds the records after the last one again, in a file that was rewritten.
    fn relocate(&mut self, piece: &mut Piece) -> Result<(), ReadError> {
        let Some(place) = self.open.take().map(|open| open.boundary) else {
            return Ok(());
        };
        match find(&self.series.path, &place)? {
            Found::Same(file) => {
                self.open = Some(Open::new(file, place.offset, &self.series)?);
            }
            Found::Other(file) => {
                piece.lost.push(unknown("file_replaced"));
                self.open = Some(Open::new(file, 0, &self.series)?);
            }
            Found::None => self.resume = Some(place),
        }
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

/// The offset after the last complete line.
fn last_line_end(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut buffer = vec![0; PIECE_BYTES];
    while end > 0 {
        let from = end.saturating_sub(PIECE_BYTES as u64);
        let piece = &mut buffer[..usize::try_from(end - from).unwrap_or(0)];
        file.read_exact_at(piece, from)?;
        if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

/// Why reading failed.
#[derive(Debug)]
enum ReadError {
    Io(io::Error),
    Broken(String),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Broken> for ReadError {
    fn from(error: Broken) -> Self {
        Self::Broken(error.to_string())
    }
}

impl Open {
    /// Opens a file at the end of one of its records, or at its beginning.
    fn new(file: File, offset: u64, series: &Series) -> Result<Self, ReadError> {
        let reader = ElementReader::new(series.format, series.schema.clone(), series.future_ns);
        let track = Track::new(&file, offset)?;
        let mut open = Self {
            boundary: track.place(),
            file,
            reader,
            track,
            header: Vec::new(),
            record: Vec::new(),
            is_csv: series.format == Format::Csv,
            rotated: None,
        };
        open.read_header(series)?;
        Ok(open)
    }

    /// Gives the reader the columns before it reads from the middle of a file.
    fn read_header(&mut self, series: &Series) -> Result<(), ReadError> {
        if series.format != Format::Csv {
            return Ok(());
        }
        let mut none = Vec::new();
        if let Some(columns) = &series.columns {
            let header = format!("{}\n", columns.join(","));
            return Ok(self
                .reader
                .push(header.as_bytes(), Timestamp(0), &mut none)?);
        }
        let mut at = 0;
        let mut buffer = vec![0; PIECE_BYTES];
        while at < self.track.offset {
            let count = self.file.read_at(&mut buffer, at)?;
            if count == 0 {
                break;
            }
            for line in buffer[..count].split_inclusive(|byte| *byte == b'\n') {
                self.reader.push(line, Timestamp(0), &mut none)?;
                self.header.extend_from_slice(line);
                at += line.len() as u64;
                if line.ends_with(b"\n") && self.reader.held_bytes() == 0 {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Whether bytes that were read are no longer in the file.
    fn was_rewritten(&mut self) -> io::Result<bool> {
        self.track.look(&self.file)?;
        Ok(!self.track.place().fits(&self.file)?)
    }

    /// Takes bytes that were read at the offset.
    fn take(&mut self, bytes: &[u8], now: Timestamp, piece: &mut Piece) -> Result<(), ReadError> {
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = KEPT_BYTES.saturating_sub(self.record.len());
            self.record.extend_from_slice(&part[..part.len().min(room)]);
            self.reader.push(part, now, &mut lines)?;
            self.track.pass(part);
            if part.ends_with(b"\n") && self.reader.held_bytes() == 0 {
                self.boundary = self.track.place();
                self.end_record(&mut lines, piece);
            }
        }
        Ok(())
    }

    /// Takes a last record without a line end.
    fn finish(&mut self, now: Timestamp, piece: &mut Piece) -> Result<(), ReadError> {
        if self.boundary.offset == self.track.offset {
            return Ok(());
        }
        let mut lines = Vec::new();
        self.reader.finish(now, &mut lines)?;
        self.boundary = self.track.place();
        self.end_record(&mut lines, piece);
        Ok(())
    }

    /// Takes the elements of a complete record: one, or none of a header or an empty line.
    fn end_record(&mut self, lines: &mut Vec<Line>, piece: &mut Piece) {
        if self.is_csv && self.header.is_empty() && lines.is_empty() {
            self.header.clone_from(&self.record);
        }
        for line in lines.drain(..) {
            // With the columns it can be decoded again.
            let record = || [&*self.header, &*self.record].concat();
            piece.items.push(Item {
                element: line.element.map_err(|error| (error.to_string(), record())),
                end: self.boundary,
            });
        }
        self.record.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::path::Path;

    use super::*;
    use chappe_stream::{Field, FieldType, Value};
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
        follower: Follower,
        mark: Option<crate::Mark>,
        stored: Vec<i64>,
        next: i64,
        half: Option<String>,
        rotations: u32,
    }

    impl World {
        fn new(directory: &Path, format: Format) -> Self {
            let field = Field {
                name: "count".to_owned(),
                field_type: FieldType::Integer,
                unit: None,
                observed_property: None,
                description: None,
            };
            let series = Series {
                path: directory.join("a.log"),
                format,
                schema: Arc::new(StreamSchema {
                    fields: vec![field],
                    key: None,
                }),
                columns: None,
                start: Start::Oldest,
                grace: Duration::ZERO,
                future_ns: 0,
            };
            Self {
                follower: Follower::new(series.clone(), None),
                series,
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
            if is_new && self.series.format == Format::Csv {
                text.push_str("count\n");
            }
            text.extend(self.half.take());
            for _ in 0..lines {
                match self.series.format {
                    Format::Csv => text.push_str(&format!("{}\n", self.next)),
                    _ => text.push_str(&format!("{{\"count\": {}}}\n", self.next)),
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
                match item.element.unwrap().values[0] {
                    Value::Integer(number) => self.stored.push(number),
                    ref other => panic!("{other:?}"),
                }
                self.mark = Some(item.end.mark());
            }
            if count > most {
                // The rest was not stored when the node ended.
                self.restart();
            }
            count > 0 || piece.waits.is_none()
        }

        fn restart(&mut self) {
            let resume = self.mark.as_ref().map(|mark| Place::read(mark).unwrap());
            self.follower = Follower::new(self.series.clone(), resume);
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
            let format = if is_csv { Format::Csv } else { Format::Ndjson };
            let mut world = World::new(directory.path(), format);
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
    fn a_line_that_is_none_is_kept_with_its_columns() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        fs::write(&path, "count\n1\nx\n\"2\n\"\n3").unwrap();
        let mut world = World::new(directory.path(), Format::Csv);
        let piece = world.follower.read(Timestamp(0)).unwrap();
        let wrong: Vec<_> = piece
            .items
            .iter()
            .filter_map(|it| it.element.as_ref().err())
            .collect();
        assert_eq!(wrong.len(), 2, "{piece:?}");
        assert_eq!(wrong[0].1, b"count\nx\n");
        assert_eq!(piece.items.len(), 3, "the last line has no end yet");
        // Once the file is rotated away, its last line is complete.
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
        let error = world.follower.read(Timestamp(0)).map(|piece| piece.waits);
        assert_eq!(
            error.unwrap().as_deref(),
            Some("everything in the file is read")
        );
    }

    #[test]
    fn a_header_that_does_not_fit_is_an_error_with_a_hint() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a.log"), "number\n1\n").unwrap();
        let mut world = World::new(directory.path(), Format::Csv);
        let error = world.follower.read(Timestamp(0)).unwrap_err();
        assert!(
            error.to_string().contains("number") && error.hint().is_some(),
            "{error}"
        );
    }
}
