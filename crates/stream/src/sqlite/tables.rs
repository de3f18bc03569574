//! The tables of one source, kept in step with its window.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ToSql};

use super::rows::encode_samples;
use super::sandbox::{Reads, Sandbox, engine, quoted};
use crate::window::value_bytes;
use crate::{
    Arrival, FieldType, QueryError, QuerySource, RESERVED_COLUMNS, Samples, StreamElement,
    StreamSchema, Value, WindowChange, column_name,
};

/// Most samples of one element in the table of samples. An element's rows are numbered within a
/// block of this size, so that they are removed by range.
pub const SAMPLES_MAX: usize = 1 << 20;

/// The name of a source with this after it is the name of its table of samples.
pub(super) const SAMPLES_SUFFIX: &str = "_samples";

/// About how many bytes a row takes besides its texts and its fields: numbers, times, quality, and
/// SQLite's own.
const ROW_BYTES: usize = 80;

/// The type that a column of every stream declares, so that SQLite converts the other side of a comparison. The
/// number of an element has none: a view of stored elements is read in its order, which a conversion would hide.
pub(super) fn reserved_type(column: &str) -> &'static str {
    match column {
        "source_time" | "receive_time" => "integer",
        "sequence" => "",
        _ => "text",
    }
}

/// The type that the column of a field declares; empty: none. A table of SQLite has no negative zero in a column of
/// reals, so that doubles have none.
pub(super) fn declared_type(field: FieldType) -> &'static str {
    match field {
        FieldType::Boolean | FieldType::Integer => "integer",
        FieldType::Text => "text",
        FieldType::Double | FieldType::Bytes | FieldType::Samples => "",
    }
}

/// The columns that every stream has, as a table declares them.
fn reserved_columns() -> impl Iterator<Item = String> {
    let names = RESERVED_COLUMNS.iter();
    names.map(|name| format!("{} {}", quoted(name), reserved_type(name)))
}

/// One of the tables of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A row for each element.
    Rows,
    /// A row for each sample.
    Samples,
}

impl Part {
    const BOTH: [Self; 2] = [Self::Rows, Self::Samples];
}

/// Whether elements of this schema have samples.
pub(super) fn has_samples(schema: &StreamSchema) -> bool {
    let mut fields = schema.fields.iter();
    fields.any(|field| field.field_type == FieldType::Samples)
}

/// The tables of a source.
pub(super) struct SourceTable {
    alias: String,
    samples_name: String,
    fields: Vec<(String, FieldType)>,
    /// For each field, whether the statement reads its column.
    read: Vec<bool>,
    /// The field whose samples alone are in the table of samples, if it is one of samples.
    value: Option<usize>,
    rows: bool,
    samples: bool,
    insert: String,
    delete: String,
    insert_sample: String,
    delete_samples: String,
}

impl SourceTable {
    /// Makes the empty tables of `source`.
    pub(super) fn create(sandbox: &mut Sandbox, source: &QuerySource) -> Result<Self, QueryError> {
        Self::create_parts(sandbox, source, &Part::BOTH)
    }

    /// Makes these of the tables of `source`.
    pub(super) fn create_parts(
        sandbox: &mut Sandbox,
        source: &QuerySource,
        parts: &[Part],
    ) -> Result<Self, QueryError> {
        let element = |why: String| QueryError::Element {
            alias: source.alias.clone(),
            why,
        };
        source
            .schema
            .check_names()
            .map_err(|error| element(error.to_string()))?;
        let fields: Vec<_> = source
            .schema
            .fields
            .iter()
            .map(|field| (field.name.clone(), field.field_type))
            .collect();
        let value = match &source.value {
            None => None,
            Some(value) => Some(
                (fields.iter().position(|(name, _)| name == value))
                    .ok_or_else(|| element(format!("there is no field {value:?}")))?,
            ),
        };
        let mut columns: Vec<String> = RESERVED_COLUMNS.iter().map(|name| quoted(name)).collect();
        columns.extend(fields.iter().map(|(name, _)| quoted(&column_name(name))));
        let rows = parts.contains(&Part::Rows);
        if rows {
            let declared = fields.iter().map(|(name, field)| {
                format!("{} {}", quoted(&column_name(name)), declared_type(*field))
            });
            let declared: Vec<String> = reserved_columns().chain(declared).collect();
            sandbox.create_table(&source.alias, &declared.join(","))?;
        }
        let samples_name = format!("{}{SAMPLES_SUFFIX}", source.alias);
        let samples = parts.contains(&Part::Samples) && has_samples(&source.schema);
        if samples {
            sandbox.create_table(&samples_name, SAMPLES_DECLARED)?;
        }
        let (table, marks) = (quoted(&source.alias), vec!["?"; columns.len()].join(","));
        let names = columns.join(",");
        let sampled = quoted(&samples_name);
        Ok(Self {
            alias: source.alias.clone(),
            read: vec![true; fields.len()],
            value,
            rows,
            samples,
            insert: format!("insert into {table}(rowid,{names}) values(?,{marks})"),
            delete: format!("delete from {table} where rowid between ? and ?"),
            insert_sample: format!(
                "insert into {sampled}(rowid,sequence,time,value,field,stream,key) \
                 values(?,?,?,?,?,?,?)"
            ),
            delete_samples: format!("delete from {sampled} where rowid between ? and ?"),
            samples_name,
            fields,
        })
    }

