//! Rows of a CSV file with a header (RFC 4180). A file that `chappe export` has written is one.
//!
//! The columns `source_time`, `receive_time`, `key` and `quality` are those of every element, and those with the
//! position of an element are passed over; each other column is a field. A column whose cells are all `true` and
//! `false`, whole numbers or numbers has that type, unless its field is declared.

use std::path::Path;
use std::sync::Arc;

use chappe_stream::lines::{ElementReader, Format};
use chappe_stream::trial::ELEMENTS_MAX;
use chappe_stream::{Field, FieldType, Quality, StreamElement, StreamSchema, Timestamp, Value};
use serde_json::Value as Json;

use super::rows::Row;
use crate::command::export::elements::value;
use crate::command::text_file;
use crate::output::Failure;

/// Longest file in bytes; reason: 100,000 elements of some hundred bytes, held whole.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Reads the rows of a file.
pub(super) fn read(path: &Path, declared: &[Field]) -> Result<Vec<Row>, Failure> {
    let text = text_file::read(path, FILE_BYTES_MAX)?;
    rows(&path.display().to_string(), &text, declared)
}

fn rows(file: &str, text: &str, declared: &[Field]) -> Result<Vec<Row>, Failure> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (head, body) = text.split_once('\n').unwrap_or((text, ""));
    let names: Vec<&str> = head
        .trim_end_matches('\r')
        .split(',')
        .map(|name| name.trim().trim_matches('"'))
        .collect();
    for (index, name) in names.iter().enumerate() {
        if name.is_empty() || names[..index].contains(name) {
            let message = format!(
                "{file}: line 1: column {} has no name of its own",
                index + 1
            );
            return Err(Failure::new(message)
                .coded("input_invalid")
                .hint("name each column in the first line"));
        }
    }
    let elements = cells(file, names.len(), body)?;
    let types: Vec<FieldType> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let declared = declared.iter().find(|field| field.name == *name);
            declared.map_or_else(
                || type_of(elements.iter().map(|(_, it)| &it.values[index])),
                |field| field.field_type,
            )
        })
        .collect();
    let mut rows = Vec::with_capacity(elements.len());
    for (line, element) in &elements {
        let place = format!("{file}: line {line}");
        rows.push(row(place, &names, &types, element)?);
    }
    Ok(rows)
}

/// The cells of each line as texts.
fn cells(file: &str, columns: usize, body: &str) -> Result<Vec<(u64, StreamElement)>, Failure> {
    let fields = (0..columns).map(|index| Field {
        name: format!("c{index}"),
        field_type: FieldType::Text,
        unit: None,
        observed_property: None,
        description: None,
    });
    let schema = StreamSchema {
        fields: fields.collect(),
        key: None,
    };
    let names: Vec<&str> = schema.fields.iter().map(|field| &*field.name).collect();
    let head = format!("{}\n", names.join(","));
    let mut reader = ElementReader::new(Format::Csv, Arc::new(schema.clone()), i64::MAX);
    let mut lines = Vec::new();
    let now = Timestamp::default();
    let read = reader
        .push(head.as_bytes(), now, &mut lines)
        .and_then(|()| reader.push(body.as_bytes(), now, &mut lines))
        .and_then(|()| reader.finish(now, &mut lines));
    read.map_err(|broken| {
        Failure::new(format!("{file}: line {}: {}", broken.line, broken.reason))
            .coded("input_invalid")
    })?;
    if lines.len() > ELEMENTS_MAX {
        let message = format!("{file} has {} rows, more than {ELEMENTS_MAX}", lines.len());
        return Err(Failure::new(message)
            .coded("file_too_large")
            .hint("cut it into shorter files"));
    }
    let mut elements = Vec::with_capacity(lines.len());
    for line in lines {
        let element = line.element.map_err(|error| {
            Failure::new(format!("{file}: line {}: {error}", line.line)).coded("input_invalid")
        })?;
        elements.push((line.line, element));
    }
    Ok(elements)
}

/// The narrowest type that all cells of a column have.
fn type_of<'a>(cells: impl Iterator<Item = &'a Value>) -> FieldType {
    let (mut is_boolean, mut is_integer, mut is_number, mut any) = (true, true, true, false);
    for cell in cells {
        let Value::Text(text) = cell else { continue };
        let text = text.trim();
        any = true;
        is_boolean &= matches!(text, "true" | "false");
        is_integer &= text.parse::<i64>().is_ok();
        is_number &= text.parse::<f64>().is_ok();
    }
    match (any, is_boolean, is_integer, is_number) {
        (false, ..) => FieldType::Double,
        (_, true, ..) => FieldType::Boolean,
        (_, _, true, _) => FieldType::Integer,
        (_, _, _, true) => FieldType::Double,
        _ => FieldType::Text,
    }
}

