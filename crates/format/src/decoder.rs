//! Decodes messages: the streams that exist, and the elements of a message.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use chappe_stream::ucum::Unit;
use chappe_stream::{
    Quality, RECORD_BYTES_MAX, RECORD_HEAD_BYTES, RESERVED_COLUMNS, StreamElement, StreamSchema,
    Timestamp, Value, check_name, name_part,
};

use crate::config::NameValues;
use crate::decoders::CsvHeader;
use crate::fault::{Fault, Location, Reason, shown};
use crate::format::{FieldRule, Format, Named, NamedPart, Rule, Source, Units};
use crate::limits::Limits;
use crate::pattern::Attributes;
use crate::template::VALUE_BYTES_MAX;
use crate::value::{Raw, convert};

/// Separates the values of placeholders in the key of the table of streams.
const SEPARATOR: char = '\u{1f}';

/// A message, as a transport received it.
#[derive(Debug, Clone, Copy)]
pub struct Message<'m> {
    /// Its bytes.
    pub body: &'m [u8],
    /// The values of its topic, path and headers.
    pub attributes: Option<&'m Attributes>,
    /// When it was received.
    pub received: Timestamp,
    /// It continues the text of the message before it, as pieces of a file do: a CSV header is not repeated.
    pub is_continuation: bool,
}

impl<'m> Message<'m> {
    /// A message without attributes.
    #[must_use]
    pub const fn new(body: &'m [u8], received: Timestamp) -> Self {
        Self {
            body,
            attributes: None,
            received,
            is_continuation: false,
        }
    }

    /// The message with attributes.
    #[must_use]
    pub const fn with(mut self, attributes: &'m Attributes) -> Self {
        self.attributes = Some(attributes);
        self
    }

    /// The message as the continuation of the one before it.
    #[must_use]
    pub const fn continued(mut self) -> Self {
        self.is_continuation = true;
        self
    }
}

/// The index of a stream in its [`Decoder`].
pub type StreamIndex = usize;

/// A stream that a decoder has made elements of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamDefinition {
    /// Its name.
    pub name: String,
    /// Its schema.
    pub schema: Arc<StreamSchema>,
}

/// The elements of one message.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Output {
    /// The elements, each with its stream.
    pub elements: Vec<(StreamIndex, StreamElement)>,
    /// The records that gave none, up to the limit.
    pub faults: Vec<Fault>,
    /// Their number.
    pub fault_count: u64,
    /// The records that no stream is for, by `when` or by the format.
    pub ignored_count: u64,
}

/// The index of the field at fault, if it is one field, and why.
type FieldFault = (Option<usize>, Reason);

impl Output {
    fn clear(&mut self) {
        self.elements.clear();
        self.faults.clear();
        self.fault_count = 0;
        self.ignored_count = 0;
    }
}

/// Decodes the messages of one source.
#[derive(Debug)]
pub struct Decoder {
    format: Arc<Format>,
    streams: Streams,
    csv_header: Option<CsvHeader>,
}

impl Decoder {
    /// A decoder without streams.
    #[must_use]
    pub fn new(format: Arc<Format>) -> Self {
        let rules = format.rules.len();
        Self {
            format,
            streams: Streams {
                definitions: Vec::new(),
                by_name: HashMap::new(),
                tables: (0..rules).map(|_| Table::default()).collect(),
            },
            csv_header: None,
        }
    }

    /// The streams so far. They are never removed, so an index stays valid.
    #[must_use]
    pub fn streams(&self) -> &[StreamDefinition] {
        &self.streams.definitions
    }

    /// A stream of an output.
    ///
    /// # Panics
    /// The index is not of an output of this decoder.
    #[must_use]
    pub fn stream(&self, index: StreamIndex) -> &StreamDefinition {
        &self.streams.definitions[index]
    }

