//! Rows as columns: Parquet and Arrow files.
//!
//! Times are timestamps in nanoseconds with time zone UTC; units and observed properties are metadata of the fields,
//! stream and device those of the file.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder, ListBuilder,
    StringBuilder, StructBuilder, TimestampNanosecondBuilder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use chappe_stream::{FieldType, Samples, StreamElement, Value};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use super::{TableForm, TableStream, field_columns};
use crate::element_weight;

/// Rows that are made into arrays at once; reason: what Arrow's readers take at once.
const ROWS: usize = 8_192;
/// Their memory, after which there are no more.
const ROWS_BYTES: usize = 4 << 20;
/// Rows of one group of Parquet; reason: a reader decodes a group at once.
const GROUP_ROWS: usize = 128 << 10;
/// Bytes of one group, which is held in memory.
const GROUP_BYTES: usize = 32 << 20;

/// The type of times.
fn time() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))
}

/// The fields of a waveform.
fn sample_fields() -> Fields {
    let item = Arc::new(Field::new_list_field(DataType::Float64, true));
    Fields::from(vec![
        Field::new("start", time(), true),
        Field::new("period_ns", DataType::UInt64, true),
        Field::new("values", DataType::List(item), true),
    ])
}

fn data_type(field_type: FieldType) -> DataType {
    match field_type {
        FieldType::Boolean => DataType::Boolean,
        FieldType::Integer => DataType::Int64,
        FieldType::Double => DataType::Float64,
        FieldType::Text => DataType::Utf8,
        FieldType::Bytes => DataType::Binary,
        FieldType::Samples => DataType::Struct(sample_fields()),
    }
}

/// The metadata of the file.
fn metadata(stream: &TableStream) -> Vec<(String, String)> {
    let mut found = vec![("chappe.stream".to_owned(), stream.name.clone())];
    if !stream.device.is_empty() {
        found.push(("chappe.device".to_owned(), stream.device.clone()));
    }
    if let Some(key) = &stream.schema.key {
        found.push(("chappe.key".to_owned(), key.clone()));
    }
    found
}

fn schema(stream: &TableStream) -> io::Result<SchemaRef> {
    let mut fields = vec![
        Field::new("epoch", DataType::Utf8, false),
        Field::new("sequence", DataType::UInt64, false),
        Field::new("source_time", time(), false),
        Field::new("receive_time", time(), false),
        Field::new("key", DataType::Utf8, true),
        Field::new("quality", DataType::Utf8, false),
    ];
    for (field, name) in stream
        .schema
        .fields
        .iter()
        .zip(field_columns(&stream.schema)?)
    {
        let known = [
            ("unit", &field.unit),
            ("observed_property", &field.observed_property),
            ("description", &field.description),
        ];
        let known = known
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)));
        let column = Field::new(name, data_type(field.field_type), true);
        let known: HashMap<String, String> = known.collect();
        fields.push(column.with_metadata(known));
    }
    let metadata: HashMap<String, String> = metadata(stream).into_iter().collect();
    Ok(Arc::new(Schema::new_with_metadata(fields, metadata)))
}

fn of_arrow(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        other => io::Error::other(other),
    }
}

