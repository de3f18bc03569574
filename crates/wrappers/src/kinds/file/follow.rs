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
const GRACE: Duration = Duration::from_secs(1);

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
    /// Whether the end of the file was reached.
    at_end: bool,
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
            (open.at_end, open.rotated) = (false, None);
            return open.take(&buffer[..count], now, piece);
        }
        open.at_end = true;
        if is_at(&self.series.path, &open.file)? {
            open.rotated = None;
            piece.waits = Some("everything in the file is read".to_owned());
            return Ok(());
        }
        let rotated = *open.rotated.get_or_insert_with(Instant::now);
        if rotated.elapsed() < GRACE {
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
            at_end: false,
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

    /// Whether bytes that were read are no longer in the file. Only a file that was read to its end is
    /// searched for them: a writer that empties one before takes what was not read in any case.
    fn was_rewritten(&mut self) -> io::Result<bool> {
        let length = self.track.look(&self.file)?.len();
        if length < self.track.offset {
            return Ok(true);
        }
        let has_grown = length > self.track.offset;
        Ok(self.at_end && has_grown && !self.track.place().fits(&self.file)?)
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
