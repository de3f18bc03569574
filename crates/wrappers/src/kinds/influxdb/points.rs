//! The points of a message.

use std::collections::HashMap;
use std::io::Read as _;

use chappe_format::line_protocol::{FieldValue, Line, line_length, unescaped};
use chappe_stream::{Quality, StreamElement, Timestamp, Value};

use crate::Form;
use crate::clock::now;
use crate::kinds::series::{
    Column, FieldKind, Malformed, PIECE_BYTES, POINTS_MAX, Protocol, Refused, Series, Tables,
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
        while points < POINTS_MAX && message.at - start < PIECE_BYTES {
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
        let line = Line::parse(text).map_err(unable)?;
        let time = match line.time {
            None => received,
            Some(time) => {
                let out = || format!("time {time} is outside the years 1678 to 2262");
                Timestamp(time.checked_mul(unit_ns).ok_or_else(out)?)
            }
        };
        let index = match self.series.get(line.series) {
            Some(index) => *index,
            None => {
                let (measurement, tags) = line.tags().map_err(unable)?;
                let tags = tags.iter().map(|(key, value)| (&**key, &**value));
                let series = tables.series(&measurement, tags, None)?;
                if self.known.len() >= SERIES_MAX {
                    self.series.clear();
                    self.known.clear();
                }
                self.known.push(Known {
                    series,
                    fields: Vec::new(),
                });
                self.series.insert(line.series.into(), self.known.len() - 1);
                self.known.len() - 1
            }
        };
        let known = &mut self.known[index];
        let mut values = tables.values(&known.series);
        for (number, field) in line.fields().enumerate() {
            let (key, value) = field.map_err(unable)?;
            let (kind, value) = value_of(key, value)?;
            let expected = known.fields.get(number);
            let column = match expected.filter(|it| it.kind == kind && *it.key == *key) {
                Some(expected) => expected.column,
                None => {
                    let (table, name) = (known.series.table, unescaped(key));
                    let column = tables.column(table, Column::Field, &name, kind, None)?;
                    known.fields.truncate(number);
                    known.fields.push(KnownField {
                        key: key.into(),
                        kind,
                        column,
                    });
                    column
                }
            };
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
                "field \"{key}\": {number} is no number that can be stored"
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
