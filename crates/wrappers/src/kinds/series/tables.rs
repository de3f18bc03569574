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
    /// Bytes of the versions of the schema so far; of earlier runs, of all metadata of the stream.
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
        let known = (self.node.stream)(&name);
        // After a start, new names must not take the places of streams that are there.
        if known.is_none() && self.tables.len() >= self.streams_max {
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
        if columns::is_too_long(measurement) {
            let bytes = measurement.len();
            return Err(format!("a name has {bytes} bytes, which is too long"));
        }
        let metadata_bytes = known.as_ref().map_or(0, |known| known.metadata_bytes);
        let schema = known.map(|known| known.schema).unwrap_or_default();
        let mut table = Table {
            name: name.as_str().into(),
            measurement: measurement.to_owned(),
            labels: HashMap::new(),
            fields: HashMap::new(),
            schema_bytes: OVERHEAD_BYTES,
            versions_bytes: metadata_bytes,
            version_columns: schema.fields.len(),
            definition: Arc::default(),
            elements: Vec::new(),
        };
        for (index, field) in schema.fields.iter().enumerate() {
            table.schema_bytes += field_bytes(field);
            let text = field.description.as_deref().unwrap_or_default();
            let (known, original) = match columns::original(self.options.label, text) {
                Some(original) => (&mut table.labels, original),
                None => match columns::original("field", text) {
                    Some(original) => (&mut table.fields, original),
                    None => continue,
                },
            };
            let mut own = original;
            if index == 0 {
                let of;
                (own, of) = columns::split_measurement(original);
                let is_same = match of {
                    Some(of) => *of == format!("{measurement:?}"),
                    None => part(measurement) == measurement,
                };
                if !is_same {
                    let of = of.unwrap_or("another measurement");
                    return Err(format!(
                        "{measurement:?} and {of} would be the same stream {name:?}"
                    ));
                }
            }
            known.insert(own.into(), index);
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
    /// The field has another type or unit, or there is no room for one more.
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
            let told = unit.filter(|unit| !unit.is_empty() && column == Column::Field);
            if let (Some(told), Some(has)) = (told, &table.definition.schema.fields[*index].unit)
                && told != has
                && columns::unit_of_file(&self.options.units, &table.measurement, name).is_none()
            {
                return Err(format!(
                    "unit conflict: field {name:?} of {:?} has the unit {told:?} here, but its elements have {has:?}",
                    table.measurement,
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
        let index = fields.len();
        // What the name of the stream does not tell: a later start finds it again.
        let is_told = part(&table.measurement) == table.measurement;
        let is_told = index > 0 || (is_told && !columns::needs_measurement(name));
        let of = (!is_told).then_some(table.measurement.as_str());
        let description = columns::description(noun, name, of);
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
mod tests;
