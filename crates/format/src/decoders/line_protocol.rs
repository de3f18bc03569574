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
use crate::fault::{Fault, Location, Reason, shown};
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
        let (measurement, mut rest) = token(text, b", ");
        if measurement.is_empty() {
            return Err(Reason::syntax("the measurement is missing"));
        }
        let mut tags = Vec::new();
        while let Some(inner) = rest.strip_prefix(',') {
            let (key, after) = token(inner, b"=, ");
            let Some(value) = after.strip_prefix('=').filter(|_| !key.is_empty()) else {
                return Err(Reason::Syntax(format!(
                    "the tag {:?} has no value",
                    shown(inner)
                )));
            };
            let (value, after) = token(value, b", ");
            if value.is_empty() || tags.len() == PAIRS_MAX {
                return Err(match value.is_empty() {
                    true => Reason::Syntax(format!("the tag {key:?} has no value")),
                    false => limit("tags", PAIRS_MAX as u64),
                });
            }
            tags.push((key, value));
            rest = after;
        }
        rest = rest.trim_start_matches(' ');
        let mut fields = Vec::new();
        loop {
            let (key, after) = token(rest, b"=, ");
            let Some(value) = after.strip_prefix('=').filter(|_| !key.is_empty()) else {
                return Err(Reason::syntax("a field `key=value` is missing"));
            };
            let (value, after) = field_value(value)?;
            if fields.len() == PAIRS_MAX {
                return Err(limit("fields", PAIRS_MAX as u64));
            }
            fields.push((key, value));
            match after.strip_prefix(',') {
                Some(after) => rest = after,
                None => {
                    rest = after;
                    break;
                }
            }
        }
        let time = rest.trim();
        let time = match time {
            "" => None,
            _ => {
                let number = time.parse::<i64>().ok();
                let nanoseconds = number.and_then(|number| number.checked_mul(self.unit));
                Some(nanoseconds.ok_or_else(|| Reason::Time {
                    found: shown(time),
                    wanted: "a whole number since 1970".to_owned(),
                })?)
            }
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

/// The text up to one of the `ends`, with escapes resolved, and the rest from there. A backslash escapes a comma,
/// an equals sign or a blank; before another character, also a backslash, it is itself.
fn token<'t>(text: &'t str, ends: &[u8]) -> (Cow<'t, str>, &'t str) {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut has_escape = false;
    while let Some(byte) = bytes.get(at) {
        let is_escape = *byte == b'\\' && matches!(bytes.get(at + 1), Some(b',' | b'=' | b' '));
        if is_escape {
            has_escape = true;
            at += 2;
        } else if ends.contains(byte) {
            break;
        } else {
            at += 1;
        }
    }
    let (token, rest) = text.split_at(at);
    if !has_escape {
        return (Cow::Borrowed(token), rest);
    }
    let mut plain = String::with_capacity(token.len());
    let mut chars = token.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.next_if(|next| c == '\\' && matches!(next, ',' | '=' | ' '));
        plain.push(next.unwrap_or(c));
    }
    (Cow::Owned(plain), rest)
}

fn field_value(text: &str) -> Result<(Raw<'_>, &str), Reason> {
    if let Some(inner) = text.strip_prefix('"') {
        return string(inner);
    }
    let end = text.find([',', ' ']).unwrap_or(text.len());
    let (value, rest) = text.split_at(end);
    let wrong = || Reason::Syntax(format!("{:?} is no value of a field", shown(value)));
    let raw = match value {
        "t" | "T" | "true" | "True" | "TRUE" => Raw::Boolean(true),
        "f" | "F" | "false" | "False" | "FALSE" => Raw::Boolean(false),
        _ => match (value.strip_suffix('i'), value.strip_suffix('u')) {
            (Some(number), _) => Raw::Integer(number.parse().map_err(|_| wrong())?),
            (_, Some(number)) => Raw::Unsigned(number.parse().map_err(|_| wrong())?),
            _ => Raw::Double(value.parse().map_err(|_| wrong())?),
        },
    };
    Ok((raw, rest))
}

/// A string after its opening quote: `\"` is a quote, `\\` a backslash, and another backslash is itself.
fn string(text: &str) -> Result<(Raw<'_>, &str), Reason> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut has_escape = false;
    while let Some(byte) = bytes.get(at) {
        match (byte, bytes.get(at + 1)) {
            (b'"', _) => break,
            (b'\\', Some(b'"' | b'\\')) => {
                has_escape = true;
                at += 2;
            }
            _ => at += 1,
        }
    }
    let Some(rest) = text.get(at + 1..) else {
        return Err(Reason::syntax("a string has no closing quote"));
    };
    let string = &text[..at];
    if !has_escape {
        return Ok((Raw::Text(Cow::Borrowed(string)), rest));
    }
    let mut plain = String::with_capacity(string.len());
    let mut chars = string.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.next_if(|next| c == '\\' && matches!(next, '"' | '\\'));
        plain.push(next.unwrap_or(c));
    }
    Ok((Raw::Text(Cow::Owned(plain)), rest))
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
