//! Files with a row for each element of one stream: CSV, and with the feature `parquet` Parquet and Arrow.
//!
//! The columns are `epoch`, `sequence`, `source_time`, `receive_time`, `key`, `quality`, and one for each field. Rows go
//! to the file in groups, so that memory does not depend on their number.

#[cfg(feature = "parquet")]
mod columns;
mod csv;

use std::io::{self, Write};

use chappe_stream::{StreamElement, StreamSchema, column_name};

/// The columns before those of the fields.
pub(crate) const OWN_COLUMNS: [&str; 6] = [
    "epoch",
    "sequence",
    "source_time",
    "receive_time",
    "key",
    "quality",
];

/// The form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableForm {
    /// Comma-separated values (RFC 4180) with a header.
    Csv,
    /// Parquet, compressed by Zstandard.
    #[cfg(feature = "parquet")]
    Parquet,
    /// Arrow's file format, also known as Feather 2.
    #[cfg(feature = "parquet")]
    Arrow,
}

impl TableForm {
    /// The ending of such a file.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            #[cfg(feature = "parquet")]
            Self::Parquet => "parquet",
            #[cfg(feature = "parquet")]
            Self::Arrow => "arrow",
        }
    }
}

/// The stream of a file, for its metadata.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableStream {
    /// Its name.
    pub name: String,
    /// The key of the device that fills it, or the name of the virtual sensor.
    pub device: String,
    /// The schema of its elements.
    pub schema: StreamSchema,
}

/// The column of a field: its name, with `_` appended if every element has a column of that name.
pub(crate) fn column_of(field: &str) -> String {
    match field {
        "epoch" => "epoch_".to_owned(),
        name => column_name(name),
    }
}

/// The names of the columns of the fields.
///
/// # Errors
/// Two fields would have one column.
fn field_columns(schema: &StreamSchema) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = Vec::with_capacity(schema.fields.len());
    for field in &schema.fields {
        let name = column_of(&field.name);
        if names.contains(&name) {
            let text = format!("two fields of the stream would have the column {name:?}");
            return Err(io::Error::other(text));
        }
        names.push(name);
    }
    Ok(names)
}

/// A file that is being written.
pub struct TableFile<W: Write + Send>(Inner<W>);

enum Inner<W: Write + Send> {
    Csv(csv::CsvFile<W>),
    #[cfg(feature = "parquet")]
    Columns(Box<columns::ColumnFile<W>>),
}

impl<W: Write + Send> TableFile<W> {
    /// Begins a file for elements of this stream.
    ///
    /// # Errors
    /// The schema cannot be columns, or the output failed.
    pub fn new(output: W, form: TableForm, stream: &TableStream) -> io::Result<Self> {
        let inner = match form {
            TableForm::Csv => Inner::Csv(csv::CsvFile::new(output, stream)?),
            #[cfg(feature = "parquet")]
            TableForm::Parquet | TableForm::Arrow => {
                Inner::Columns(Box::new(columns::ColumnFile::new(output, form, stream)?))
            }
        };
        Ok(Self(inner))
    }

    /// Adds an element, whose values fit the schema.
    ///
    /// # Errors
    /// The output failed.
    pub fn push(&mut self, element: &StreamElement) -> io::Result<()> {
        match &mut self.0 {
            Inner::Csv(file) => file.push(element),
            #[cfg(feature = "parquet")]
            Inner::Columns(file) => file.push(element),
        }
    }

    /// About how many bytes the file would have if it ended here.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Inner::Csv(file) => file.bytes(),
            #[cfg(feature = "parquet")]
            Inner::Columns(file) => file.bytes(),
        }
    }

    /// About how many bytes of memory the rows take that are not in the output yet.
    #[must_use]
    pub fn memory(&self) -> usize {
        match &self.0 {
            Inner::Csv(_) => 0,
            #[cfg(feature = "parquet")]
            Inner::Columns(file) => file.memory(),
        }
    }

    /// Passes the rows in memory to the output.
    ///
    /// # Errors
    /// The output failed.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Inner::Csv(_) => Ok(()),
            #[cfg(feature = "parquet")]
            Inner::Columns(file) => file.flush(),
        }
    }

    /// Ends the file; returns its output, which is not synced.
    ///
    /// # Errors
    /// The output failed.
    pub fn finish(self) -> io::Result<W> {
        match self.0 {
            Inner::Csv(file) => Ok(file.finish()),
            #[cfg(feature = "parquet")]
            Inner::Columns(file) => file.finish(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use chappe_stream::{Epoch, Field, FieldType, Position, Quality, Samples, Timestamp, Value};

    /// A stream with a field of each type.
    pub(crate) fn stream() -> TableStream {
        let field = |name: &str, field_type| Field {
            name: name.to_owned(),
            field_type,
            unit: (name == "celsius").then(|| "Cel".to_owned()),
            observed_property: (name == "celsius").then(|| "urn:temperature".to_owned()),
            description: None,
        };
        TableStream {
            name: "plant.oven".to_owned(),
            device: "urn:uuid:1".to_owned(),
            schema: StreamSchema {
                fields: vec![
                    field("celsius", FieldType::Double),
                    field("count", FieldType::Integer),
                    field("ok", FieldType::Boolean),
                    field("key", FieldType::Text),
                    field("raw", FieldType::Bytes),
                    field("wave", FieldType::Samples),
                ],
                key: None,
            },
        }
    }

    /// An element with a value for each field; without values if its number is even.
    pub(crate) fn element(sequence: u64) -> StreamElement {
        let values = match sequence % 2 {
            0 => vec![Value::Null; 6],
            _ => vec![
                Value::Double(f64::NAN),
                Value::Integer(9_007_199_254_740_993),
                Value::Boolean(true),
                Value::Text("a, \"b\"\n".to_owned()),
                Value::Bytes(vec![0, 255]),
                Value::Samples(Samples {
                    start: Timestamp(5),
                    period_ns: 7,
                    values: vec![1.5, f64::INFINITY],
                }),
            ],
        };
        StreamElement {
            position: Position {
                epoch: Epoch(10),
                sequence,
            },
            source_time: Timestamp(1_600_000_000_000_000_001),
            receive_time: Timestamp(1_600_000_000_000_000_002),
            key: (sequence % 2 == 1).then(|| "m1".to_owned()),
            values,
            quality: Quality::Questionable,
            origin: None,
        }
    }

    #[test]
    fn fields_with_one_column_are_refused() {
        let mut stream = stream();
        stream.schema.fields[0].name = "key_".to_owned();
        assert!(TableFile::new(Vec::new(), TableForm::Csv, &stream).is_err());
    }
}