fn row(
    place: String,
    names: &[&str],
    types: &[FieldType],
    element: &StreamElement,
) -> Result<Row, Failure> {
    let mut row = Row {
        place,
        time: None,
        received: None,
        key: None,
        quality: Quality::Good,
        values: Vec::new(),
    };
    let columns = names.iter().zip(types).zip(&element.values);
    for ((name, field_type), cell) in columns {
        let text = match cell {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        };
        let place = &row.place;
        let wrong = |what: &str| {
            let text = text.unwrap_or_default();
            Failure::new(format!("{place}: {name}: {text:?} is not {what}")).coded("input_invalid")
        };
        match (*name, text) {
            ("epoch" | "sequence", _) => {}
            ("source_time" | "receive_time" | "key" | "quality", None) => {}
            ("source_time" | "receive_time", Some(text)) => {
                let time = Timestamp::parse(text.trim())
                    .ok_or_else(|| wrong("a time").hint("write it as 2026-11-21T10:00:00Z"))?;
                match *name {
                    "source_time" => row.time = Some(time),
                    _ => row.received = Some(time),
                }
            }
            ("key", Some(text)) => row.key = Some(text.to_owned()),
            ("quality", Some(text)) => {
                row.quality = quality(text.trim())
                    .ok_or_else(|| wrong("a quality").hint("write good, questionable or bad"))?;
            }
            (_, None) => row.values.push(((*name).to_owned(), Value::Null)),
            (_, Some(text)) => {
                let value = typed(text, *field_type)
                    .ok_or_else(|| wrong(&format!("of type {field_type:?}")))?;
                row.values.push(((*name).to_owned(), value));
            }
        }
    }
    Ok(row)
}

/// A quality by its name.
pub(super) fn quality(text: &str) -> Option<Quality> {
    let all = [Quality::Good, Quality::Questionable, Quality::Bad];
    all.into_iter().find(|quality| quality.name() == text)
}

/// A cell as a value of a type; `NaN` and `Infinity` are numbers, as `chappe export` writes them.
fn typed(text: &str, field_type: FieldType) -> Option<Value> {
    Some(match field_type {
        FieldType::Boolean => Value::Boolean(text.trim().parse().ok()?),
        FieldType::Integer => Value::Integer(text.trim().parse().ok()?),
        FieldType::Double => Value::Double(text.trim().parse().ok()?),
        FieldType::Text => Value::Text(text.to_owned()),
        FieldType::Bytes => value(&Json::String(text.to_owned()), field_type)?,
        FieldType::Samples => value(&serde_json::from_str(text).ok()?, field_type)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::trial::fields;

    #[test]
    fn columns_have_the_narrowest_type() {
        let text = "source_time,n,x,on,what,none\r\n\
                    2026-11-21T10:00:00Z,1,1,true,\"a,b\",\r\n2026-11-21T10:00:01Z,2,2.5,false,,\r\n";
        let read = rows("a.csv", text, &[]).unwrap();
        let wanted = [
            ("n", Value::Integer(2)),
            ("x", Value::Double(2.5)),
            ("on", Value::Boolean(false)),
            ("what", Value::Null),
            ("none", Value::Null),
        ];
        let wanted: Vec<_> = wanted.map(|(name, value)| (name.to_owned(), value)).into();
        assert_eq!(read[1].values, wanted);
        assert_eq!(read[0].values[3].1, Value::Text("a,b".to_owned()));
        assert_eq!(read[1].time, Timestamp::parse("2026-11-21T10:00:01Z"));
    }

    #[test]
    fn an_exported_file_is_read() {
        let text = "epoch,sequence,source_time,receive_time,key,quality,x\n\
                    000000000000000a,7,2026-11-21T10:00:00Z,2026-11-21T10:00:02Z,,bad,1.5\n";
        let read = rows("a.csv", text, &[]).unwrap();
        assert_eq!((read[0].quality, &read[0].key), (Quality::Bad, &None));
        assert_eq!(read[0].received, Timestamp::parse("2026-11-21T10:00:02Z"));
        assert_eq!(read[0].values, [("x".to_owned(), Value::Double(1.5))]);
    }

    #[test]
    fn declared_fields_have_their_type_and_wrong_cells_are_named() {
        let declared = fields(&["x:double:Cel".to_owned()]).unwrap();
        let read = rows("a.csv", "x\n1\n", &declared).unwrap();
        assert_eq!(read[0].values[0].1, Value::Double(1.0));
        for (text, words) in [
            ("x\n1\nwarm\n", "line 3: x: \"warm\" is not of type Double"),
            ("x,x\n1,2\n", "column 2 has no name of its own"),
            ("x,y\n1\n", "line 2: it has 1 cells"),
            ("source_time,x\nnoon,1\n", "\"noon\" is not a time"),
            ("quality,x\nfine,1\n", "\"fine\" is not a quality"),
        ] {
            let error = rows("a.csv", text, &declared).unwrap_err();
            assert!(error.message.contains(words), "{}", error.message);
        }
    }
}
