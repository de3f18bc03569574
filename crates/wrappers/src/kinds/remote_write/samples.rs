//! The samples of a request.

use std::collections::HashMap;
use std::ops::Range;

use chappe_format::units::{Vocabulary, of_metric_name, to_ucum};
use chappe_stream::{Quality, StreamElement, Timestamp, Value as StreamValue};

use super::wire::{Broken, Fields, Value};
use crate::Form;
use crate::clock::now;
use crate::kinds::series::{
    Column, ELEMENTS_BYTES, FieldKind, KNOWN_BYTES_MAX, Malformed, POINTS_MAX, Protocol, Refused,
    SERIES_BYTES_MAX, Series, Tables, source_time,
};

/// Bytes of a request without its compression; reason: senders send some thousand samples at once, and a few bytes
/// may be the compression of very many.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Series that are remembered; reason: their texts are held. Those of more are looked up again.
const SERIES_MAX: usize = 65_536;
/// Characters of a unit without a UCUM code; reason: people read it.
const UNIT_CHARS_MAX: usize = 40;
/// Labels of a series; reason: a stream has a column for each.
const LABELS_MAX: usize = 128;
/// Symbols of a request; reason: the place of each is held, and an empty one has two bytes.
const SYMBOLS_MAX: usize = 200_000;
/// The bits by which Prometheus marks that a series has ended: a NaN of its own.
const STALE: u64 = 0x7ff0_0000_0000_0002;
/// Nanoseconds of a millisecond.
const MS: i64 = 1_000_000;
/// Between the parts of the text of a series; no text in UTF-8 has this byte.
const SEPARATOR: u8 = 0xff;

/// Reads samples.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Series by the bytes of their labels: as they are encoded in version 1, their texts in version 2.
    series: HashMap<Box<[u8]>, usize>,
    known: Vec<Known>,
    /// Bytes of both.
    held_bytes: usize,
}

#[derive(Debug)]
struct Known {
    series: Series,
    column: usize,
}

/// A request that is being read.
#[derive(Debug)]
pub(super) struct Request {
    bytes: Vec<u8>,
    at: usize,
    is_version_2: bool,
    /// The symbols of version 2: where each begins and ends.
    symbols: Vec<(u32, u32)>,
    /// A series whose samples are not all read.
    unfinished: Option<Entry>,
    received: Timestamp,
}

impl Protocol for Samples {
    type Message = Request;

    fn begin(&mut self, body: Vec<u8>, form: Form) -> Result<Request, Malformed> {
        let Form::RemoteWrite { is_version_2 } = form else {
            let text = "this wrapper takes requests of remote write: send them to /api/v1/write";
            return Err(Malformed::new(text));
        };
        let wrong = |_| Malformed::new("the body is not compressed in the block format of snappy");
        let length = snap::raw::decompress_len(&body).map_err(wrong)?;
        if length > REQUEST_BYTES_MAX {
            return Err(Malformed::too_large(REQUEST_BYTES_MAX));
        }
        let bytes = snap::raw::Decoder::new()
            .decompress_vec(&body)
            .map_err(wrong)?;
        let symbols = match is_version_2 {
            true => symbols(&bytes)?,
            false => Vec::new(),
        };
        Ok(Request {
            bytes,
            at: 0,
            is_version_2,
            symbols,
            unfinished: None,
            received: now(),
        })
    }

    fn read(&mut self, request: &mut Request, tables: &mut Tables, refused: &mut Refused) -> bool {
        let number_of_series = if request.is_version_2 { 5 } else { 1 };
        let mut points = 0;
        while points < POINTS_MAX && tables.held_bytes() < ELEMENTS_BYTES {
            if let Some(entry) = request.unfinished.take() {
                points += self.entry(entry, points, request, tables, refused);
                continue;
            }
            let mut fields = Fields(&request.bytes[request.at..]);
            let field = fields.next();
            let end = request.bytes.len() - fields.0.len();
            match field {
                Ok(None) => return true,
                Ok(Some((number, Value::Bytes(bytes)))) if number == number_of_series => {
                    points += 1;
                    match Entry::of(bytes, end - bytes.len(), request.is_version_2) {
                        Ok(entry) => request.unfinished = Some(entry),
                        Err(Broken) => refused.add(1, Broken.to_string(), ""),
                    }
                }
                Ok(Some(_)) => {}
                Err(Broken) => {
                    refused.add(1, Broken.to_string(), "");
                    return true;
                }
            }
            request.at = end;
        }
        request.unfinished.is_none() && request.at == request.bytes.len()
    }
}

