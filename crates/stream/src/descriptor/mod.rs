//! Descriptors of virtual sensors: one TOML file each.
//!
//! ```
//! let text = r#"
//! name = "heart-rate"
//!
//! [[source]]
//! alias = "ecg"
//! query = { observed_property = "urn:oid:1.2.840.10004.1.1.1.0.0.1.131330" }
//! window = "8s"
//! slide = "1s"
//!
//! [output]
//! sql = "select max(value) as peak from ecg_samples"
//! [[output.field]]
//! name = "peak"
//! type = "double"
//! unit = "mV"
//! "#;
//! let descriptor = chappe_stream::Descriptor::parse("heart-rate.toml", text)?;
//! assert_eq!(descriptor.sources[0].alias, "ecg");
//! # Ok::<(), chappe_stream::DescriptorError>(())
//! ```
//!
//! A limit that raises an alarm is an expression of the statement in a field of type boolean:
//! `avg(value) > 38.0 as alarm`. It needs no separate key.
//!
//! Reading a descriptor checks everything that needs no stream: keys, types, names, durations, and
//! that the statement is one allowed SELECT over the aliases. Columns are checked when the sources
//! are bound, because only then are all fields known; [`Descriptor::check_columns`] checks those whose fields are
//! known before.

mod about;
mod columns;
mod command;
mod error;
mod raw;
mod source;
mod statement;
mod words;
mod write;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

pub use command::{ArgumentError, Command, CommandField, FieldInput, PassTo};
pub use error::{DescriptorError, DescriptorFault, HINT, Place, nearest};
pub use raw::descriptor_json_schema;
pub use source::WRAPPER_SCHEMA;
pub use statement::WRAPPER;
pub use words::toml_words;

use crate::{
    BindingPolicy, EarlyPolicy, Extent, LatePolicy, Retention, StreamSchema, Timing, Value,
    WindowClock,
};

/// Maximum number of sources of a statement. 16: SQLite joins at most 64 tables, a person far
/// fewer.
pub const SOURCES_MAX: usize = 16;

/// Maximum number of statements of a virtual sensor. 64: descriptors with 44 are in use.
pub const STATEMENTS_MAX: usize = 64;

/// Maximum number of keys of a source with a window for each. 100,000: as many as there may be elements
/// in all its windows.
pub const KEYS_MAX: usize = crate::WINDOW_ELEMENTS_MAX;

/// Number of keys of such a source by default. 1,000: beds of a large hospital, or nodes of a site.
pub const KEYS: usize = 1_000;

/// Most further choices of a source; reason: a person orders them.
pub const FALLBACK_MAX: usize = 8;

/// The time without an element after which the next choice is used, by default: some elements of a sensor that is
/// read every few seconds.
pub const FALLBACK_AFTER: Duration = Duration::from_secs(60);

/// Maximum length of a descriptor in bytes. 256 KiB: the statement has at most 32.
pub const DESCRIPTOR_BYTES_MAX: usize = 256 << 10;

/// A virtual sensor as described.
#[derive(Debug, Clone, PartialEq)]
pub struct Descriptor {
    /// Its name; also the name of its output stream unless the output sets another.
    pub name: String,
    /// For a person to read.
    pub description: Option<String>,
    /// Whether only accounts may read it: a node on which everyone may read does not run it.
    pub is_protected: bool,
    /// Facts about the sensor by property, each a text, a number or a Boolean.
    pub metadata: BTreeMap<String, Value>,
    /// Its commands.
    pub commands: Vec<Command>,
    /// The sources of all statements, in the order of the statements.
    pub sources: Vec<Source>,
    /// Its statements, at least one.
    pub statements: Vec<Statement>,
    /// Its output: the results of all statements.
    pub output: Output,
}

/// A statement of a virtual sensor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statement {
    /// Its name in the sensor; each of several statements has one.
    pub name: Option<String>,
    /// The SELECT over the aliases of its sources.
    pub sql: String,
    /// Results whose source time is less than this after the last ones are dropped and counted.
    pub rate: Option<Duration>,
    /// The number of elements after which it gives no more, since the sensor started.
    pub count: Option<NonZeroU64>,
}

/// A source of a virtual sensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Its name: that in the statement, or `statement.alias` if there are several statements.
    pub alias: String,
    /// The index of its statement.
    pub statement: usize,
    /// A SELECT over the window, which is called [`WRAPPER`] in it; the statement reads its result.
    /// `None`: the statement reads the window.
    pub sql: Option<String>,
    /// The share of the elements that enter the window, above 0 and at most 1. Whether an element
    /// does depends on its stream and position alone.
    pub sampling: f64,
    /// The streams; the first choice.
    pub selection: Selection,
    /// Further choices, in order of preference: the first choice that delivers is used.
    pub fallback: Vec<Selection>,
    /// The time without an element after which the next choice is used.
    pub fallback_after: Duration,
    /// The number of streams.
    pub policy: BindingPolicy,
    /// The content of the window.
    pub window: Extent,
    /// The time of evaluation.
    pub slide: Extent,
    /// With a slide of elements: the number of the element at which the first evaluation is due.
    pub first: usize,
    /// The treatment of late elements.
    pub late: LatePolicy,
    /// The use of time.
    pub timing: Timing,
    /// A window for each key, if given.
    pub per: Option<PerKey>,
}

