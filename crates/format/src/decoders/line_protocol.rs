//! InfluxDB's line protocol: `climate,line=3,machine=press celsius=21.5,people=3i 1795255200000000000`.
//!
//! A path is the key of a field, or of a tag. Placeholders are the tags, the fields and `measurement`. The
//! time is the timestamp of the line, if it has one.
//!
//! Source: the InfluxDB line protocol reference (version 2), with the unsigned integers `1u` of version 3.

use std::borrow::Cow;

use chappe_stream::Timestamp;

use super::{Names, lines};
use crate::config::{LineProtocolConfig, Precision};
use crate::decoder::{Record, Sink, limit};
use crate::fault::{Fault, Location, Reason};
use crate::line_protocol::{FieldValue, Line, LineError, unescaped};
use crate::value::Raw;

/// Most tags, and most fields, of a line; reason: they are held, and looked through for each path.
const PAIRS_MAX: usize = 1_024;

#[derive(Debug)]
pub(crate) struct LineProtocolFormat {
    unit: i64,
    slots: Names,
}

impl LineProtocolFormat {
    pub(crate) fn new(config: &LineProtocolConfig) -> Self {
        let unit = match config.precision {
            Precision::S => 1_000_000_000,
            Precision::Ms => 1_000_000,
            Precision::Us => 1_000,
            Precision::Ns => 1,
        };
        Self {
            unit,
            slots: Names::default(),
        }
    }

    pub(crate) fn slot(&mut self, path: &str) -> Result<usize, String> {
        self.slots.slot(path)
    }

    pub(crate) fn decode(&self, text: &[u8], sink: &mut Sink<'_>) -> Result<(), Box<Fault>> {
        for line in lines(text) {
            if line.bytes.trim_ascii_start().starts_with(b"#") {
                continue;
            }
            let location = Location {
                record: sink.next_record(),
                line: line.number,
                byte: line.byte,
            };
            let text = std::str::from_utf8(line.bytes).map_err(|_| Reason::Encoding);
            match text.and_then(|text| self.point(text.trim())) {
                Ok(point) => {
                    if sink.record(location, &point).is_err() {
                        break;
                    }
                }
                Err(reason) => sink.fault(location, reason),
            }
        }
        Ok(())
    }

    fn point<'t>(&'t self, text: &'t str) -> Result<Point<'t>, Reason> {
        let syntax = |error: LineError| Reason::Syntax(error.to_string());
        let line = Line::parse(text).map_err(syntax)?;
        let (measurement, tags) = line.tags().map_err(syntax)?;
        if tags.len() > PAIRS_MAX {
            return Err(limit("tags", PAIRS_MAX as u64));
        }
        let mut fields = Vec::new();
        for field in line.fields() {
            let (key, value) = field.map_err(syntax)?;
            if fields.len() == PAIRS_MAX {
                return Err(limit("fields", PAIRS_MAX as u64));
            }
            fields.push((unescaped(key), raw(value)));
        }
        let time = match line.time {
            None => None,
            Some(time) => Some(time.checked_mul(self.unit).ok_or_else(|| Reason::Time {
                found: time.to_string(),
                wanted: "a time from the year 1678 to 2262".to_owned(),
            })?),
        };
        Ok(Point {
            format: self,
            measurement,
            tags,
            fields,
            time: time.map(Timestamp),
        })
    }
}

fn raw(value: FieldValue<'_>) -> Raw<'_> {
    match value {
        FieldValue::Boolean(flag) => Raw::Boolean(flag),
        FieldValue::Integer(number) => Raw::Integer(number),
        FieldValue::Unsigned(number) => Raw::Unsigned(number),
        FieldValue::Double(number) => Raw::Double(number),
        FieldValue::Text(text) => Raw::Text(text),
    }
}

struct Point<'r> {
    format: &'r LineProtocolFormat,
    measurement: Cow<'r, str>,
    tags: Vec<(Cow<'r, str>, Cow<'r, str>)>,
    fields: Vec<(Cow<'r, str>, Raw<'r>)>,
    time: Option<Timestamp>,
}

impl Point<'_> {
    fn tag(&self, name: &str) -> Option<&str> {
        let found = self.tags.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| &**value)
    }

    fn field(&self, name: &str) -> Option<&Raw<'_>> {
        let found = self.fields.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value)
    }
}

impl Record for Point<'_> {
    fn value(&self, slot: usize) -> Result<Raw<'_>, Reason> {
        let name = &self.format.slots.0[slot];
        if let Some(value) = self.field(name) {
            // A borrowed copy: only escaped strings are owned.
            return Ok(match value {
                Raw::Text(text) => Raw::Text(Cow::Borrowed(text)),
                other => other.clone(),
            });
        }
        let tag = self.tag(name);
        Ok(tag.map_or(Raw::Missing, |tag| Raw::Text(Cow::Borrowed(tag))))
    }

    fn named(&self, name: &str) -> Option<Cow<'_, str>> {
        if name == "measurement" {
            return Some(Cow::Borrowed(&self.measurement));
        }
        if let Some(tag) = self.tag(name) {
            return Some(Cow::Borrowed(tag));
        }
        let text = self.field(name)?.text()?;
        Some(Cow::Owned(text.into_owned()))
    }

    fn time(&self, _: Timestamp) -> Result<Option<Timestamp>, Reason> {
        Ok(self.time)
    }
}
