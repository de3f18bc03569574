//! The streams of one wrapper, and their columns as they grow.

use std::collections::HashMap;
use std::sync::Arc;

use chappe_log::Level;
use chappe_stream::{Field, NAME_BYTES_MAX, StreamElement, StreamSchema, Value, check_name};

use super::columns::{self, Column, FieldKind, type_word};
use super::options::Options;
use crate::{Batch, NodeParts, Part, StreamDefinition};

/// Columns of a stream; reason: an element is a row that people read, and a stream has at most 256 versions of its
/// schema. Columns that come one after another reach [`VERSIONS_BYTES_MAX`] earlier.
pub(crate) const COLUMNS_MAX: usize = 256;

/// Bytes of all versions of the schema of a stream; reason: the log takes 256 KiB of metadata, and 32 KiB of them are
/// left to names, the retention and the device.
const VERSIONS_BYTES_MAX: usize = 224 << 10;

/// Bytes of a version of a schema beyond its columns, and of a column beyond its texts; reason: lengths, the type and
/// the noun of the key, generously.
const OVERHEAD_BYTES: usize = 16;

/// Characters of the description of a stream; reason: each stream has a copy of a text that a request may have once.
const HELP_CHARS_MAX: usize = 1_000;

/// Bytes of a part of a name; reason: with the prefix it fits the name of a stream.
const PART_BYTES_MAX: usize = 96;

/// Why a point is not stored, in words for its sender.
pub(crate) type Refusal = String;

/// A series of a stream: where its elements go, and what they have in common.
#[derive(Debug)]
pub(crate) struct Series {
    /// The stream.
    pub(crate) table: usize,
    /// The columns and values of its tags.
    labels: Vec<(usize, String)>,
    /// The key of its elements; `None` without tags.
    key: Option<String>,
}

impl Series {
    /// Bytes that it holds.
    pub(crate) fn held_bytes(&self) -> usize {
        let labels = self.labels.iter();
        let labels = labels.map(|(_, value)| value.len() + size_of::<(usize, String)>());
        size_of::<Self>() + labels.sum::<usize>() + self.key.as_ref().map_or(0, String::len)
    }
}

/// A stream.
#[derive(Debug)]
struct Table {
    name: Arc<str>,
    measurement: String,
    definition: Arc<StreamDefinition>,
    /// Columns by what they are and their original names.
    labels: HashMap<Box<str>, usize>,
    fields: HashMap<Box<str>, usize>,
    /// Bytes of the schema.
    schema_bytes: usize,
    /// Bytes of the versions of the schema that batches had so far. Of earlier runs, one for each column is assumed.
    versions_bytes: usize,
    /// Columns of the newest of these versions.
    version_columns: usize,
    /// Elements of the batch in the making; those before a column was added lack its value.
    elements: Vec<StreamElement>,
}

/// The streams of one wrapper.
#[derive(Debug)]
pub(crate) struct Tables {
    options: Options,
    level: Option<Level>,
    streams_max: usize,
    node: NodeParts,
    tables: Vec<Table>,
    by_name: HashMap<String, usize>,
    /// Columns that the attempt under way has added: their stream, what they are, and their original names.
    added: Vec<(usize, Column, Box<str>)>,
    /// Bytes of the elements of the batch in the making.
    held_bytes: usize,
}

impl Tables {
    pub(crate) fn new(options: Options, level: Option<Level>, streams_max: usize) -> Self {
        Self {
            options,
            level,
            streams_max,
            node: NodeParts::default(),
            tables: Vec::new(),
            by_name: HashMap::new(),
            added: Vec::new(),
            held_bytes: 0,
        }
    }