    /// Replaces `output` by the elements and faults of a message.
    ///
    /// # Errors
    /// Nothing of the message can be read; the output is empty then.
    pub fn decode(&mut self, message: &Message<'_>, output: &mut Output) -> Result<(), Box<Fault>> {
        output.clear();
        let format = Arc::clone(&self.format);
        let limits = &format.limits;
        if message.body.len() > limits.message_bytes {
            let reason = limit("message_bytes", limits.message_bytes as u64);
            return Err(whole(Location::default(), reason));
        }
        if !message.is_continuation {
            self.csv_header = None;
        }
        for table in &mut self.streams.tables {
            table.constant = None;
        }
        let mut sink = Sink {
            format: &format,
            streams: &mut self.streams,
            message,
            output,
            values: Vec::new(),
            raw_name: String::new(),
            records: 0,
            read_bytes: Cell::new(0),
            values_made: 0,
        };
        let outcome = format.kind.decode(message, &mut sink, &mut self.csv_header);
        if outcome.is_err() {
            output.clear();
        }
        outcome
    }
}

/// A fault of a whole message.
pub(crate) fn whole(location: Location, reason: Reason) -> Box<Fault> {
    Box::new(Fault {
        location,
        stream: None,
        field: None,
        reason,
    })
}

pub(crate) const fn limit(limit: &'static str, bound: u64) -> Reason {
    Reason::Limit { limit, bound }
}

/// One record of a message, as its format reads it.
pub(crate) trait Record {
    /// The value of a path that the format has compiled.
    fn value(&self, slot: usize) -> Result<Raw<'_>, Reason>;

    /// The value of a name in a template that is neither variable nor field nor attribute.
    fn named(&self, name: &str) -> Option<Cow<'_, str>> {
        let _ = name;
        None
    }

    /// The time by the format itself.
    fn time(&self, received: Timestamp) -> Result<Option<Timestamp>, Reason> {
        let _ = received;
        Ok(None)
    }

    /// The unit of a value by the format itself, a UCUM code.
    fn unit(&self, slot: usize) -> Option<Cow<'_, str>> {
        let _ = slot;
        None
    }

    /// The quality by the format itself.
    fn quality(&self) -> Quality {
        Quality::Good
    }
}

/// No more records are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

#[derive(Debug)]
struct Streams {
    definitions: Vec<StreamDefinition>,
    /// By name: the index, and the rule that made it.
    by_name: HashMap<String, (StreamIndex, usize)>,
    /// For each rule.
    tables: Vec<Table>,
}

/// The streams of one rule.
#[derive(Debug, Default)]
struct Table {
    /// By the values of the placeholders.
    by_values: HashMap<String, StreamIndex>,
    /// The stream of the last record.
    last: Option<(String, StreamIndex)>,
    /// The stream of all records of this message.
    constant: Option<StreamIndex>,
}

/// Takes the records of one message.
pub(crate) struct Sink<'s> {
    pub(crate) format: &'s Format,
    streams: &'s mut Streams,
    message: &'s Message<'s>,
    output: &'s mut Output,
    /// Values of the element that is being made.
    values: Vec<Value>,
    raw_name: String,
    records: u64,
    /// Bytes of the texts, bytes and samples that were read so far, each time they are read.
    read_bytes: Cell<usize>,
    /// Values of the elements so far.
    values_made: usize,
}

