//! From SQLite's values to the output's.

use rusqlite::types::ValueRef;

use crate::{FieldType, Quality, QueryError, Row, Samples, StreamSchema, Timestamp, Value};

/// What becomes of each column of a result.
#[derive(Clone)]
pub(crate) struct Targets {
    columns: Vec<(String, Target)>,
    width: usize,
}

#[derive(Clone, Copy)]
enum Target {
    Field(usize, FieldType),
    SourceTime,
    Key,
    Quality,
    Nothing,
}

impl Targets {
    /// Matches a result's columns with the output's fields.
    pub(super) fn new(columns: &[String], output: &StreamSchema) -> Result<Self, QueryError> {
        let mut matched = Vec::new();
        for column in columns {
            let name = column.to_ascii_lowercase();
            let field = output.fields.iter().position(|field| field.name == name);
            let target = match (field, name.as_str()) {
                (Some(index), _) => Target::Field(index, output.fields[index].field_type),
                (None, "source_time") => Target::SourceTime,
                (None, "key") => Target::Key,
                (None, "quality") => Target::Quality,
                (None, "receive_time" | "stream" | "sequence") => Target::Nothing,
                (None, _) => return Err(QueryError::Undeclared(column.clone())),
            };
            matched.push((column.clone(), target));
        }
        for (index, field) in output.fields.iter().enumerate() {
            let given = |target: &Target| matches!(target, Target::Field(i, _) if *i == index);
            if !matched.iter().any(|(_, target)| given(target)) {
                return Err(QueryError::Missing(field.name.clone()));
            }
        }
        Ok(Self {
            columns: matched,
            width: output.fields.len(),
        })
    }

    /// How many columns the result has.
    pub(crate) fn len(&self) -> usize {
        self.columns.len()
    }

    /// Reads one row.
    pub(super) fn row(&self, row: &rusqlite::Row<'_>) -> Result<Row, QueryError> {
        let mut out = self.empty_row();
        for index in 0..self.columns.len() {
            let value = row.get_ref(index).map_err(super::sandbox::engine)?;
            self.set(&mut out, index, value)?;
        }
        Ok(out)
    }

    /// A row in which every field is null.
    pub(crate) fn empty_row(&self) -> Row {
        Row {
            values: vec![Value::Null; self.width],
            source_time: None,
            key: None,
            quality: None,
        }
    }

    /// Puts the value of column `index` where it belongs.
    pub(crate) fn set(
        &self,
        out: &mut Row,
        index: usize,
        value: ValueRef<'_>,
    ) -> Result<(), QueryError> {
        let (column, target) = &self.columns[index];
        let wrong = |wanted| QueryError::Type {
            column: column.clone(),
            wanted,
            found: kind(value),
        };
        match *target {
            Target::Nothing => {}
            Target::Field(field, wanted) => {
                out.values[field] = coerce(value, wanted).ok_or_else(|| wrong(wanted))?;
            }
            Target::SourceTime => {
                out.source_time = match coerce(value, FieldType::Integer) {
                    Some(Value::Integer(time)) => Some(Timestamp(time)),
                    Some(_) => None,
                    None => return Err(wrong(FieldType::Integer)),
                }
            }
            Target::Key => {
                out.key = match coerce(value, FieldType::Text) {
                    Some(Value::Text(key)) => Some(key),
                    Some(_) => None,
                    None => return Err(wrong(FieldType::Text)),
                }
            }
            Target::Quality => {
                out.quality = match value {
                    ValueRef::Null => None,
                    ValueRef::Text(b"good") => Some(Quality::Good),
                    ValueRef::Text(b"questionable") => Some(Quality::Questionable),
                    ValueRef::Text(b"bad") => Some(Quality::Bad),
                    _ => return Err(wrong(FieldType::Text)),
                }
            }
        }
        Ok(())
    }

    /// As [`Self::set`] with the blob that stands for `samples`, made only where it is needed.
    pub(crate) fn set_samples(
        &self,
        out: &mut Row,
        index: usize,
        samples: &Samples,
    ) -> Result<(), QueryError> {
        if let (_, Target::Field(field, FieldType::Samples)) = self.columns[index] {
            out.values[field] = Value::Samples(samples.clone());
            return Ok(());
        }
        self.set(out, index, ValueRef::Blob(&encode_samples(samples)))
    }
}

/// The value as one of type `wanted`, or `None` when it does not fit.
fn coerce(value: ValueRef<'_>, wanted: FieldType) -> Option<Value> {
    match (value, wanted) {
        (ValueRef::Null, _) => Some(Value::Null),
        (ValueRef::Integer(0 | 1), FieldType::Boolean) => {
            Some(Value::Boolean(value == ValueRef::Integer(1)))
        }
        (ValueRef::Integer(number), FieldType::Integer) => Some(Value::Integer(number)),
        (ValueRef::Real(number), FieldType::Integer) => whole(number).map(Value::Integer),
        (ValueRef::Integer(number), FieldType::Double) => Some(Value::Double(number as f64)),
        (ValueRef::Real(number), FieldType::Double) => Some(Value::Double(number)),
        (ValueRef::Text(text), FieldType::Text) => {
            Some(Value::Text(String::from_utf8_lossy(text).into_owned()))
        }
        (ValueRef::Blob(bytes), FieldType::Bytes) => Some(Value::Bytes(bytes.to_vec())),
        (ValueRef::Blob(bytes), FieldType::Samples) => decode_samples(bytes).map(Value::Samples),
        _ => None,
    }
}

/// The whole number that `number` is, if it is one.
fn whole(number: f64) -> Option<i64> {
    // 2^63 is the first double that is too large; -2^63 is a whole number of 64 bits.
    const END: f64 = 9_223_372_036_854_775_808.0;
    (number.fract() == 0.0 && (-END..END).contains(&number)).then_some(number as i64)
}

/// Samples as a blob, which [`decode_samples`] reads.
pub(super) fn encode_samples(samples: &Samples) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + samples.values.len() * 8);
    bytes.extend_from_slice(&samples.start.0.to_le_bytes());
    bytes.extend_from_slice(&samples.period_ns.to_le_bytes());
    for value in &samples.values {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn decode_samples(bytes: &[u8]) -> Option<Samples> {
    let mut words = bytes.chunks_exact(8);
    if !words.remainder().is_empty() {
        return None;
    }
    let mut word = || words.next().and_then(|word| <[u8; 8]>::try_from(word).ok());
    let start = Timestamp(i64::from_le_bytes(word()?));
    let period_ns = u64::from_le_bytes(word()?);
    let values = words
        .filter_map(|word| <[u8; 8]>::try_from(word).ok())
        .map(f64::from_le_bytes)
        .collect();
    Some(Samples {
        start,
        period_ns,
        values,
    })
}

/// A value whose type nothing declares.
pub(super) fn plain(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Double(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}

/// About how many bytes a row takes.
pub(crate) fn row_bytes(row: &Row) -> usize {
    let key = row.key.as_ref().map_or(0, String::len);
    size_of::<Row>()
        + key
        + row
            .values
            .iter()
            .map(crate::window::value_bytes)
            .sum::<usize>()
}

fn kind(value: ValueRef<'_>) -> &'static str {
    match value {
        ValueRef::Null => "null",
        ValueRef::Integer(_) => "an integer",
        ValueRef::Real(_) => "a real number",
        ValueRef::Text(_) => "a text",
        ValueRef::Blob(_) => "a blob",
    }
}
