//! The samples of a request.

use std::collections::HashMap;

use chappe_stream::{Quality, StreamElement, Timestamp, Value as StreamValue};

use super::wire::{Broken, Fields, Value};
use crate::Form;
use crate::clock::now;
use crate::kinds::series::{
    Column, FieldKind, Malformed, POINTS_MAX, Protocol, Refused, Series, Tables, unit_of_name,
    unit_of_word,
};

/// Bytes of a request without its compression; reason: senders send some thousand samples at once, and a few bytes
/// may be the compression of very many.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Series that are remembered; reason: their texts are held. Those of more are looked up again.
const SERIES_MAX: usize = 65_536;
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
            received: now(),
        })
    }

    fn read(&mut self, request: &mut Request, tables: &mut Tables, refused: &mut Refused) -> bool {
        let number_of_series = if request.is_version_2 { 5 } else { 1 };
        let mut points = 0;
        let mut fields = Fields(&request.bytes[request.at..]);
        while points < POINTS_MAX {
            let field = fields.next();
            request.at = request.bytes.len() - fields.0.len();
            match field {
                Ok(None) => return true,
                Ok(Some((number, Value::Bytes(bytes)))) if number == number_of_series => {
                    match Entry::of(bytes, request.is_version_2) {
                        Ok(entry) => points += self.entry(&entry, request, tables, refused),
                        Err(Broken) => refused.add(1, Broken.to_string(), ""),
                    }
                }
                Ok(Some(_)) => {}
                Err(Broken) => {
                    refused.add(1, Broken.to_string(), "");
                    return true;
                }
            }
        }
        fields.0.is_empty()
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

/// A time series of a request.
struct Entry<'m> {
    /// The labels, as they are encoded.
    labels: &'m [u8],
    /// What follows them.
    rest: &'m [u8],
}

impl<'m> Entry<'m> {
    /// Divides a time series. Its labels come first, as every encoder writes them.
    fn of(bytes: &'m [u8], is_version_2: bool) -> Result<Self, Broken> {
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
        let (labels, rest) = bytes.split_at(end);
        Ok(Self { labels, rest })
    }
}

/// What a time series of version 2 tells of its metric.
#[derive(Debug, Default)]
struct Metadata<'m> {
    help: &'m str,
    unit: &'m str,
}

impl Samples {
    /// Adds the samples of a time series; returns how many there were, at least 1.
    fn entry(
        &mut self,
        entry: &Entry<'_>,
        request: &Request,
        tables: &mut Tables,
        refused: &mut Refused,
    ) -> usize {
        let (mut count, mut histograms) = (0, 0);
        let known = self.known(entry, request, tables);
        let mut fields = Fields(entry.rest);
        let histogram = if request.is_version_2 { 3 } else { 4 };
        let mut broken = false;
        loop {
            match fields.next() {
                Ok(Some((2, Value::Bytes(sample)))) => {
                    count += 1;
                    let added = match &known {
                        Ok(index) => {
                            let known = &self.known[*index];
                            add(known, sample, request.received, tables)
                        }
                        Err(reason) => Err(reason.clone()),
                    };
                    if let Err(reason) = added {
                        refused.add(1, reason, &shown(entry, request));
                    }
                }
                Ok(Some((number, _))) if number == histogram => histograms += 1,
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(Broken) => {
                    broken = true;
                    break;
                }
            }
        }
        if broken {
            refused.add(1, Broken.to_string(), &shown(entry, request));
        }
        if histograms > 0 {
            let reason = "native histograms are not stored; send classic ones";
            refused.add(histograms, reason, &shown(entry, request));
        }
        (count + 1).max(usize::try_from(histograms).unwrap_or(usize::MAX))
    }

    /// The series of an entry.
    fn known(
        &mut self,
        entry: &Entry<'_>,
        request: &Request,
        tables: &mut Tables,
    ) -> Result<usize, String> {
        let texts;
        let key = match request.is_version_2 {
            false => entry.labels,
            true => {
                let labels = labels(entry, request)?;
                let mut joined = Vec::with_capacity(entry.labels.len() * 16);
                for (name, value) in labels {
                    joined.extend(name.as_bytes());
                    joined.push(SEPARATOR);
                    joined.extend(value.as_bytes());
                    joined.push(SEPARATOR);
                }
                texts = joined;
                &texts
            }
        };
        if let Some(index) = self.series.get(key) {
            return Ok(*index);
        }
        let labels = labels(entry, request)?;
        let name = labels.iter().find(|(name, _)| *name == "__name__");
        let (_, name) = name.ok_or("a series has no label __name__")?;
        let metadata = metadata(entry, request).unwrap_or_default();
        let others = labels.iter().filter(|(name, _)| *name != "__name__");
        let series = tables.series(name, others.copied(), Some(metadata.help))?;
        // Counts and buckets have no unit, whatever is measured.
        let is_count = name.ends_with("_count") || name.ends_with("_bucket");
        let unit = unit_of_word(metadata.unit).filter(|_| !is_count);
        let unit = unit.or_else(|| unit_of_name(name));
        let float = FieldKind::Float;
        let column = tables.column(series.table, Column::Field, "value", float, unit)?;
        if self.known.len() >= SERIES_MAX {
            self.series.clear();
            self.known.clear();
        }
        self.known.push(Known { series, column });
        self.series.insert(key.into(), self.known.len() - 1);
        Ok(self.known.len() - 1)
    }
}