impl Sink<'_> {
    pub(crate) fn limits(&self) -> &Limits {
        &self.format.limits
    }

    /// The number of the next record.
    pub(crate) fn next_record(&mut self) -> u64 {
        self.records += 1;
        self.records
    }

    /// Counts a record that no stream is for.
    pub(crate) fn ignore(&mut self) {
        self.output.ignored_count += 1;
    }

    /// Reports a record that gives no element.
    pub(crate) fn fault(&mut self, location: Location, reason: Reason) {
        self.push_fault(location, None, None, reason);
    }

    fn push_fault(
        &mut self,
        location: Location,
        rule: Option<&Rule>,
        field: Option<&FieldRule>,
        reason: Reason,
    ) {
        self.output.fault_count += 1;
        if self.output.faults.len() < self.format.limits.faults {
            self.output.faults.push(Fault {
                location,
                stream: rule.map(|rule| rule.name_text.clone()),
                field: field.map(|field| field.field.name.clone()),
                reason,
            });
        }
    }

    /// Makes the elements of a record.
    pub(crate) fn record(&mut self, location: Location, record: &impl Record) -> Result<(), Full> {
        let format = self.format;
        let mut time = None;
        let (mut is_wanted, mut is_used) = (false, false);
        for (index, rule) in format.rules.iter().enumerate() {
            match self.applies(rule, record) {
                Ok(true) => is_wanted = true,
                Ok(false) => continue,
                Err(reason) => {
                    (is_wanted, is_used) = (true, true);
                    self.push_fault(location, Some(rule), None, reason);
                    continue;
                }
            }
            if let Some(reason) = self.is_full(rule) {
                self.push_fault(location, None, None, reason);
                return Err(Full);
            }
            match self.element(index, rule, record, &mut time) {
                Ok(None) => {}
                Ok(Some((stream, element))) => {
                    is_used = true;
                    self.values_made += element.values.len();
                    self.output.elements.push((stream, element));
                }
                Err((field, reason)) => {
                    is_used = true;
                    let field = field.map(|field| &rule.fields[field]);
                    self.push_fault(location, Some(rule), field, reason);
                }
            }
        }
        match (is_wanted, is_used) {
            (false, _) => self.ignore(),
            (true, false) => self.fault(location, Reason::Empty),
            (true, true) => {}
        }
        Ok(())
    }

    /// The limit that lets the message give no more elements.
    fn is_full(&self, rule: &Rule) -> Option<Reason> {
        let limits = &self.format.limits;
        if self.output.elements.len() >= limits.elements {
            return Some(limit("elements", limits.elements as u64));
        }
        if self.values_made + rule.fields.len() > limits.values.max(rule.fields.len()) {
            return Some(limit("values", limits.values as u64));
        }
        let bound = limits.read_bytes(self.message.body.len());
        (self.read_bytes.get() > bound).then(|| limit("read_bytes", bound as u64))
    }

    /// Reads a value, and counts its bytes: a record may repeat a part of the whole message.
    fn read<'r>(&self, record: &'r impl Record, slot: usize) -> Result<Raw<'r>, Reason> {
        let raw = record.value(slot)?;
        self.count(raw.bytes());
        Ok(raw)
    }

    fn count(&self, bytes: usize) {
        self.read_bytes
            .set(self.read_bytes.get().saturating_add(bytes));
    }

    /// Reads a value as text.
    fn read_text(&self, record: &impl Record, slot: usize) -> Result<Option<String>, Reason> {
        let raw = self.read(record, slot)?;
        let text = raw.text().map(Cow::into_owned);
        if let (Raw::Json(_), Some(text)) = (&raw, &text) {
            self.count(text.len());
        }
        Ok(text)
    }

    fn applies(&self, rule: &Rule, record: &impl Record) -> Result<bool, Reason> {
        for (source, wanted) in &rule.when {
            let found = match source {
                Source::Field { index, .. } => self
                    .read_text(record, rule.fields[*index].slot)?
                    .map(Cow::Owned),
                source => self.text(source, record)?,
            };
            let is_wanted = found.is_some_and(|found| wanted.iter().any(|it| *it == found));
            if !is_wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The text of a placeholder, but for those of fields.
    fn text<'r>(
        &'r self,
        source: &Source,
        record: &'r impl Record,
    ) -> Result<Option<Cow<'r, str>>, Reason> {
        match source {
            Source::Slot { slot, .. } => Ok(self.read_text(record, *slot)?.map(Cow::Owned)),
            Source::Field { index, .. } => Ok(self.values.get(*index).and_then(value_text)),
            Source::Free { name, .. } => {
                let attributes = self.message.attributes;
                let attribute = attributes.and_then(|attributes| attributes.value(name));
                Ok(attribute.map(Cow::Borrowed).or_else(|| record.named(name)))
            }
        }
    }

    fn element(
        &mut self,
        index: usize,
        rule: &Rule,
        record: &impl Record,
        time: &mut Option<Timestamp>,
    ) -> Result<Option<(StreamIndex, StreamElement)>, FieldFault> {
        let of_rule = |reason| (None, reason);
        self.values = Vec::with_capacity(rule.fields.len());
        let (mut is_empty, mut bytes) = (true, RECORD_HEAD_BYTES);
        for (at, field) in rule.fields.iter().enumerate() {
            let value = self
                .value(field, record)
                .map_err(|reason| (Some(at), reason))?;
            is_empty &= value == Value::Null;
            bytes += value.record_bytes_max();
            if bytes > RECORD_BYTES_MAX {
                return Err((Some(at), Reason::TooLarge));
            }
            self.values.push(value);
        }
        let missing = |at: &usize| rule.fields[*at].is_required && self.values[*at] == Value::Null;
        if let Some(at) = (0..rule.fields.len()).find(missing) {
            return Err((Some(at), Reason::Missing));
        }
        // A record without any of the fields is of another stream.
        if is_empty {
            return Ok(None);
        }
        let source_time = match *time {
            Some(time) => time,
            None => *time.insert(self.time(record).map_err(of_rule)?),
        };
        let stream = self.stream(index, rule, record).map_err(of_rule)?;
        let key = match &rule.key {
            Some(key) => Some(self.key(key, record).map_err(of_rule)?),
            None => None,
        };
        bytes += key.as_ref().map_or(0, String::len);
        if bytes > RECORD_BYTES_MAX {
            return Err(of_rule(Reason::TooLarge));
        }
        let mut values = std::mem::take(&mut self.values);
        for value in &mut values {
            if let Value::Samples(samples) = value {
                samples.start = source_time;
            }
        }
        let element = StreamElement {
            position: Default::default(),
            source_time,
            receive_time: self.message.received,
            key,
            values,
            quality: record.quality(),
            origin: None,
        };
        Ok(Some((stream, element)))
    }

    fn value(&self, field: &FieldRule, record: &impl Record) -> Result<Value, Reason> {
        let raw = self.read(record, field.slot)?;
        let is_json = matches!(raw, Raw::Json(_));
        let value = convert(raw, field.target, &self.format.texts)?;
        if let (true, Value::Text(text)) = (is_json, &value) {
            self.count(text.len());
        }
        if !matches!(value, Value::Double(_) | Value::Samples(_)) {
            return Ok(value);
        }
        let conversion = match &field.units {
            Units::Target(None) => return Ok(value),
            Units::Fixed(conversion) => *conversion,
            Units::Target(Some(target)) => match record.unit(field.slot) {
                None => return Ok(value),
                Some(code) => conversion(&code, field, target)?,
            },
            Units::Slot { slot, target } => match self.read(record, *slot)?.text() {
                None => return Ok(value),
                Some(code) => conversion(&code, field, target)?,
            },
        };
        match value {
            Value::Double(number) => match conversion.apply(number) {
                number if number.is_finite() => Ok(Value::Double(number)),
                _ => Err(Reason::NotFinite),
            },
            Value::Samples(mut samples) => {
                for number in &mut samples.values {
                    *number = conversion.apply(*number);
                    if !number.is_finite() {
                        return Err(Reason::NotFinite);
                    }
                }
                Ok(Value::Samples(samples))
            }
            value => Ok(value),
        }
    }

    fn time(&self, record: &impl Record) -> Result<Timestamp, Reason> {
        let received = self.message.received;
        let found = match &self.format.time {
            None => record.time(received)?,
            Some(rule) => {
                let found = match &rule.slots[..] {
                    [slot] => self.read(record, *slot)?,
                    slots => {
                        let mut joined = String::new();
                        for slot in slots {
                            let raw = self.read(record, *slot)?;
                            let Some(text) = raw.text() else { continue };
                            if !joined.is_empty() {
                                joined.push(' ');
                            }
                            joined.push_str(text.trim());
                        }
                        Raw::Text(Cow::Owned(joined))
                    }
                };
                let is_none = match &found {
                    Raw::Text(text) => text.trim().is_empty() || self.format.texts.is_null(text),
                    raw => raw.is_none(),
                };
                match is_none {
                    true => None,
                    false => Some(rule.format.read(&found, rule.zone_s)?),
                }
            }
        };
        let Some(time) = found else {
            return Ok(received);
        };
        let future = self.format.limits.future;
        let future_ns = i64::try_from(future.as_nanos()).unwrap_or(i64::MAX);
        if time.0.saturating_sub(received.0) > future_ns {
            return Err(Reason::Future {
                found: time.to_string(),
                limit_s: i64::try_from(future.as_secs()).unwrap_or(i64::MAX),
            });
        }
        Ok(time)
    }

    /// The stream of a record.
    fn stream(
        &mut self,
        index: usize,
        rule: &Rule,
        record: &impl Record,
    ) -> Result<StreamIndex, Reason> {
        if let Some(stream) = self.streams.tables[index].constant {
            return Ok(stream);
        }
        let mut values = std::mem::take(&mut self.raw_name);
        values.clear();
        for part in &rule.name.parts {
            if let NamedPart::Placeholder(source) = part {
                self.append(source, record, &mut values)?;
                values.push(SEPARATOR);
            }
        }
        let table = &mut self.streams.tables[index];
        let known = match &table.last {
            Some((last, stream)) if *last == values => Some(*stream),
            _ => table.by_values.get(&values).copied(),
        };
        let stream = match known {
            Some(stream) => stream,
            None => self.new_stream(index, rule, &values)?,
        };
        let table = &mut self.streams.tables[index];
        if rule.name.is_constant {
            table.constant = Some(stream);
        }
        match &mut table.last {
            Some((_, last)) if *last == stream => {}
            last => *last = Some((values.clone(), stream)),
        }
        self.raw_name = values;
        Ok(stream)
    }

    fn append(
        &self,
        source: &Source,
        record: &impl Record,
        text: &mut String,
    ) -> Result<(), Reason> {
        let value = self.text(source, record)?;
        let Some(value) = value.filter(|value| !value.is_empty()) else {
            let (Source::Slot { name, .. }
            | Source::Field { name, .. }
            | Source::Free { name, .. }) = source;
            return Err(Reason::NoValue(name.clone()));
        };
        if value.len() > VALUE_BYTES_MAX {
            return Err(limit("value_bytes", VALUE_BYTES_MAX as u64));
        }
        text.push_str(&value);
        Ok(())
    }

    fn key(&self, key: &Named, record: &impl Record) -> Result<String, Reason> {
        let mut text = String::new();
        for part in &key.parts {
            match part {
                NamedPart::Literal(literal) => text.push_str(literal),
                NamedPart::Placeholder(source) => self.append(source, record, &mut text)?,
            }
        }
        match text.len() > VALUE_BYTES_MAX {
            true => Err(limit("key_bytes", VALUE_BYTES_MAX as u64)),
            false => Ok(text),
        }
    }

    /// Makes the stream for these values of the placeholders of its name.
    fn new_stream(
        &mut self,
        index: usize,
        rule: &Rule,
        values: &str,
    ) -> Result<StreamIndex, Reason> {
        let made = self.streams.tables[index].by_values.len();
        if made >= usize::try_from(rule.streams_max).unwrap_or(usize::MAX) {
            return Err(Reason::Streams(rule.streams_max));
        }
        let name = stream_name(rule, values)?;
        let schema = schema(rule, values)?;
        let by_name = self.streams.by_name.get(&name).copied();
        let stream = match by_name {
            Some((_, maker)) if maker == index => {
                let values: Vec<&str> = values.split_terminator(SEPARATOR).collect();
                return Err(Reason::Name(format!(
                    "the values {values:?} give the stream {name:?}, as other values did"
                )));
            }
            Some((stream, _)) => {
                let other = &self.streams.definitions[stream].schema;
                if !other.equals_but_descriptions(&schema) {
                    let text =
                        format!("the stream {name:?} has other fields by another [[stream]]");
                    return Err(Reason::Name(text));
                }
                stream
            }
            None => {
                let stream = self.streams.definitions.len();
                self.streams.by_name.insert(name.clone(), (stream, index));
                self.streams.definitions.push(StreamDefinition {
                    name,
                    schema: Arc::new(schema),
                });
                stream
            }
        };
        let table = &mut self.streams.tables[index];
        table.by_values.insert(values.to_owned(), stream);
        Ok(stream)
    }
}

