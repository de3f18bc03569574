//! The points of a message.

use std::collections::HashMap;
use std::io::Read as _;

use chappe_format::line_protocol::{FieldValue, Line, line_length, unescaped};
use chappe_stream::{Quality, StreamElement, Timestamp, Value};

use crate::Form;
use crate::clock::now;
use crate::kinds::series::{
    COLUMNS_MAX, Column, ELEMENTS_BYTES, FieldKind, KNOWN_BYTES_MAX, Malformed, PIECE_BYTES,
    POINTS_MAX, Protocol, Refused, SERIES_BYTES_MAX, Series, Tables, source_time,
};

/// Bytes of a message without its compression; reason: agents send some thousand points at once, and a few bytes may
/// be the compression of very many.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Series that are remembered; reason: their texts are held. Those of more are looked up again.
const SERIES_MAX: usize = 65_536;

/// Reads points.
#[derive(Debug, Default)]
pub(super) struct Points {
    /// Series by the texts of their measurements and tags.
    series: HashMap<Box<str>, usize>,
    known: Vec<Known>,
    /// Bytes of both.
    held_bytes: usize,
}

/// A series, with the fields of its last point, which mostly are those of the next one.
#[derive(Debug)]
struct Known {
    series: Series,
    fields: Vec<KnownField>,
}

#[derive(Debug)]
struct KnownField {
    /// As it is written.
    key: Box<str>,
    kind: FieldKind,
    column: usize,
}

/// A message that is being read.
#[derive(Debug)]
pub(super) struct Message {
    text: String,
    /// Whether bytes that are no text were replaced.
    is_lossy: bool,
    at: usize,
    unit_ns: i64,
    /// The time of points that have none.
    received: Timestamp,
}

impl Protocol for Points {
    type Message = Message;

    fn begin(&mut self, body: Vec<u8>, form: Form) -> Result<Message, Malformed> {
        let Form::LineProtocol { unit_ns, is_gzip } = form else {
            let text = "this wrapper takes points: send them to /write or /api/v2/write";
            return Err(Malformed::new(text));
        };
        let bytes = match is_gzip {
            true => inflate(&body)?,
            false => body,
        };
        let (text, is_lossy) = match String::from_utf8(bytes) {
            Ok(text) => (text, false),
            Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
        };
        Ok(Message {
            text,
            is_lossy,
            at: 0,
            unit_ns,
            received: now(),
        })
    }

    fn read(&mut self, message: &mut Message, tables: &mut Tables, refused: &mut Refused) -> bool {
        let (mut points, start) = (0, message.at);
        let times = (message.unit_ns, message.received);
        let is_lossy = message.is_lossy;
        while points < POINTS_MAX
            && message.at - start < PIECE_BYTES
            && tables.held_bytes() < ELEMENTS_BYTES
        {
            let Some(text) = message.line() else {
                return true;
            };
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            points += 1;
            let added = match is_lossy && text.contains(char::REPLACEMENT_CHARACTER) {
                true => Err("unable to parse a point: it is not UTF-8".to_owned()),
                false => self.point(text, times, tables),
            };
            if let Err(reason) = added {
                refused.add(1, reason, text);
            }
        }
        message.at >= message.text.len()
    }
}

impl Message {
    /// The next line, without blanks around it. `None` at the end.
    fn line(&mut self) -> Option<&str> {
        let rest = &self.text[self.at..];
        if rest.is_empty() {
            return None;
        }
        let end = line_length(rest);
        self.at += (end + 1).min(rest.len());
        Some(rest[..end].trim())
    }
}