/// Adds a sample.
fn add(
    known: &Known,
    sample: &[u8],
    received: Timestamp,
    tables: &mut Tables,
) -> Result<(), String> {
    let broken = |broken: Broken| broken.to_string();
    let (mut number, mut time_ms) = (0.0, 0);
    let mut fields = Fields(sample);
    while let Some((field, value)) = fields.next().map_err(broken)? {
        match field {
            1 => number = value.double().map_err(broken)?,
            2 => time_ms = value.signed().map_err(broken)?,
            _ => {}
        }
    }
    let time = time_ms.checked_mul(MS);
    let time = time.ok_or_else(|| format!("time {time_ms} is outside the years 1678 to 2262"))?;
    let mut values = tables.values(&known.series);
    let is_stale = f64::to_bits(number) == STALE;
    values[known.column] = match is_stale {
        true => StreamValue::Null,
        false => StreamValue::Double(number),
    };
    let element = StreamElement {
        position: Default::default(),
        source_time: Timestamp(time),
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
    Ok(())
}

/// The labels of an entry.
fn labels<'m>(entry: &Entry<'m>, request: &'m Request) -> Result<Vec<(&'m str, &'m str)>, String> {
    let labels = match request.is_version_2 {
        true => labels_2(entry, request),
        false => labels_1(entry),
    };
    let labels = labels.map_err(|broken| broken.to_string())?;
    match labels.len() > LABELS_MAX {
        true => Err(format!("a series has more than {LABELS_MAX} labels")),
        false => Ok(labels),
    }
}

fn labels_1<'m>(entry: &Entry<'m>) -> Result<Vec<(&'m str, &'m str)>, Broken> {
    let mut labels = Vec::new();
    let mut fields = Fields(entry.labels);
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
        // An empty value is that of a label that is not there.
        if !value.is_empty() && labels.len() <= LABELS_MAX {
            labels.push((name, value));
        }
    }
    Ok(labels)
}

fn labels_2<'m>(
    entry: &Entry<'_>,
    request: &'m Request,
) -> Result<Vec<(&'m str, &'m str)>, Broken> {
    let mut references = Vec::new();
    let mut add = |number| {
        if references.len() <= 2 * LABELS_MAX + 1 {
            references.push(number);
        }
    };
    let mut fields = Fields(entry.labels);
    while let Some((_, value)) = fields.next()? {
        match value {
            Value::Varint(number) => add(number),
            Value::Bytes(packed) => {
                let mut packed = Fields(packed);
                while !packed.0.is_empty() {
                    add(packed.varint()?);
                }
            }
            _ => return Err(Broken),
        }
    }
    let (pairs, rest) = references.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Broken);
    }
    let mut labels = Vec::with_capacity(pairs.len());
    for [name, value] in pairs {
        let (name, value) = (request.symbol(*name)?, request.symbol(*value)?);
        if !value.is_empty() {
            labels.push((name, value));
        }
    }
    Ok(labels)
}

impl Request {
    fn symbol(&self, reference: u64) -> Result<&str, Broken> {
        let index = usize::try_from(reference).map_err(|_| Broken)?;
        let (from, to) = self.symbols.get(index).ok_or(Broken)?;
        let bytes = self.bytes.get(*from as usize..*to as usize).ok_or(Broken)?;
        std::str::from_utf8(bytes).map_err(|_| Broken)
    }
}

/// What an entry of version 2 tells of its metric.
fn metadata<'m>(entry: &Entry<'_>, request: &'m Request) -> Result<Metadata<'m>, Broken> {
    let mut metadata = Metadata::default();
    let mut fields = Fields(entry.rest);
    while let Some((number, value)) = fields.next()? {
        if number != 5 || !request.is_version_2 {
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
fn shown(entry: &Entry<'_>, request: &Request) -> String {
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