    /// The number of streams.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.tables.len()
    }

    /// Makes streams and columns for a point. If one of them cannot be made, none is: a refused point uses up no
    /// stream, and fixes no type.
    ///
    /// # Errors
    /// That of `make`.
    pub(crate) fn attempt<T>(
        &mut self,
        make: impl FnOnce(&mut Self) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let tables = self.tables.len();
        self.added.clear();
        let made = make(self);
        if made.is_err() {
            for (table, column, name) in self.added.drain(..).rev() {
                let table = &mut self.tables[table];
                let field = Arc::make_mut(&mut table.definition).schema.fields.pop();
                table.schema_bytes -= field.as_ref().map_or(0, field_bytes);
                match column {
                    Column::Label => table.labels.remove(&name),
                    Column::Field => table.fields.remove(&name),
                };
            }
            for table in self.tables.drain(tables..) {
                self.by_name.remove(&*table.name);
            }
        }
        made
    }

    /// Bytes of the elements of the batch in the making.
    pub(crate) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The node, whose streams of earlier runs are continued.
    pub(crate) fn attach(&mut self, node: &NodeParts) {
        self.node = node.clone();
    }

    /// The series of these tags or labels; its stream is made if there is none. `unit` and `help` are what the sender
    /// tells of it.
    ///
    /// # Errors
    /// There are as many streams or columns as there may be.
    pub(crate) fn series<'t>(
        &mut self,
        measurement: &str,
        labels: impl Iterator<Item = (&'t str, &'t str)>,
        help: Option<&str>,
    ) -> Result<Series, Refusal> {
        let mut sorted: Vec<(&str, &str)> = labels.collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let name = twice[0].0;
            return Err(format!("the {} {name:?} occurs twice", self.options.label));
        }
        let mut name = format!("{}.{}", self.options.prefix, part(measurement));
        for split in &self.options.split_by {
            let value = sorted.iter().find(|(key, _)| key == split);
            name.push('.');
            name.push_str(&value.map_or_else(|| "none".to_owned(), |(_, it)| part(it)));
        }
        let table = self.table(name, measurement, help)?;
        let mut series = Series {
            table,
            labels: Vec::with_capacity(sorted.len()),
            key: None,
        };
        let mut key = String::new();
        for (name, value) in sorted {
            let column = self.column(table, Column::Label, name, FieldKind::String, None)?;
            let separator = if key.is_empty() { "" } else { "," };
            key.push_str(separator);
            push_escaped(&mut key, name);
            key.push('=');
            push_escaped(&mut key, value);
            series.labels.push((column, value.to_owned()));
        }
        series.key = (!key.is_empty()).then_some(key);
        Ok(series)
    }

    /// The stream of a name.
    fn table(
        &mut self,
        name: String,
        measurement: &str,
        help: Option<&str>,
    ) -> Result<usize, Refusal> {
        if let Some(index) = self.by_name.get(&name) {
            let known = &self.tables[*index].measurement;
            if known != measurement {
                return Err(format!(
                    "{measurement:?} and {known:?} would be the same stream {name:?}"
                ));
            }
            return Ok(*index);
        }
        if self.tables.len() >= self.streams_max {
            let most = self.streams_max;
            return Err(format!(
                "the wrapper already has {most} streams (limits.streams)"
            ));
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(format!(
                "the name of its stream has more than {NAME_BYTES_MAX} bytes"
            ));
        }
        check_name(&name).map_err(|error| error.to_string())?;
        let known = (self.node.stream)(&name);
        let schema = known.map(|known| known.schema).unwrap_or_default();
        let mut table = Table {
            name: name.as_str().into(),
            measurement: measurement.to_owned(),
            labels: HashMap::new(),
            fields: HashMap::new(),
            schema_bytes: OVERHEAD_BYTES,
            versions_bytes: 0,
            version_columns: schema.fields.len(),
            definition: Arc::default(),
            elements: Vec::new(),
        };
        for (index, field) in schema.fields.iter().enumerate() {
            table.schema_bytes += field_bytes(field);
            table.versions_bytes += table.schema_bytes;
            let text = field.description.as_deref().unwrap_or_default();
            if let Some(name) = columns::original(self.options.label, text) {
                table.labels.insert(name.into(), index);
            } else if let Some(name) = columns::original("field", text) {
                table.fields.insert(name.into(), index);
            }
        }
        table.definition = Arc::new(StreamDefinition {
            schema: StreamSchema {
                key: Some("series".to_owned()),
                ..schema
            },
            level: self.level,
            description: help
                .filter(|help| !help.is_empty())
                .map(|help| help.chars().take(HELP_CHARS_MAX).collect()),
        });
        let index = self.tables.len();
        self.tables.push(table);
        self.by_name.insert(name, index);
        Ok(index)
    }

    /// The column of an original name, which is added if there is none. `unit` is what the sender tells.
    ///
    /// # Errors
    /// The field has another type, or there is no room for one more.
    pub(crate) fn column(
        &mut self,
        table: usize,
        column: Column,
        name: &str,
        kind: FieldKind,
        unit: Option<&str>,
    ) -> Result<usize, Refusal> {
        let table_index = table;
        let table = &mut self.tables[table_index];
        let known = match column {
            Column::Label => &table.labels,
            Column::Field => &table.fields,
        };
        if let Some(index) = known.get(name) {
            let exists = table.definition.schema.fields[*index].field_type;
            if exists != kind.field_type() {
                return Err(format!(
                    "field type conflict: input field \"{name}\" on measurement \"{}\" is type {}, already exists \
                     as type {}",
                    table.measurement,
                    type_word(kind.field_type()),
                    type_word(exists),
                ));
            }
            return Ok(*index);
        }
        let fields = &table.definition.schema.fields;
        if fields.len() >= COLUMNS_MAX {
            return Err(format!(
                "the stream {:?} already has {COLUMNS_MAX} columns, none for {name:?}",
                &*table.name
            ));
        }
        if columns::is_too_long(name) {
            return Err(format!(
                "a name has {} bytes, which is too long",
                name.len()
            ));
        }
        let reserved = match column {
            Column::Label => self.options.reserved,
            Column::Field => &[],
        };
        let is_taken =
            |name: &str| reserved.contains(&name) || fields.iter().any(|field| field.name == name);
        let own = columns::column_name(name, is_taken);
        let (noun, unit) = match column {
            Column::Label => (self.options.label, None),
            Column::Field => {
                let measured = matches!(kind, FieldKind::Float | FieldKind::Integer);
                let (units, measurement) = (&self.options.units, &table.measurement);
                let unit = measured.then(|| columns::unit(units, measurement, name, unit));
                ("field", unit.flatten())
            }
        };
        let description = columns::description(noun, name);
        let index = fields.len();
        let field = columns::field(own, kind.field_type(), unit, description);
        let schema_bytes = table.schema_bytes + field_bytes(&field);
        if table.versions_bytes + schema_bytes > VERSIONS_BYTES_MAX {
            return Err(format!(
                "the stream {:?} has no room for one more version of its schema, with the column {name:?}",
                &*table.name
            ));
        }
        table.schema_bytes = schema_bytes;
        let definition = Arc::make_mut(&mut table.definition);
        definition.schema.fields.push(field);
        let known = match column {
            Column::Label => &mut table.labels,
            Column::Field => &mut table.fields,
        };
        known.insert(name.into(), index);
        self.added.push((table_index, column, name.into()));
        Ok(index)
    }

    /// The values of an element of a series, with the columns so far and those of its tags.
    pub(crate) fn values(&self, series: &Series) -> Vec<Value> {
        let width = self.tables[series.table].definition.schema.fields.len();
        let mut values = Vec::with_capacity(width);
        values.resize(width, Value::Null);
        for (column, text) in &series.labels {
            values[*column] = Value::Text(text.clone());
        }
        values
    }

    /// Adds an element of a series to the batch in the making.
    pub(crate) fn push(&mut self, series: &Series, element: StreamElement) {
        let element = StreamElement {
            key: series.key.clone(),
            ..element
        };
        self.held_bytes += size_of::<StreamElement>()
            + element.values.len() * size_of::<Value>()
            + series.held_bytes();
        self.tables[series.table].elements.push(element);
    }

    /// Moves the elements to a batch.
    pub(crate) fn take(&mut self, batch: &mut Batch) {
        self.held_bytes = 0;
        for table in &mut self.tables {
            if table.elements.is_empty() {
                continue;
            }
            let mut elements = std::mem::take(&mut table.elements);
            let width = table.definition.schema.fields.len();
            if width != table.version_columns {
                table.version_columns = width;
                table.versions_bytes += table.schema_bytes;
            }
            for element in &mut elements {
                element.values.resize(width, Value::Null);
            }
            batch.parts.push(Part {
                stream: table.name.clone(),
                definition: table.definition.clone(),
                elements,
            });
        }
    }
}