    /// Makes the tables of a source whose fields are not known.
    pub(super) fn create_unknown(sandbox: &mut Sandbox, alias: &str) -> Result<(), QueryError> {
        let columns: Vec<String> = reserved_columns().collect();
        sandbox.create_table(alias, &columns.join(","))?;
        sandbox.create_table(&format!("{alias}{SAMPLES_SUFFIX}"), SAMPLES_DECLARED)
    }

    /// Leaves out the columns that the statement does not read, where these are known.
    pub(super) fn drop_unread_columns(&mut self, reads: Option<&Reads>) {
        let Some(reads) = reads else { return };
        let alias = self.alias.to_ascii_lowercase();
        let samples = self.samples_name.to_ascii_lowercase();
        self.rows &= reads.iter().any(|(table, _)| *table == alias);
        self.samples &= reads.iter().any(|(table, _)| *table == samples);
        for ((name, _), read) in self.fields.iter().zip(&mut self.read) {
            *read = reads.contains(&(alias.clone(), column_name(name)));
        }
    }

    /// About how many bytes an element takes in the tables that are filled.
    pub(super) fn bytes_of(&self, element: &StreamElement) -> usize {
        // Each row has the name of the stream, which is about as long as the alias.
        let row = ROW_BYTES + self.alias.len() + element.key.as_ref().map_or(0, String::len);
        let mut bytes = 0;
        if self.rows {
            let read = element.values.iter().zip(&self.read);
            let values = read.filter(|(_, read)| **read);
            bytes += row + values.map(|(value, _)| value_bytes(value)).sum::<usize>();
        }
        if self.samples {
            let samples = element.values.iter().map(|value| match value {
                Value::Samples(samples) => samples.values.len(),
                _ => 0,
            });
            bytes += samples.sum::<usize>() * row;
        }
        bytes
    }

    /// Takes rows away and adds rows, as the window did.
    pub(super) fn apply(
        &self,
        connection: &Connection,
        change: &WindowChange,
    ) -> Result<(), QueryError> {
        for (first, last) in ranges(&change.removed) {
            if self.rows {
                let mut delete = connection.prepare_cached(&self.delete).map_err(engine)?;
                delete.execute([first, last]).map_err(engine)?;
            }
            if self.samples {
                let mut delete = connection
                    .prepare_cached(&self.delete_samples)
                    .map_err(engine)?;
                let block = SAMPLES_MAX as i64;
                delete
                    .execute([first * block, last * block + (block - 1)])
                    .map_err(engine)?;
            }
        }
        if self.rows && !change.added.is_empty() {
            let mut insert = connection.prepare_cached(&self.insert).map_err(engine)?;
            for arrival in &change.added {
                self.insert(&mut insert, arrival)?;
            }
        }
        if self.samples && !change.added.is_empty() {
            let mut insert = connection
                .prepare_cached(&self.insert_sample)
                .map_err(engine)?;
            for arrival in &change.added {
                self.insert_samples(&mut insert, arrival)?;
            }
        }
        Ok(())
    }