/// The places of all symbols.
fn symbols(bytes: &[u8]) -> Result<Vec<(u32, u32)>, Malformed> {
    let broken = |broken: Broken| Malformed::new(broken.to_string());
    let mut symbols = Vec::new();
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next().map_err(broken)? {
        if number != 4 {
            continue;
        }
        let text = value.text().map_err(broken)?;
        if symbols.len() == SYMBOLS_MAX {
            let text = format!("the request has more than {SYMBOLS_MAX} symbols");
            return Err(Malformed::new(text));
        }
        let end = bytes.len() - fields.0.len();
        let at = |at| u32::try_from(at).unwrap_or(u32::MAX);
        symbols.push((at(end - text.len()), at(end)));
    }
    Ok(symbols)
}

/// A time series of a request: where its parts are in the bytes of the request.
#[derive(Debug, Clone)]
struct Entry {
    /// The labels, as they are encoded.
    labels: Range<usize>,
    /// The bytes after them.
    rest: Range<usize>,
    /// Where in `rest` the next sample is.
    at: usize,
}

impl Entry {
    /// Divides a time series, which begins at `start`. Its labels come first, as every encoder writes them.
    fn of(bytes: &[u8], start: usize, is_version_2: bool) -> Result<Self, Broken> {
        let mut fields = Fields(bytes);
        let (mut end, mut number_before) = (0, 1);
        while let Some((number, value)) = fields.next()? {
            let is_label = number == 1;
            if is_label && number_before != 1 {
                return Err(Broken);
            }
            // References may be packed or not.
            if is_label && !is_version_2 {
                value.bytes()?;
            }
            if is_label {
                end = bytes.len() - fields.0.len();
            }
            number_before = number;
        }
        let middle = start + end;
        Ok(Self {
            labels: start..middle,
            rest: middle..start + bytes.len(),
            at: middle,
        })
    }
}

/// What a time series of version 2 tells of its metric.
#[derive(Debug, Default)]
struct Metadata<'m> {
    help: &'m str,
    unit: &'m str,
}

impl Samples {
    /// Adds samples of a time series, at most so many that `points` are [`POINTS_MAX`]. Returns how many there were.
    /// If there are more, the request keeps the entry for the next piece.
    fn entry(
        &mut self,
        mut entry: Entry,
        points: usize,
        request: &mut Request,
        tables: &mut Tables,
        refused: &mut Refused,
    ) -> usize {
        let (mut added, mut histograms, mut others) = (0, 0, 0);
        let mut reason: Option<String> = None;
        let mut known: Option<Result<usize, String>> = None;
        let histogram = if request.is_version_2 { 3 } else { 4 };
        let mut fields = Fields(&request.bytes[entry.at..entry.rest.end]);
        let is_whole = loop {
            // At least one sample, so that each piece makes progress.
            let is_full = points + added >= POINTS_MAX || tables.held_bytes() >= ELEMENTS_BYTES;
            if added > 0 && is_full {
                break false;
            }
            match fields.next() {
                // A refused sample costs no memory, so that the piece goes on.
                Ok(Some((2, Value::Bytes(bytes)))) => match sample(bytes) {
                    Err(error) => {
                        others += 1;
                        reason.get_or_insert(error);
                    }
                    Ok(sample) => {
                        let known =
                            known.get_or_insert_with(|| self.known(&entry, request, tables));
                        match known {
                            Ok(index) => {
                                added += 1;
                                add(&self.known[*index], sample, request.received, tables);
                            }
                            Err(error) => {
                                others += 1;
                                reason.get_or_insert_with(|| error.clone());
                            }
                        }
                    }
                },
                Ok(Some((number, _))) if number == histogram => histograms += 1,
                Ok(Some(_)) => {}
                Ok(None) => break true,
                Err(Broken) => {
                    others += 1;
                    reason.get_or_insert_with(|| Broken.to_string());
                    break true;
                }
            }
        };
        entry.at = entry.rest.end - fields.0.len();
        if let Some(reason) = reason {
            refused.add_shown(others, reason, || shown(&entry, request));
        }
        if histograms > 0 {
            let reason = "native histograms are not stored; send classic ones";
            refused.add_shown(histograms, reason, || shown(&entry, request));
        }
        if !is_whole {
            request.unfinished = Some(entry);
        }
        added
    }