impl Source {
    /// Its choices in order of preference.
    pub fn choices(&self) -> impl Iterator<Item = &Selection> {
        std::iter::once(&self.selection).chain(&self.fallback)
    }

    /// The choice at `index`; the first one if there is no such choice.
    #[must_use]
    pub fn choice(&self, index: usize) -> &Selection {
        self.choices().nth(index).unwrap_or(&self.selection)
    }

    /// Whether turns of its slide are evaluated as a whole, so that elements wait for their end.
    #[must_use]
    pub fn has_turns(&self) -> bool {
        let is_of_time = matches!(self.slide, Extent::Time(_));
        is_of_time && (self.timing.clock == WindowClock::Node || self.timing.wait.is_some())
    }
}

/// A window for each key of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerKey {
    /// The column whose value is the key: `key`, or a field of type text, integer or boolean.
    pub column: String,
    /// Most keys; of more, the least recently used is dropped with its window.
    pub keys: usize,
}

/// The streams of a source.
#[derive(Debug, Clone, PartialEq)]
pub enum Selection {
    /// The stream of this name.
    Stream(String),
    /// The streams that the registry finds.
    Query(StreamQuery),
    /// The calls of the sensor's command of this name.
    Command(String),
    /// The stream of a wrapper that the node runs with the sensor.
    Wrapper(InlineWrapper),
}

/// A wrapper in the file of a sensor, with the keys of a wrapper's file.
#[derive(Debug, Clone, PartialEq)]
pub struct InlineWrapper {
    /// Its keys. The crate of wrappers checks them.
    pub keys: toml::Table,
    /// Which of its streams the source reads; `None`: that of its only `stream` table.
    pub stream: Option<String>,
}

impl InlineWrapper {
    /// The stream that the source reads, if that is said: by name, or because the wrapper has one table
    /// `stream`, whose name has no placeholder.
    #[must_use]
    pub fn stream(&self) -> Option<&str> {
        if let Some(stream) = &self.stream {
            return Some(stream);
        }
        match &self.keys.get("stream")?.as_array()?[..] {
            [only] => {
                let name = only.as_table()?.get("name")?.as_str()?;
                (!name.contains('{')).then_some(name)
            }
            _ => None,
        }
    }
}

/// The criteria of a stream; all that are given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamQuery {
    /// One of its fields observes this property, a URI. That field's column is called `value`,
    /// whatever its name; another field with that name becomes `value_`.
    pub observed_property: Option<String>,
    /// The unit of that field, as a UCUM code.
    pub unit: Option<String>,
    /// Its device has this type, `{namespace}local` or `local`.
    pub entity_type: Option<String>,
    /// Its device lies in this scope.
    pub scope: Option<String>,
    /// Prefix of its name.
    pub name_prefix: Option<String>,
    /// A SPARQL SELECT whose variable `?stream` names streams by their key.
    pub sparql: Option<String>,
    /// The accounts whose triples the SELECT reads, besides those of the node.
    pub by: Vec<String>,
    /// Pieces of metadata that the stream or its device has, one for each.
    pub metadata: Vec<MetadataQuery>,
}

/// A piece of metadata that a stream or its device must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataQuery {
    /// The type of the statement, an IRI.
    pub piece_type: String,
    /// Its value; `None`: any.
    pub value: Option<MetadataValue>,
    /// The accounts whose pieces count; at least one.
    pub by: Vec<String>,
}

/// The value of a piece of metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetadataValue {
    /// A text.
    Text(String),
    /// A URI.
    Uri(String),
}

/// The output of a virtual sensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The name of the stream.
    pub stream: String,
    /// When an element counts as stored.
    pub level: chappe_log::Level,
    /// Retention of the elements, for
    /// [`StreamLog::set_retention`](crate::StreamLog::set_retention); `None`: the node's default.
    pub retention: Option<Retention>,
    /// Elements whose source time is less than this after the last one are dropped and counted.
    pub rate: Option<Duration>,
    /// Whether an element is dropped and counted unless its source time is after that of the last
    /// element with the same key.
    pub unique_times: bool,
    /// Whether an element with a field that is null is dropped and counted.
    pub drops_nulls: bool,
    /// Whether a column without a field is passed over, and a field without a column is null. Otherwise
    /// both are errors.
    pub takes_any_columns: bool,
    /// The schema of the elements.
    pub schema: StreamSchema,
}

impl Source {
    /// Its name in its statement.
    #[must_use]
    pub fn table(&self) -> &str {
        // Neither part contains a dot.
        self.alias.rsplit('.').next().unwrap_or_default()
    }
}