/// Bytes of a column in a schema as the store keeps it.
fn field_bytes(field: &Field) -> usize {
    let texts = [&field.unit, &field.observed_property, &field.description];
    let texts = texts.into_iter().flatten().map(String::len);
    OVERHEAD_BYTES + field.name.len() + texts.sum::<usize>()
}

/// Adds a part of a key. Separators in it are escaped, so that different series have different keys.
fn push_escaped(key: &mut String, text: &str) {
    for c in text.chars() {
        if matches!(c, '\\' | ',' | '=') {
            key.push('\\');
        }
        key.push(c);
    }
}

/// The part of a name of a stream that is most like a text. Of a long one, the end is a checksum, so that others with
/// the same beginning have other streams.
fn part(text: &str) -> String {
    let mut part = String::new();
    for c in text.chars() {
        match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => part.push(c),
            '_' if !part.is_empty() => part.push('_'),
            _ if !part.is_empty() && !part.ends_with('-') => part.push('-'),
            _ => {}
        }
        if part.len() > PART_BYTES_MAX {
            part.truncate(PART_BYTES_MAX - 9);
            let checksum = crc32fast::hash(text.as_bytes());
            return format!("{}-{checksum:08x}", part.trim_end_matches('-'));
        }
    }
    let part = part.trim_end_matches('-');
    if part.is_empty() {
        return "unnamed".to_owned();
    }
    part.to_owned()
}