fn of_parquet(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

/// The values of a field that are not yet in an array.
enum Values {
    Boolean(BooleanBuilder),
    Integer(Int64Builder),
    Double(Float64Builder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Samples(Box<StructBuilder>),
}

impl Values {
    fn new(field_type: FieldType) -> Self {
        match field_type {
            FieldType::Boolean => Self::Boolean(BooleanBuilder::new()),
            FieldType::Integer => Self::Integer(Int64Builder::new()),
            FieldType::Double => Self::Double(Float64Builder::new()),
            FieldType::Text => Self::Text(StringBuilder::new()),
            FieldType::Bytes => Self::Bytes(BinaryBuilder::new()),
            FieldType::Samples => {
                let builders: Vec<Box<dyn ArrayBuilder>> = vec![
                    Box::new(TimestampNanosecondBuilder::new().with_timezone("UTC")),
                    Box::new(UInt64Builder::new()),
                    Box::new(ListBuilder::new(Float64Builder::new())),
                ];
                Self::Samples(Box::new(StructBuilder::new(sample_fields(), builders)))
            }
        }
    }

    /// Adds a value; null if it has another type.
    fn push(&mut self, value: &Value) {
        match self {
            Self::Boolean(values) => values.append_option(match value {
                Value::Boolean(flag) => Some(*flag),
                _ => None,
            }),
            Self::Integer(values) => values.append_option(match value {
                Value::Integer(number) => Some(*number),
                _ => None,
            }),
            Self::Double(values) => values.append_option(match value {
                Value::Double(number) => Some(*number),
                _ => None,
            }),
            Self::Text(values) => values.append_option(match value {
                Value::Text(text) => Some(text),
                _ => None,
            }),
            Self::Bytes(values) => values.append_option(match value {
                Value::Bytes(bytes) => Some(bytes),
                _ => None,
            }),
            Self::Samples(values) => push_samples(
                values,
                match value {
                    Value::Samples(samples) => Some(samples),
                    _ => None,
                },
            ),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Boolean(values) => Arc::new(values.finish()),
            Self::Integer(values) => Arc::new(values.finish()),
            Self::Double(values) => Arc::new(values.finish()),
            Self::Text(values) => Arc::new(values.finish()),
            Self::Bytes(values) => Arc::new(values.finish()),
            Self::Samples(values) => Arc::new(values.finish()),
        }
    }
}

fn push_samples(values: &mut StructBuilder, samples: Option<&Samples>) {
    if let Some(starts) = values.field_builder::<TimestampNanosecondBuilder>(0) {
        starts.append_option(samples.map(|samples| samples.start.0));
    }
    if let Some(periods) = values.field_builder::<UInt64Builder>(1) {
        periods.append_option(samples.map(|samples| samples.period_ns));
    }
    if let Some(lists) = values.field_builder::<ListBuilder<Float64Builder>>(2) {
        if let Some(samples) = samples {
            lists.values().append_slice(&samples.values);
        }
        lists.append(samples.is_some());
    }
    values.append(samples.is_some());
}

/// Rows that are not yet arrays.
struct Rows {
    schema: SchemaRef,
    epoch: StringBuilder,
    sequence: UInt64Builder,
    source_time: TimestampNanosecondBuilder,
    receive_time: TimestampNanosecondBuilder,
    key: StringBuilder,
    quality: StringBuilder,
    fields: Vec<Values>,
    count: usize,
    bytes: usize,
}

impl Rows {
    fn new(stream: &TableStream) -> io::Result<Self> {
        let fields = stream.schema.fields.iter();
        Ok(Self {
            schema: schema(stream)?,
            epoch: StringBuilder::new(),
            sequence: UInt64Builder::new(),
            source_time: TimestampNanosecondBuilder::new().with_timezone("UTC"),
            receive_time: TimestampNanosecondBuilder::new().with_timezone("UTC"),
            key: StringBuilder::new(),
            quality: StringBuilder::new(),
            fields: fields.map(|field| Values::new(field.field_type)).collect(),
            count: 0,
            bytes: 0,
        })
    }

    fn push(&mut self, element: &StreamElement) {
        self.epoch.append_value(element.position.epoch.to_string());
        self.sequence.append_value(element.position.sequence);
        self.source_time.append_value(element.source_time.0);
        self.receive_time.append_value(element.receive_time.0);
        self.key.append_option(element.key.as_deref());
        self.quality.append_value(element.quality.name());
        for (index, values) in self.fields.iter_mut().enumerate() {
            values.push(element.values.get(index).unwrap_or(&Value::Null));
        }
        self.count += 1;
        self.bytes += element_weight(element);
    }

    fn is_full(&self) -> bool {
        self.count >= ROWS || self.bytes >= ROWS_BYTES
    }

    /// The rows as arrays; then there are none.
    fn take(&mut self) -> io::Result<RecordBatch> {
        let own: [ArrayRef; 6] = [
            Arc::new(self.epoch.finish()),
            Arc::new(self.sequence.finish()),
            Arc::new(self.source_time.finish()),
            Arc::new(self.receive_time.finish()),
            Arc::new(self.key.finish()),
            Arc::new(self.quality.finish()),
        ];
        let fields = self.fields.iter_mut().map(Values::finish);
        let columns = own.into_iter().chain(fields).collect();
        (self.count, self.bytes) = (0, 0);
        RecordBatch::try_new(self.schema.clone(), columns).map_err(of_arrow)
    }
}

/// A Parquet or Arrow file that is being written.
pub(super) struct ColumnFile<W: Write + Send> {
    rows: Rows,
    writer: Writer<W>,
}

enum Writer<W: Write + Send> {
    Parquet(ArrowWriter<W>),
    Arrow(FileWriter<Counted<W>>),
}

/// Counts what is written.
struct Counted<W>(W, u64);

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.0.write(bytes)?;
        self.1 += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn properties(stream: &TableStream) -> WriterProperties {
    let metadata = metadata(stream).into_iter();
    let metadata = metadata.map(|(key, value)| KeyValue::new(key, value));
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("chappe ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_max_row_group_bytes(Some(GROUP_BYTES))
        .set_key_value_metadata(Some(metadata.collect()));
    // Numbers that rise are short as differences, and a dictionary of them is as long as they are.
    for rising in ["sequence", "source_time", "receive_time"] {
        let column = ColumnPath::from(rising);
        properties = properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

impl<W: Write + Send> ColumnFile<W> {
    pub(super) fn new(output: W, form: TableForm, stream: &TableStream) -> io::Result<Self> {
        let rows = Rows::new(stream)?;
        let writer = match form {
            TableForm::Arrow => {
                let writer = FileWriter::try_new(Counted(output, 0), &rows.schema);
                Writer::Arrow(writer.map_err(of_arrow)?)
            }
            TableForm::Parquet | TableForm::Csv => {
                let properties = Some(properties(stream));
                let writer = ArrowWriter::try_new(output, rows.schema.clone(), properties);
                Writer::Parquet(writer.map_err(of_parquet)?)
            }
        };
        Ok(Self { rows, writer })
    }

    pub(super) fn push(&mut self, element: &StreamElement) -> io::Result<()> {
        self.rows.push(element);
        match self.rows.is_full() {
            true => self.write_rows(),
            false => Ok(()),
        }
    }

    fn write_rows(&mut self) -> io::Result<()> {
        if self.rows.count == 0 {
            return Ok(());
        }
        let batch = self.rows.take()?;
        match &mut self.writer {
            Writer::Parquet(writer) => writer.write(&batch).map_err(of_parquet),
            Writer::Arrow(writer) => writer.write(&batch).map_err(of_arrow),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match &self.writer {
            Writer::Parquet(writer) => (writer.bytes_written() + writer.in_progress_size()) as u64,
            Writer::Arrow(writer) => writer.get_ref().1,
        }
    }

    pub(super) fn memory(&self) -> usize {
        let group = match &self.writer {
            Writer::Parquet(writer) => writer.memory_size(),
            Writer::Arrow(_) => 0,
        };
        self.rows.bytes + group
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.write_rows()?;
        match &mut self.writer {
            Writer::Parquet(writer) => writer.flush().map_err(of_parquet),
            Writer::Arrow(writer) => writer.flush().map_err(of_arrow),
        }
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        self.write_rows()?;
        match self.writer {
            Writer::Parquet(writer) => writer.into_inner().map_err(of_parquet),
            Writer::Arrow(writer) => Ok(writer.into_inner().map_err(of_arrow)?.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{element, stream};
    use super::*;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::{Float64Type, Int64Type, TimestampNanosecondType, UInt64Type};
    use arrow_ipc::reader::FileReader;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    fn written(form: TableForm, count: u64) -> Vec<u8> {
        let mut file = ColumnFile::new(Vec::new(), form, &stream()).unwrap();
        for sequence in 1..=count {
            file.push(&element(sequence)).unwrap();
        }
        file.finish().unwrap()
    }

    fn check(batch: &RecordBatch) {
        let schema = batch.schema();
        let celsius = schema.field_with_name("celsius").unwrap();
        assert_eq!(celsius.metadata()["unit"], "Cel");
        assert_eq!(celsius.metadata()["observed_property"], "urn:temperature");
        assert_eq!(
            schema.field_with_name("source_time").unwrap().data_type(),
            &time()
        );
        let numbers = batch["sequence"].as_primitive::<UInt64Type>();
        assert_eq!((numbers.value(0), numbers.value(1)), (1, 2));
        let times = batch["source_time"].as_primitive::<TimestampNanosecondType>();
        assert_eq!(times.value(0), 1_600_000_000_000_000_001);
        assert!(
            batch["celsius"]
                .as_primitive::<Float64Type>()
                .value(0)
                .is_nan()
        );
        let counts = batch["count"].as_primitive::<Int64Type>();
        assert_eq!(counts.value(0), 9_007_199_254_740_993);
        assert_eq!(batch["key_"].as_string::<i32>().value(0), "a, \"b\"\n");
        assert_eq!(batch["raw"].as_binary::<i32>().value(0), [0, 255]);
        let waves = batch["wave"].as_struct();
        let samples = waves["values"].as_list::<i32>().value(0);
        let samples = samples.as_primitive::<Float64Type>();
        assert_eq!(samples.values()[..], [1.5, f64::INFINITY]);
        for name in ["celsius", "count", "ok", "key_", "raw", "wave", "key"] {
            assert!(batch[name].is_null(1), "{name}");
        }
    }

    #[test]
    fn a_parquet_file_has_all_rows_with_their_types_and_units() {
        let bytes = bytes::Bytes::from(written(TableForm::Parquet, 20_001));
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
        assert_eq!(builder.schema().metadata()["chappe.stream"], "plant.oven");
        let file = builder.metadata().file_metadata();
        let pairs = file.key_value_metadata().unwrap();
        assert!(
            pairs
                .iter()
                .any(|it| it.key == "chappe.device" && it.value.as_deref() == Some("urn:uuid:1"))
        );
        let batches: Vec<_> = builder.build().unwrap().map(Result::unwrap).collect();
        assert_eq!(
            batches.iter().map(RecordBatch::num_rows).sum::<usize>(),
            20_001
        );
        check(&batches[0]);
    }

    #[test]
    fn an_arrow_file_has_all_rows_with_their_types_and_units() {
        let bytes = written(TableForm::Arrow, 20_001);
        let reader = FileReader::try_new(io::Cursor::new(bytes), None).unwrap();
        assert_eq!(reader.schema().metadata()["chappe.stream"], "plant.oven");
        let batches: Vec<_> = reader.map(Result::unwrap).collect();
        assert_eq!(
            batches.iter().map(RecordBatch::num_rows).sum::<usize>(),
            20_001
        );
        check(&batches[0]);
    }

    #[test]
    fn memory_does_not_grow_with_the_rows() {
        let mut file = ColumnFile::new(io::sink(), TableForm::Parquet, &stream()).unwrap();
        let mut most = 0;
        for sequence in 1..=300_000 {
            file.push(&element(sequence)).unwrap();
            if sequence % 10_000 == 0 {
                most = most.max(file.memory());
            }
        }
        assert!(most < 2 * GROUP_BYTES, "{most} bytes");
        file.finish().unwrap();
    }
}
