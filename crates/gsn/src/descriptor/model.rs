//! A descriptor as GSN's file says it.

use std::num::NonZeroU64;
use std::time::Duration;

use chappe_stream::DescriptorError;

use super::read;

/// A line and a column, in characters, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// Where the parts of a file are that have one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Places {
    /// `virtual-sensor`.
    pub root: Place,
    /// `description`.
    pub description: Place,
    /// `addressing`.
    pub addressing: Place,
    /// `life-cycle`.
    pub life_cycle: Place,
    /// `storage`.
    pub storage: Place,
}

/// A descriptor.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GsnDescriptor {
    /// Where its parts are.
    pub places: Places,
    /// `name`, without spaces.
    pub name: String,
    /// `protected`.
    pub is_protected: bool,
    /// `priority`.
    pub priority: Option<String>,
    /// `time-zone`.
    pub time_zone: Option<String>,
    /// `processing-class`.
    pub class: ProcessingClass,
    /// `description`.
    pub description: Option<String>,
    /// The predicates of `addressing`, by key.
    pub addressing: Vec<(String, String)>,
    /// `life-cycle@pool-size`.
    pub pool_size: Option<String>,
    /// `storage@history-size`.
    pub history: Option<History>,
    /// The attributes of `storage` that name a database of the sensor's own. Their values are not kept.
    pub own_database: Vec<String>,
    /// `streams/stream`.
    pub streams: Vec<Stream>,
    /// Attributes and elements that GSN's descriptor does not have, as paths, with their places.
    pub unknown: Vec<(Place, String)>,
}

/// How the results of the streams become elements.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProcessingClass {
    /// The place of the element.
    pub place: Place,
    /// `class-name`.
    pub name: String,
    /// `init-params/param`, by name.
    pub parameters: Vec<(String, String)>,
    /// `unique-timestamps`; true unless the file says otherwise.
    pub unique_times: bool,
    /// `output-specification@rate`.
    pub rate: Option<Duration>,
    /// `output-structure@partition-field`.
    pub partition_field: Option<String>,
    /// `output-structure/field`.
    pub fields: Vec<OutputField>,
    /// `web-input/command`.
    pub commands: Vec<WebCommand>,
    /// Whether `web-input` has a password. Its value is not kept.
    pub has_command_password: bool,
}

/// A field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutputField {
    /// The place of the element.
    pub place: Place,
    /// `name`, in lower case.
    pub name: String,
    /// `type`, as written.
    pub field_type: String,
    /// `unit`.
    pub unit: Option<String>,
    /// The text of the element.
    pub description: Option<String>,
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WebCommand {
    /// The place of the element.
    pub place: Place,
    /// `name`.
    pub name: String,
    /// `field`.
    pub fields: Vec<WebField>,
}

/// An argument of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WebField {
    /// The place of the element.
    pub place: Place,
    /// `name`.
    pub name: String,
    /// `type`, as written: `*binary:2mb`, `radio:a|b`.
    pub input: String,
    /// The text of the element.
    pub description: Option<String>,
}

/// The elements that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// The newest.
    Elements(NonZeroU64),
    /// The youngest.
    Age(Duration),
}

/// A stream: a statement over sources.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stream {
    /// The place of the element.
    pub place: Place,
    /// `name`.
    pub name: Option<String>,
    /// `rate`.
    pub rate: Option<Duration>,
    /// `count`; `None` is unlimited.
    pub count: Option<NonZeroU64>,
    /// `query`, as written.
    pub query: String,
    /// The place of `query`.
    pub query_place: Place,
    /// `source`.
    pub sources: Vec<Source>,
}

/// A source: a window over the elements of a wrapper.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Source {
    /// The place of the element.
    pub place: Place,
    /// `alias`, in lower case.
    pub alias: String,
    /// `storage-size`.
    pub window: Option<Extent>,
    /// `slide`.
    pub slide: Option<Extent>,
    /// `sampling-rate`.
    pub sampling: Option<f64>,
    /// `disconnected-buffer-size`.
    pub buffer: Option<String>,
    /// `query`, as written.
    pub query: Option<String>,
    /// The place of `query`.
    pub query_place: Place,
    /// `address`: the first that works is used.
    pub addresses: Vec<Address>,
}

/// A number of elements, or a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Elements.
    Elements(usize),
    /// Time.
    Time(Duration),
}

/// Where the elements of a source come from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Address {
    /// The place of the element.
    pub place: Place,
    /// `wrapper`, as written.
    pub wrapper: String,
    /// `partial-order-key`.
    pub order_key: Option<String>,
    /// `predicate`, by key.
    pub predicates: Vec<(String, String)>,
    /// `output-structure/field`.
    pub fields: Vec<OutputField>,
}

impl GsnDescriptor {
    /// Reads a file; `file` names it in errors.
    ///
    /// # Errors
    /// The first fault with its place: no XML, a document type declaration, a missing or wrong value.
    pub fn read(file: &str, text: &str) -> Result<Self, DescriptorError> {
        read::read(file, text)
    }

    /// Writes a file.
    #[must_use]
    pub fn to_xml(&self) -> String {
        super::write::xml(self)
    }
}

impl Address {
    /// The value of the first of these predicates; keys are compared without case.
    #[must_use]
    pub fn predicate(&self, keys: &[&str]) -> Option<&str> {
        keys.iter().find_map(|key| {
            let mut predicates = self.predicates.iter();
            let found = predicates.find(|(other, _)| other.eq_ignore_ascii_case(key));
            found.map(|(_, value)| value.trim())
        })
    }
}