fn stream_name(rule: &Rule, values: &str) -> Result<String, Reason> {
    let mut values = values.split(SEPARATOR);
    let mut name = String::new();
    for part in &rule.name.parts {
        match part {
            NamedPart::Literal(literal) => name.push_str(literal),
            NamedPart::Placeholder(_) => {
                let value = values.next().unwrap_or_default();
                match rule.name_values {
                    NameValues::Convert => name.push_str(&name_part(value)),
                    NameValues::Refuse if value.contains('.') => {
                        let text = format!("the value {:?} has a dot", shown(value));
                        return Err(Reason::Name(text));
                    }
                    NameValues::Refuse => name.push_str(value),
                }
            }
        }
    }
    check_name(&name).map_err(|error| Reason::Name(error.to_string()))?;
    Ok(name)
}

fn schema(rule: &Rule, values: &str) -> Result<StreamSchema, Reason> {
    let mut schema = StreamSchema {
        fields: Vec::with_capacity(rule.fields.len()),
        key: rule.subject.clone(),
    };
    for field_rule in &rule.fields {
        let mut field = field_rule.field.clone();
        let has_placeholder = |part: &NamedPart| matches!(part, NamedPart::Placeholder(_));
        if field_rule.name.parts.iter().any(has_placeholder) {
            field.name = field_name(rule, field_rule, values);
        }
        if RESERVED_COLUMNS.contains(&field.name.as_str()) {
            let text = format!("every element has {:?} besides its fields", field.name);
            return Err(Reason::Name(text));
        }
        schema.fields.push(field);
    }
    schema
        .check_names()
        .map_err(|error| Reason::Name(error.to_string()))?;
    Ok(schema)
}