impl Descriptor {
    /// The name of the stream of dead letters, if a source wants one.
    #[must_use]
    pub fn dead_letters(&self) -> Option<String> {
        let wants = |source: &Source| {
            source.late == LatePolicy::DeadLetter || source.timing.early == EarlyPolicy::DeadLetter
        };
        let stream = &self.output.stream;
        let wanted = self.sources.iter().any(wants);
        wanted.then(|| format!("{stream}.dead-letters"))
    }

    /// The name of the stream of a command's calls.
    #[must_use]
    pub fn command_stream(&self, command: &Command) -> String {
        format!("{}.command.{}", self.output.stream, command.stream_part())
    }

    /// The name of the stream that a selection names; `None` for a query.
    #[must_use]
    pub fn stream_of(&self, selection: &Selection) -> Option<String> {
        match selection {
            Selection::Stream(name) => Some(name.clone()),
            Selection::Query(_) => None,
            Selection::Wrapper(wrapper) => wrapper.stream().map(str::to_owned),
            Selection::Command(name) => {
                let mut commands = self.commands.iter();
                let command = commands.find(|command| command.name == *name)?;
                Some(self.command_stream(command))
            }
        }
    }

    /// The name of the wrapper of a source's choice: `SENSOR.ALIAS`, of further choices `SENSOR.ALIAS.2` and so on.
    #[must_use]
    pub fn wrapper_name(&self, source: &Source, choice: usize) -> String {
        let (sensor, alias) = (&self.name, &source.alias);
        match choice {
            0 => format!("{sensor}.{alias}"),
            _ => format!("{sensor}.{alias}.{}", choice + 1),
        }
    }

    /// Reads a descriptor; `file` names it in errors.
    ///
    /// # Errors
    /// The first fault, with its position, its key and a hint.
    pub fn parse(file: &str, text: &str) -> Result<Self, DescriptorError> {
        raw::parse(file, text)
    }

    /// Its TOML, which [`Self::parse`] reads as the same descriptor.
    #[must_use]
    pub fn to_toml(&self) -> String {
        write::toml(self)
    }

    /// The sources of the statement at `index`.
    pub fn sources_of(&self, index: usize) -> impl Iterator<Item = &Source> {
        let sources = self.sources.iter();
        sources.filter(move |source| source.statement == index)
    }

    /// The descriptor of one statement alone.
    pub(crate) fn only(&self, index: usize) -> Self {
        let sources = self.sources_of(index).cloned().map(|mut source| {
            source.statement = 0;
            source
        });
        Self {
            sources: sources.collect(),
            statements: self.statements.get(index).cloned().into_iter().collect(),
            ..self.clone()
        }
    }

    /// The statement that is evaluated, and the table of each source in it. There is one statement.
    pub(crate) fn evaluated(&self) -> (String, Vec<String>) {
        let sources: Vec<&Source> = self.sources.iter().collect();
        match self.statements.first() {
            Some(only) => statement::evaluated(only, &sources),
            None => (String::new(), Vec::new()),
        }
    }

    /// The statements for a person to read: one alone as it is, several after their names.
    #[must_use]
    pub fn sql(&self) -> String {
        if let [statement] = &self.statements[..] {
            return statement.sql.clone();
        }
        let named = self.statements.iter().map(|statement| {
            let name = statement.name.as_deref().unwrap_or_default();
            format!("-- {name}\n{}", statement.sql.trim_end())
        });
        named.collect::<Vec<_>>().join("\n")
    }
}

impl StreamQuery {
    /// The schema of a stream's elements as seen by the statement: the field that observes the
    /// requested property is called `value`.
    ///
    /// # Errors
    /// The reason, as text, why a stream with these fields does not match.
    pub fn offered(&self, schema: &StreamSchema) -> Result<StreamSchema, String> {
        let mut offered = schema.clone();
        let Some(value) = self.value_field(schema)? else {
            return Ok(offered);
        };
        for field in &mut offered.fields {
            if field.name == value {
                field.name = "value".into();
            } else if field.name == "value" {
                field.name = "value_".into();
            }
        }
        Ok(offered)
    }

    /// The field that observes the requested property, if any is requested.
    ///
    /// # Errors
    /// The reason, as text, why a stream with these fields does not match.
    pub fn value_field<'s>(&self, schema: &'s StreamSchema) -> Result<Option<&'s str>, String> {
        let Some(property) = &self.observed_property else {
            return Ok(None);
        };
        let mut other_unit = None;
        for field in &schema.fields {
            if field.observed_property.as_ref() != Some(property) {
                continue;
            }
            if self.unit.is_none() || self.unit == field.unit {
                return Ok(Some(&field.name));
            }
            other_unit = Some(field);
        }
        Err(match other_unit {
            Some(field) => format!(
                "its field {} has the unit {:?}, not {:?}",
                field.name,
                field.unit.as_deref().unwrap_or(""),
                self.unit.as_deref().unwrap_or("")
            ),
            None => format!("no field observes {property}"),
        })
    }
}