    fn insert(
        &self,
        insert: &mut CachedStatement<'_>,
        arrival: &Arrival,
    ) -> Result<(), QueryError> {
        let element = &arrival.element;
        if element.values.len() != self.fields.len() {
            return Err(self.error("it has another number of values than the schema has fields"));
        }
        let fixed: [&dyn ToSql; 7] = [
            &row_id(arrival),
            &element.source_time.0,
            &element.receive_time.0,
            &element.key.as_deref(),
            &&*arrival.stream,
            &element.position.sequence.cast_signed(),
            &element.quality.name(),
        ];
        let mut index = 0;
        let mut bind = |value: &dyn ToSql| {
            index += 1;
            insert.raw_bind_parameter(index, value)
        };
        for value in fixed {
            bind(value).map_err(engine)?;
        }
        for (value, read) in element.values.iter().zip(&self.read) {
            let value = if *read { column(value) } else { NULL };
            bind(&value).map_err(|error| self.refused(error))?;
        }
        insert.raw_execute().map_err(|error| self.refused(error))?;
        Ok(())
    }

    fn insert_samples(
        &self,
        insert: &mut CachedStatement<'_>,
        arrival: &Arrival,
    ) -> Result<(), QueryError> {
        let mut row = row_id(arrival) * SAMPLES_MAX as i64;
        let end = row + SAMPLES_MAX as i64;
        let element = &arrival.element;
        let sequence = element.position.sequence.cast_signed();
        let only = (self.value).filter(|value| self.fields[*value].1 == FieldType::Samples);
        for (index, (value, (name, _))) in element.values.iter().zip(&self.fields).enumerate() {
            let Value::Samples(samples) = value else {
                continue;
            };
            if only.is_some_and(|only| only != index) {
                continue;
            }
            for (time, value) in timed(samples) {
                if row >= end {
                    return Err(self.error("it has more than 1,048,576 samples"));
                }
                let key = element.key.as_deref();
                insert
                    .execute((row, sequence, time, value, name, &*arrival.stream, key))
                    .map_err(engine)?;
                row += 1;
            }
        }
        Ok(())
    }

    /// An element that SQLite does not take, or for which it has no memory.
    fn refused(&self, error: rusqlite::Error) -> QueryError {
        match engine(error) {
            QueryError::Engine(why) => self.error(&why),
            limit => limit,
        }
    }

    fn error(&self, why: &str) -> QueryError {
        QueryError::Element {
            alias: self.alias.clone(),
            why: why.to_owned(),
        }
    }
}

/// The columns of a table of samples.
pub(super) const SAMPLES_COLUMNS: &str = "sequence,time,value,field,stream,key";
/// The same with their types.
const SAMPLES_DECLARED: &str = "sequence,time integer,value,field text,stream text,key text";
const NULL: ToSqlOutput<'_> = ToSqlOutput::Borrowed(ValueRef::Null);

/// Each sample with its time in nanoseconds.
fn timed(samples: &Samples) -> impl Iterator<Item = (i64, f64)> {
    let start = i128::from(samples.start.0);
    let period = i128::from(samples.period_ns);
    samples
        .values
        .iter()
        .enumerate()
        .map(move |(index, value)| {
            let time = start + period * index as i128;
            (i64::try_from(time).unwrap_or(i64::MAX), *value)
        })
}

pub(super) fn column(value: &Value) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(match value {
        Value::Null => ValueRef::Null,
        Value::Boolean(value) => ValueRef::Integer(i64::from(*value)),
        Value::Integer(value) => ValueRef::Integer(*value),
        Value::Double(value) => ValueRef::Real(*value),
        Value::Text(text) => ValueRef::Text(text.as_bytes()),
        Value::Bytes(bytes) => ValueRef::Blob(bytes),
        Value::Samples(samples) => {
            return ToSqlOutput::Owned(rusqlite::types::Value::Blob(encode_samples(samples)));
        }
    })
}

fn row_id(arrival: &Arrival) -> i64 {
    // A window numbers from zero: 2^43 arrivals, times the samples of one, are far off.
    (arrival.number & ((1 << 42) - 1)).cast_signed()
}

/// Runs of following numbers, first and last.
fn ranges(numbers: &[u64]) -> Vec<(i64, i64)> {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for number in numbers {
        let number = number.cast_signed();
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn following_numbers_are_one_range() {
        assert_eq!(ranges(&[]), []);
        assert_eq!(ranges(&[1, 2, 3, 5, 7, 8]), [(1, 3), (5, 5), (7, 8)]);
    }

    #[test]
    fn samples_beyond_time_stay_at_its_end() {
        let samples = Samples {
            start: crate::Timestamp(i64::MAX - 1),
            period_ns: u64::MAX,
            values: vec![1.0, 2.0],
        };
        let times: Vec<_> = timed(&samples).map(|(time, _)| time).collect();
        assert_eq!(times, [i64::MAX - 1, i64::MAX]);
    }
}