    /// The series of an entry.
    fn known(
        &mut self,
        entry: &Entry,
        request: &Request,
        tables: &mut Tables,
    ) -> Result<usize, String> {
        let labels = labels(entry, request)?;
        let metadata = match request.is_version_2 {
            true => metadata(entry, request).unwrap_or_default(),
            false => Metadata::default(),
        };
        let texts;
        let key = match request.is_version_2 {
            false => &request.bytes[entry.labels.clone()],
            true => {
                let mut joined = Vec::new();
                for (name, value) in &labels {
                    joined.extend(name.as_bytes());
                    joined.push(SEPARATOR);
                    joined.extend(value.as_bytes());
                    joined.push(SEPARATOR);
                }
                // Another unit is checked against that of the column.
                joined.extend(metadata.unit.as_bytes());
                texts = joined;
                &texts
            }
        };
        if let Some(index) = self.series.get(key) {
            return Ok(*index);
        }
        let mut names = labels.iter().filter(|(name, _)| *name == "__name__");
        let (_, name) = names.next().ok_or("a series has no label __name__")?;
        if names.next().is_some() {
            return Err("the label \"__name__\" occurs twice".to_owned());
        }
        let others = labels.iter().filter(|(name, _)| *name != "__name__");
        let unit = unit(name, metadata.unit);
        let (series, column) = tables.attempt(|tables| {
            let series = tables.series(name, others.copied(), Some(metadata.help))?;
            let (field, float) = (Column::Field, FieldKind::Float);
            let column = tables.column(series.table, field, "value", float, unit.as_deref())?;
            Ok((series, column))
        })?;
        let bytes = key.len() + series.held_bytes();
        if self.known.len() >= SERIES_MAX || self.held_bytes + bytes > KNOWN_BYTES_MAX {
            self.series.clear();
            self.known.clear();
            self.held_bytes = 0;
        }
        self.held_bytes += bytes;
        self.known.push(Known { series, column });
        self.series.insert(key.into(), self.known.len() - 1);
        Ok(self.known.len() - 1)
    }
}

/// A sample: its number, and its time.
fn sample(bytes: &[u8]) -> Result<(f64, Timestamp), String> {
    let (mut number, mut time_ms) = (None, None);
    let mut fields = Fields(bytes);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => number = Some(value.double()?),
            2 => time_ms = Some(value.signed()?),
            _ => {}
        }
    }
    // Encoders leave out a zero. A sample without both is no measurement, and two bytes would become a whole element.
    if number.is_none() && time_ms.is_none() {
        return Err("a sample has neither a value nor a time".to_owned());
    }
    let time = source_time(time_ms.unwrap_or_default(), MS)?;
    Ok((number.unwrap_or_default(), time))
}

/// Adds a sample.
fn add(
    known: &Known,
    (number, source_time): (f64, Timestamp),
    received: Timestamp,
    tables: &mut Tables,
) {
    let mut values = tables.values(&known.series);
    let is_stale = f64::to_bits(number) == STALE;
    values[known.column] = match is_stale {
        true => StreamValue::Null,
        false => StreamValue::Double(number),
    };
    let element = StreamElement {
        position: Default::default(),
        source_time,
        receive_time: received,
        key: None,
        values,
        quality: match is_stale {
            true => Quality::Bad,
            false => Quality::Good,
        },
        origin: None,
    };
    tables.push(&known.series, element);
}

/// The labels of an entry as they are read.
#[derive(Debug, Default)]
struct Labels<'m> {
    labels: Vec<(&'m str, &'m str)>,
    /// Bytes of their names and values.
    bytes: usize,
}

impl<'m> Labels<'m> {
    fn push(&mut self, name: &'m str, value: &'m str) -> Result<(), String> {
        // An empty value is that of a label that is not there.
        if value.is_empty() {
            return Ok(());
        }
        if self.labels.len() == LABELS_MAX {
            return Err(format!("a series has more than {LABELS_MAX} labels"));
        }
        self.bytes += name.len() + value.len();
        if self.bytes > SERIES_BYTES_MAX {
            return Err(format!(
                "the labels of a series have more than {SERIES_BYTES_MAX} bytes"
            ));
        }
        self.labels.push((name, value));
        Ok(())
    }
}