#[cfg(test)]
mod tests {
    use chappe_stream::{FieldType, Timestamp};

    use super::*;
    use crate::StreamNow;

    fn tables(streams_max: usize) -> Tables {
        let options = Options {
            prefix: "plant".to_owned(),
            label: "tag",
            ..Options::default()
        };
        Tables::new(options, None, streams_max)
    }

    fn element(values: Vec<Value>) -> StreamElement {
        StreamElement {
            values,
            source_time: Timestamp(1),
            ..crate::tests::element(0.0)
        }
    }

    #[test]
    fn a_stream_has_columns_for_all_tags_and_fields_that_occurred() {
        let mut tables = tables(2);
        let first = [("line", "3"), ("Machine", "press")];
        let series = tables.series("cpu", first.into_iter(), None).unwrap();
        let mut values = tables.values(&series);
        let float = FieldKind::Float;
        let column = tables
            .column(series.table, Column::Field, "line", float, None)
            .unwrap();
        values.resize(column + 1, Value::Null);
        values[column] = Value::Double(1.0);
        tables.push(&series, element(values));
        let conflict = tables.column(0, Column::Field, "line", FieldKind::Integer, None);
        assert!(
            conflict
                .unwrap_err()
                .contains("is type integer, already exists as type float")
        );
        let other = tables
            .series("cpu", [("host", "a")].into_iter(), None)
            .unwrap();
        let values = tables.values(&other);
        tables.push(&other, element(values));
        let mut batch = Batch::default();
        tables.take(&mut batch);
        let part = &batch.parts[0];
        let names: Vec<&str> = part
            .definition
            .schema
            .fields
            .iter()
            .map(|it| it.name.as_str())
            .collect();
        assert_eq!(
            (&*part.stream, names),
            ("plant.cpu", vec!["machine", "line", "line_2", "host"])
        );
        let keys: Vec<_> = part.elements.iter().map(|it| it.key.as_deref()).collect();
        assert_eq!(keys, [Some("Machine=press,line=3"), Some("host=a")]);
        assert!(
            part.elements
                .iter()
                .all(|element| element.values.len() == 4)
        );
        // A restart finds the same columns.
        let schema = part.definition.schema.clone();
        let mut again = super::tests::tables(2);
        again.attach(&NodeParts {
            stream: Arc::new(move |name| {
                (name == "plant.cpu").then(|| StreamNow {
                    name: name.to_owned(),
                    schema: schema.clone(),
                    level: Level::Power,
                    last: 1,
                    source: "urn:chappe:wrapper:influx".to_owned(),
                })
            }),
            ..NodeParts::default()
        });
        let series = again.series("cpu", first.into_iter(), None).unwrap();
        assert_eq!(
            again.column(series.table, Column::Field, "line", float, None),
            Ok(column)
        );
        assert_eq!(again.values(&series)[1], Value::Text("3".to_owned()));
    }