impl Points {
    /// Adds a point.
    fn point(
        &mut self,
        text: &str,
        (unit_ns, received): (i64, Timestamp),
        tables: &mut Tables,
    ) -> Result<(), String> {
        let unable = |error: chappe_format::line_protocol::LineError| {
            let shown: String = text.chars().take(100).collect();
            format!("unable to parse '{shown}': {error}")
        };
        // The fields of a series that is remembered may become more, too.
        if self.held_bytes > KNOWN_BYTES_MAX {
            self.series.clear();
            self.known.clear();
            self.held_bytes = 0;
        }
        let line = Line::parse(text).map_err(unable)?;
        let time = match line.time {
            None => received,
            Some(time) => source_time(time, unit_ns)?,
        };
        if line.series.len() > SERIES_BYTES_MAX {
            return Err(format!(
                "the measurement and the tags have more than {SERIES_BYTES_MAX} bytes"
            ));
        }
        // All fields are read before the first of them makes a column.
        let mut fields = Vec::new();
        for field in line.fields() {
            let (key, value) = field.map_err(unable)?;
            if fields.len() == COLUMNS_MAX {
                return Err(format!("a point has more than {COLUMNS_MAX} fields"));
            }
            let (kind, value) = value_of(key, value)?;
            fields.push((key, kind, value));
        }
        let index = self.series.get(line.series).copied();
        let mut columns = Vec::with_capacity(fields.len());
        let made = tables.attempt(|tables| {
            let known = index.map(|index| &self.known[index]);
            let made = match known {
                Some(_) => None,
                None => {
                    let (measurement, tags) = line.tags().map_err(unable)?;
                    let tags = tags.iter().map(|(key, value)| (&**key, &**value));
                    Some(tables.series(&measurement, tags, None)?)
                }
            };
            let series = made.as_ref().or(known.map(|known| &known.series));
            let table = series.map_or(0, |series| series.table);
            for (number, (key, kind, _)) in fields.iter().enumerate() {
                let expected = known.and_then(|known| known.fields.get(number));
                columns.push(match expected.filter(|it| it.is(key, *kind)) {
                    Some(expected) => expected.column,
                    None => tables.column(table, Column::Field, &unescaped(key), *kind, None)?,
                });
            }
            Ok(made)
        })?;
        let index = match (index, made) {
            (Some(index), _) => index,
            (None, None) => return Err("the point has no series".to_owned()),
            (None, Some(series)) => self.remember(line.series, series),
        };
        let known = &mut self.known[index];
        let mut values = tables.values(&known.series);
        for (number, ((key, kind, value), column)) in fields.into_iter().zip(columns).enumerate() {
            let expected = known.fields.get(number);
            if !expected.is_some_and(|it| it.is(key, kind)) {
                let others = known.fields.drain(number.min(known.fields.len())..);
                self.held_bytes -= others.map(|it| it.held_bytes()).sum::<usize>();
                let field = KnownField {
                    key: key.into(),
                    kind,
                    column,
                };
                self.held_bytes += field.held_bytes();
                known.fields.push(field);
            }
            if values.len() <= column {
                values.resize(column + 1, Value::Null);
            }
            values[column] = value;
        }
        let element = StreamElement {
            position: Default::default(),
            source_time: time,
            receive_time: received,
            key: None,
            values,
            quality: Quality::Good,
            origin: None,
        };
        tables.push(&known.series, element);
        Ok(())
    }

    /// Remembers a series by its text.
    fn remember(&mut self, text: &str, series: Series) -> usize {
        if self.known.len() >= SERIES_MAX {
            self.series.clear();
            self.known.clear();
            self.held_bytes = 0;
        }
        self.held_bytes += text.len() + series.held_bytes();
        self.known.push(Known {
            series,
            fields: Vec::new(),
        });
        self.series.insert(text.into(), self.known.len() - 1);
        self.known.len() - 1
    }
}

impl KnownField {
    fn is(&self, key: &str, kind: FieldKind) -> bool {
        self.kind == kind && *self.key == *key
    }

    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.key.len()
    }
}

/// The value of a field, with its type in the protocol.
fn value_of(key: &str, value: FieldValue<'_>) -> Result<(FieldKind, Value), String> {
    Ok(match value {
        FieldValue::Boolean(flag) => (FieldKind::Boolean, Value::Boolean(flag)),
        FieldValue::Integer(number) => (FieldKind::Integer, Value::Integer(number)),
        FieldValue::Unsigned(number) => {
            let beyond = |_| format!("field \"{key}\": {number} is above {}", i64::MAX);
            let number = i64::try_from(number).map_err(beyond)?;
            (FieldKind::Integer, Value::Integer(number))
        }
        FieldValue::Double(number) if number.is_finite() => {
            (FieldKind::Float, Value::Double(number))
        }
        FieldValue::Double(number) => {
            return Err(format!(
                "field \"{key}\": {number} is not a number that can be stored"
            ));
        }
        FieldValue::Text(text) => (FieldKind::String, Value::Text(text.into_owned())),
    })
}

/// A body without its compression.
fn inflate(body: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut text = Vec::new();
    let mut reader = flate2::bufread::MultiGzDecoder::new(body).take(MESSAGE_BYTES_MAX as u64 + 1);
    reader
        .read_to_end(&mut text)
        .map_err(|error| Malformed::new(format!("the body is not gzip: {error}")))?;
    match text.len() > MESSAGE_BYTES_MAX {
        true => Err(Malformed::too_large(MESSAGE_BYTES_MAX)),
        false => Ok(text),
    }
}