/// The name of a field with placeholders, all of which the stream's name has too.
fn field_name(rule: &Rule, field: &FieldRule, values: &str) -> String {
    let sources = rule.name.parts.iter().filter_map(|part| match part {
        NamedPart::Placeholder(source) => Some(source),
        NamedPart::Literal(_) => None,
    });
    let values: Vec<(&Source, &str)> = sources.zip(values.split(SEPARATOR)).collect();
    let mut name = String::new();
    for part in &field.name.parts {
        match part {
            NamedPart::Literal(literal) => name.push_str(literal),
            NamedPart::Placeholder(source) => {
                let value = values.iter().find(|(other, _)| *other == source);
                let value = value.map_or("", |(_, value)| value);
                let _ = write!(name, "{}", name_part(value).replace('-', "_"));
            }
        }
    }
    match name.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("_{name}"),
        false => name,
    }
}

fn conversion(
    code: &str,
    field: &FieldRule,
    target: &Unit,
) -> Result<chappe_stream::ucum::Conversion, Reason> {
    let unit = Unit::parse(code.trim()).map_err(|error| Reason::Unit(error.to_string()))?;
    unit.conversion_to(target).ok_or_else(|| {
        let wanted = field.field.unit.as_deref().unwrap_or_default();
        Reason::Unit(format!(
            "{:?} does not convert into {wanted:?}",
            shown(code)
        ))
    })
}

/// The text of a value that a placeholder names.
fn value_text(value: &Value) -> Option<Cow<'_, str>> {
    Some(match value {
        Value::Null | Value::Bytes(_) | Value::Samples(_) => return None,
        Value::Boolean(flag) => Cow::Owned(flag.to_string()),
        Value::Integer(number) => Cow::Owned(number.to_string()),
        Value::Double(number) => Cow::Owned(number.to_string()),
        Value::Text(text) => Cow::Borrowed(text),
    })
}