    #[test]
    fn streams_and_columns_have_bounds() {
        let mut tables = tables(1);
        let none = std::iter::empty;
        let series = tables.series("a", none(), None).unwrap();
        assert!(
            tables
                .series("b", none(), None)
                .unwrap_err()
                .contains("limits.streams")
        );
        assert!(
            tables
                .series("A", none(), None)
                .unwrap_err()
                .contains("same stream")
        );
        for number in 0..COLUMNS_MAX {
            let name = format!("f{number}");
            let added = tables.column(series.table, Column::Field, &name, FieldKind::Float, None);
            assert_eq!(added, Ok(number));
        }
        let one_more = tables.column(series.table, Column::Field, "g", FieldKind::Float, None);
        assert!(one_more.unwrap_err().contains("256 columns"));
        let twice = [("a", "1"), ("a", "2")];
        assert!(
            tables
                .series("a", twice.into_iter(), None)
                .unwrap_err()
                .contains("twice")
        );
    }

    #[test]
    fn versions_of_a_schema_have_a_bound() {
        let mut tables = tables(1);
        let series = tables.series("a", std::iter::empty(), None).unwrap();
        let mut add = |number: usize| {
            let name = format!("{number}{}", "x".repeat(200));
            let float = FieldKind::Float;
            let column = tables
                .attempt(|tables| tables.column(series.table, Column::Field, &name, float, None))?;
            tables.push(&series, element(vec![Value::Null; column + 1]));
            let mut batch = Batch::default();
            tables.take(&mut batch);
            Ok(batch.parts.remove(0).definition)
        };
        // As the store counts: the texts of all columns in all versions.
        let mut bytes = 0;
        let refusal: String = (0..COLUMNS_MAX)
            .find_map(|number| match add(number) {
                Err(refusal) => Some(refusal),
                Ok(definition) => {
                    let fields = definition.schema.fields.iter();
                    let texts = fields.map(|it| {
                        it.name.len() + it.description.as_ref().map_or(0, String::len) + 8
                    });
                    bytes += texts.sum::<usize>();
                    None
                }
            })
            .unwrap();
        assert!(refusal.contains("version of its schema"), "{refusal}");
        assert!((150_000..256 << 10).contains(&bytes), "{bytes}");
        // The columns before it are still taken.
        assert!(add(0).is_ok());
    }

    #[test]
    fn a_long_description_is_cut() {
        let mut tables = tables(1);
        let help = "x".repeat(100_000);
        tables.series("a", std::iter::empty(), Some(&help)).unwrap();
        let description = tables.tables[0].definition.description.as_ref();
        assert_eq!(description.map(String::len), Some(HELP_CHARS_MAX));
    }

    #[test]
    fn long_names_stay_apart() {
        assert_eq!(part("http_requests:rate5m"), "http_requests-rate5m");
        assert_eq!(part("__x"), "x");
        assert_eq!(part("é"), "unnamed");
        let long = "a".repeat(200);
        let (one, other) = (part(&format!("{long}1")), part(&format!("{long}2")));
        assert!(one != other && one.len() <= PART_BYTES_MAX && check_name(&one).is_ok());
    }

    #[test]
    fn units_are_those_of_the_file_or_of_names() {
        let mut tables = tables(1);
        let units = [("m.pressure".to_owned(), "kPa".to_owned())];
        tables.options.units = units.into();
        let series = tables.series("m", std::iter::empty(), None).unwrap();
        for (name, told) in [
            ("pressure", None),
            ("wait_seconds", None),
            ("x", Some("Cel")),
        ] {
            let column = (Column::Field, FieldKind::Float);
            tables
                .column(series.table, column.0, name, column.1, told)
                .unwrap();
        }
        let fields = &tables.tables[0].definition.schema.fields;
        let units: Vec<_> = fields.iter().map(|field| field.unit.as_deref()).collect();
        assert_eq!(units, [Some("kPa"), Some("s"), Some("Cel")]);
        assert_eq!(fields[0].field_type, FieldType::Double);
    }
}