/// The labels of an entry.
fn labels<'m>(entry: &Entry, request: &'m Request) -> Result<Vec<(&'m str, &'m str)>, String> {
    let bytes = &request.bytes[entry.labels.clone()];
    match request.is_version_2 {
        true => labels_2(bytes, request),
        false => labels_1(bytes),
    }
}

fn labels_1(bytes: &[u8]) -> Result<Vec<(&str, &str)>, String> {
    let mut labels = Labels::default();
    let mut fields = Fields(bytes);
    while let Some((_, label)) = fields.next()? {
        let (mut name, mut value) = ("", "");
        let mut parts = Fields(label.bytes()?);
        while let Some((number, part)) = parts.next()? {
            match number {
                1 => name = part.text()?,
                2 => value = part.text()?,
                _ => {}
            }
        }
        labels.push(name, value)?;
    }
    Ok(labels.labels)
}

fn labels_2<'m>(bytes: &[u8], request: &'m Request) -> Result<Vec<(&'m str, &'m str)>, String> {
    let mut labels = Labels::default();
    // The reference to the name of a label, until that to its value.
    let mut name = None;
    let mut add = |reference: u64| match name.take() {
        None => {
            name = Some(reference);
            Ok(())
        }
        Some(name) => labels.push(request.symbol(name)?, request.symbol(reference)?),
    };
    let mut fields = Fields(bytes);
    while let Some((_, value)) = fields.next()? {
        match value {
            Value::Varint(reference) => add(reference)?,
            Value::Bytes(packed) => {
                let mut packed = Fields(packed);
                while !packed.0.is_empty() {
                    add(packed.varint()?)?;
                }
            }
            _ => return Err(Broken.into()),
        }
    }
    match name {
        Some(_) => Err(Broken.into()),
        None => Ok(labels.labels),
    }
}

impl Request {
    fn symbol(&self, reference: u64) -> Result<&str, Broken> {
        let index = usize::try_from(reference).map_err(|_| Broken)?;
        let (from, to) = self.symbols.get(index).ok_or(Broken)?;
        let bytes = self.bytes.get(*from as usize..*to as usize).ok_or(Broken)?;
        std::str::from_utf8(bytes).map_err(|_| Broken)
    }
}

/// The unit of a metric, by what its sender tells, or its name; a text without a UCUM code is kept as it is.
fn unit(name: &str, told: &str) -> Option<String> {
    // Counts and buckets have no unit, whatever is measured.
    if name.ends_with("_count") || name.ends_with("_bucket") {
        return None;
    }
    let code = to_ucum(Vocabulary::OpenMetrics, told);
    let code = code.or_else(|| of_metric_name(name).map(str::to_owned));
    let text = || told.chars().take(UNIT_CHARS_MAX).collect();
    code.or_else(|| (!told.is_empty()).then(text))
}

/// What an entry of version 2 tells of its metric.
fn metadata<'m>(entry: &Entry, request: &'m Request) -> Result<Metadata<'m>, Broken> {
    let mut metadata = Metadata::default();
    let mut fields = Fields(&request.bytes[entry.rest.clone()]);
    while let Some((number, value)) = fields.next()? {
        if number != 5 {
            continue;
        }
        let mut parts = Fields(value.bytes()?);
        while let Some((number, part)) = parts.next()? {
            match (number, part) {
                (3, Value::Varint(reference)) => metadata.help = request.symbol(reference)?,
                (4, Value::Varint(reference)) => metadata.unit = request.symbol(reference)?,
                _ => {}
            }
        }
    }
    Ok(metadata)
}

/// A series for people: `up{job="a"}`.
fn shown(entry: &Entry, request: &Request) -> String {
    let labels = labels(entry, request).unwrap_or_default();
    let name = labels.iter().find(|(name, _)| *name == "__name__");
    let others = labels.iter().filter(|(name, _)| *name != "__name__");
    let others: Vec<String> = others
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    format!(
        "{}{{{}}}",
        name.map_or("", |(_, name)| name),
        others.join(",")
    )
}
