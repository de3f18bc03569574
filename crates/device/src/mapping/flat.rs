//! Flat event types become streams by their schema, with no configuration.
//!
//! A field is a column: its name in lower case, its type by the built-in type, its unit and what it
//! observes by the schema's annotations. The first `xs:dateTime` is the element's source time. A
//! list with a sample period is a stretch of a waveform.
//!
//! Deliberately not here: nested and repeated content, which wants path rules ([`crate::mapping::rules`]).

use std::collections::HashMap;

use base64::Engine as _;
use chappe_soap::schema::{
    FieldPlace, FlatField, FlatType, ValueFamily, parse_date_time, parse_duration,
};
use chappe_stream::{Field, FieldType, Quality, RECORD_BYTES_MAX, StreamSchema, Timestamp, Value};
use chappe_xml::{Element, Name, Node};

use crate::mapping::mapped::{self, Mapped, Mapping, Offer, Trouble, column_name};

/// An event whose type is flat.
#[derive(Debug, Clone)]
struct Event {
    action: String,
    flat: FlatType,
    /// The columns: index into the fields of the flat type.
    columns: Vec<usize>,
    /// The field that holds the source time.
    time: Option<usize>,
    /// The elements of the fields, each with its place among [`Found`].
    elements: HashMap<Name, usize>,
}

/// The children of an event's element that hold fields, the first of each name.
type Found<'a> = Vec<Option<&'a Element>>;

/// The mapping of the flat events of one device.
#[derive(Debug, Default)]
pub struct FlatMapping {
    events: Vec<Event>,
    offers: Vec<Offer>,
}

impl FlatMapping {
    /// Adds an event; says why when it has nothing that a stream can hold.
    ///
    /// # Errors
    /// When the type has no usable field.
    pub fn add(&mut self, name: &str, action: &str, flat: FlatType) -> Result<(), Trouble> {
        let is_time = |field: &FlatField| {
            !field.list && !field.repeated && field.data_type.family() == ValueFamily::DateTime
        };
        let time = flat.fields.iter().position(is_time);
        let columns: Vec<_> = (0..flat.fields.len())
            .filter(|index| Some(*index) != time && !flat.fields[*index].repeated)
            .collect();
        if columns.is_empty() {
            let trouble = Trouble::new("flat_no_columns", format!("{action} has no usable field"));
            return Err(trouble.hint("write path rules for this event"));
        }
        let mut fields: Vec<Field> = Vec::new();
        let mut names = UniqueNames::default();
        for index in &columns {
            let mut field = column(&flat.fields[*index]);
            field.name = names.unique(field.name);
            fields.push(field);
        }
        self.offers.push(Offer {
            name: column_name(name),
            schema: StreamSchema { fields, key: None },
            description: flat.doc.clone(),
        });
        self.events.push(Event {
            action: action.to_owned(),
            elements: places(&flat),
            flat,
            columns,
            time,
        });
        Ok(())
    }
}

fn places(flat: &FlatType) -> HashMap<Name, usize> {
    let mut places = HashMap::new();
    let of_elements = |field: &&FlatField| field.place == FieldPlace::Element;
    for field in flat.fields.iter().filter(of_elements) {
        let next = places.len();
        places.entry(field.name.clone()).or_insert(next);
    }
    places
}

/// Column names given so far, each with the number of columns that wanted it.
#[derive(Default)]
struct UniqueNames(HashMap<String, usize>);

impl UniqueNames {
    /// The name, with as many `_` after it as make it unique. Where the same name comes again, the
    /// search goes on from the last one, so that equal names cost no more than others.
    fn unique(&mut self, name: String) -> String {
        let mut wanted = self.0.get(&name).copied().unwrap_or_default();
        let unique = loop {
            let candidate = format!("{name}{}", "_".repeat(wanted));
            wanted += 1;
            if !self.0.contains_key(&candidate) {
                break candidate;
            }
        };
        self.0.insert(unique.clone(), 1);
        if unique != name {
            self.0.insert(name, wanted);
        }
        unique
    }
}

impl Mapping for FlatMapping {
    fn offers(&self) -> &[Offer] {
        &self.offers
    }

    fn actions(&self) -> Vec<String> {
        self.events
            .iter()
            .map(|event| event.action.clone())
            .collect()
    }

    fn map(&mut self, action: &str, body: &Element, received: Timestamp) -> Mapped {
        let found = self.events.iter().position(|event| event.action == action);
        let Some(index) = found else {
            let trouble = Trouble::new("flat_unknown_action", action);
            return Mapped {
                elements: Vec::new(),
                troubles: vec![trouble],
            };
        };
        self.events[index].map(index, body, received)
    }
}

impl Event {
    /// Looks at each child once: an event may have half a million, and a thousand fields.
    fn find<'a>(&self, body: &'a Element) -> Found<'a> {
        let mut found = vec![None; self.elements.len()];
        for child in body.elements() {
            if let Some(place) = self.elements.get(&child.name) {
                found[*place].get_or_insert(child);
            }
        }
        found
    }

    /// The text of a field in the event, or `None` when it is missing or nil.
    fn text(&self, body: &Element, found: &Found<'_>, field: &FlatField) -> Option<String> {
        match field.place {
            FieldPlace::Attribute => body.attribute(&field.name).map(str::to_owned),
            FieldPlace::Text => Some(body.text().into_owned()),
            FieldPlace::Element => {
                let child = found[*self.elements.get(&field.name)?]?;
                let nil = Name::new("http://www.w3.org/2001/XMLSchema-instance", "nil");
                let is_nil = matches!(child.attribute(&nil), Some("true" | "1"));
                (!is_nil).then(|| child.text().into_owned())
            }
        }
    }

    fn map(&self, index: usize, body: &Element, received: Timestamp) -> Mapped {
        let mut mapped = Mapped::default();
        if body.name != self.flat.name {
            let detail = format!(
                "{} holds {} instead of {}",
                self.action, body.name, self.flat.name
            );
            mapped
                .troubles
                .push(Trouble::new("flat_other_element", detail));
            return mapped;
        }
        let found = self.find(body);
        let text = |field: usize| self.text(body, &found, &self.flat.fields[field]);
        let mut source_time = received;
        if let Some(text) = self.time.and_then(text) {
            match parse_date_time(&text) {
                Ok(nanoseconds) => source_time = Timestamp(nanoseconds),
                Err(error) => mapped
                    .troubles
                    .push(Trouble::new("flat_time", error.to_string())),
            }
        }
        let mut quality = Quality::Good;
        let mut values = Vec::with_capacity(self.columns.len());
        let mut bytes = 0;
        for column in &self.columns {
            let field = &self.flat.fields[*column];
            let value = match text(*column) {
                Some(text) => value(field, &text, source_time),
                None if field.optional => Ok(Value::Null),
                None => Err("it is missing".to_owned()),
            };
            values.push(value.unwrap_or_else(|why| {
                let detail = format!("{} of {}: {why}", field.name.local, self.action);
                mapped.troubles.push(Trouble::new("flat_value", detail));
                quality = Quality::Bad;
                Value::Null
            }));
            // A schema may put one text in every column: what no record holds is not made.
            bytes += values.last().map_or(0, bytes_of);
            if bytes > RECORD_BYTES_MAX {
                let detail = format!("{} of {}", field.name.local, self.action);
                mapped.troubles = vec![Trouble::new("flat_too_large", detail)];
                return mapped;
            }
        }
        mapped.elements.push((
            index,
            mapped::element(source_time, received, quality, values),
        ));
        mapped
    }
}

/// The column of a field.
fn column(field: &FlatField) -> Field {
    let family = field.data_type.family();
    let field_type = match (field.list, field.sample_period, family) {
        (true, Some(_), ValueFamily::Integer | ValueFamily::Number) => FieldType::Samples,
        (true, _, _) => FieldType::Text,
        (false, _, ValueFamily::Boolean) => FieldType::Boolean,
        (false, _, ValueFamily::Integer) => FieldType::Integer,
        (false, _, ValueFamily::Number | ValueFamily::Duration) => FieldType::Double,
        (false, _, ValueFamily::Bytes) => FieldType::Bytes,
        (false, _, ValueFamily::Text | ValueFamily::DateTime) => FieldType::Text,
    };
    let duration = !field.list && family == ValueFamily::Duration;
    Field {
        name: column_name(&field.name.local),
        field_type,
        unit: field
            .unit
            .clone()
            .or_else(|| duration.then(|| "s".to_owned())),
        observed_property: field.model_reference.first().cloned(),
        description: field.doc.clone(),
    }
}

/// The least that a value takes in a record.
fn bytes_of(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Samples(samples) => size_of_val(samples.values.as_slice()),
        _ => 0,
    }
}

/// Text as the value of a field.
fn value(field: &FlatField, text: &str, source_time: Timestamp) -> Result<Value, String> {
    let family = field.data_type.family();
    if field.list {
        let samples = matches!(family, ValueFamily::Integer | ValueFamily::Number);
        return match field.sample_period {
            Some(period) if samples => {
                let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
                let samples = mapped::samples(text, source_time, period_ns);
                samples
                    .map(Value::Samples)
                    .map_err(|error| error.to_string())
            }
            _ => Ok(Value::Text(text.trim().to_owned())),
        };
    }
    typed(family, field.data_type.local() == "hexBinary", text)
}

/// Text as a value of a family.
pub(crate) fn typed(family: ValueFamily, hex: bool, text: &str) -> Result<Value, String> {
    let lexical = chappe_xml::Value::from(text);
    let value = match family {
        ValueFamily::Boolean => lexical.boolean().map(Value::Boolean),
        ValueFamily::Integer => lexical.integer().map(Value::Integer),
        ValueFamily::Number => lexical.double().map(Value::Double),
        ValueFamily::Text | ValueFamily::DateTime => return Ok(Value::Text(text.to_owned())),
        ValueFamily::Duration => {
            let nanoseconds = parse_duration(text).map_err(|error| error.to_string())?;
            return Ok(Value::Double(nanoseconds as f64 / 1e9));
        }
        ValueFamily::Bytes if hex => {
            let bytes = chappe_identity::hex_decode(text.trim());
            return bytes
                .map(Value::Bytes)
                .ok_or_else(|| "not hexadecimal".to_owned());
        }
        ValueFamily::Bytes => {
            let packed: String = text.split_ascii_whitespace().collect();
            let engine = base64::engine::general_purpose::STANDARD;
            return engine
                .decode(packed)
                .map(Value::Bytes)
                .map_err(|error| error.to_string());
        }
    };
    value.map_err(|error| error.to_string())
}

/// The whole content of an element as text XML, for what no rule takes.
pub(crate) fn rest(element: &Element, taken: &[&Element]) -> Option<String> {
    let mut left = element.clone();
    left.children = element
        .children
        .iter()
        .filter(|node| match node {
            Node::Element(child) => !taken.iter().any(|other| std::ptr::eq(*other, child)),
            Node::Text(text) => !text.trim().is_empty(),
        })
        .cloned()
        .collect();
    (!left.children.is_empty()).then(|| left.to_text())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chappe_soap::schema::XsdType;
    use chappe_stream::Samples;
    use chappe_xml::Name;

    use super::*;

    const NS: &str = "urn:test";

    fn flat() -> FlatType {
        let field = |local, data_type| FlatField::new(Name::new(NS, local), data_type);
        let celsius = field("Temperature", XsdType::Double).with_unit("Cel");
        let ecg = field("Ecg", XsdType::Double).with_sample_period(Duration::from_millis(4));
        let mut note = field("Note", XsdType::String);
        note.optional = true;
        FlatType {
            name: Name::new(NS, "Reading"),
            fields: vec![
                field("Time", XsdType::DateTime),
                celsius.with_model_reference("urn:temperature"),
                ecg.with_unit("mV"),
                field("Raw", XsdType::HexBinary),
                field("Count", XsdType::Int),
                note,
            ],
            doc: Some("a reading".into()),
        }
    }

    fn mapped(content: &str) -> Mapped {
        let mut mapping = FlatMapping::default();
        mapping
            .add("AirReading", "urn:test/Reading", flat())
            .expect("it has columns");
        let text = format!("<Reading xmlns='{NS}'>{content}</Reading>");
        let body = Element::parse(text.as_bytes()).expect("the event is XML");
        mapping.map("urn:test/Reading", &body, Timestamp(9))
    }

    #[test]
    fn one_text_in_many_columns_is_copied_no_further_than_a_record_goes() {
        let fields = vec![FlatField::new(Name::new(NS, "Note"), XsdType::String); 60];
        let flat = FlatType {
            name: Name::new(NS, "E"),
            fields,
            ..flat()
        };
        let mut mapping = FlatMapping::default();
        mapping.add("E", "urn:E", flat).expect("it has columns");
        let mut mapped = |bytes: usize| {
            let text = format!("<E xmlns='{NS}'><Note>{}</Note></E>", "x".repeat(bytes));
            let body = Element::parse(text.as_bytes()).expect("it is XML");
            mapping.map("urn:E", &body, Timestamp(0))
        };
        let small = mapped(30_000);
        assert_eq!((small.elements.len(), small.troubles.len()), (1, 0));
        let large = mapped(1_000_000);
        assert_eq!(large.elements, []);
        assert_eq!(large.troubles[0].reason, "flat_too_large");
    }

    #[test]
    fn the_schema_becomes_columns_with_unit_and_meaning() {
        let mut mapping = FlatMapping::default();
        mapping
            .add("AirReading", "urn:test/Reading", flat())
            .expect("it has columns");
        let offer = &mapping.offers()[0];
        assert_eq!(offer.name, "air_reading");
        let names: Vec<_> = offer
            .schema
            .fields
            .iter()
            .map(|field| field.name.as_str())
            .collect();
        assert_eq!(names, ["temperature", "ecg", "raw", "count", "note"]);
        let temperature = &offer.schema.fields[0];
        assert_eq!(temperature.unit.as_deref(), Some("Cel"));
        assert_eq!(
            temperature.observed_property.as_deref(),
            Some("urn:temperature")
        );
        assert_eq!(offer.schema.fields[1].field_type, FieldType::Samples);
        assert!(offer.schema.check_names().is_ok());
    }

    #[test]
    fn an_event_becomes_an_element() {
        let mapped = mapped(
            "<Time>1970-01-01T00:00:01Z</Time><Temperature>21.5</Temperature><Ecg>1 2 -3.5</Ecg>
             <Raw>0aFF</Raw><Count>-7</Count>",
        );
        assert_eq!(mapped.troubles, []);
        let (_, element) = &mapped.elements[0];
        let start = Timestamp(1_000_000_000);
        assert_eq!(element.source_time, start);
        let samples = Samples {
            start,
            period_ns: 4_000_000,
            values: vec![1.0, 2.0, -3.5],
        };
        let wanted = [
            Value::Double(21.5),
            Value::Samples(samples),
            Value::Bytes(vec![10, 255]),
            Value::Integer(-7),
            Value::Null,
        ];
        assert_eq!(element.values, wanted);
    }

    /// A message of 4 MiB has some 300,000 children.
    #[test]
    fn an_event_of_many_children_is_mapped_in_time() {
        let mut wide = flat();
        wide.fields = (0..1_000)
            .map(|number| FlatField::new(Name::owned(NS, format!("f{number}")), XsdType::Int))
            .collect();
        let mut mapping = FlatMapping::default();
        mapping
            .add("R", "urn:test/R", wide)
            .expect("it has columns");
        let mut body = Element::new(Name::new(NS, "Reading"));
        let child = |local: &'static str| Node::Element(Element::new(Name::new(NS, local)));
        body.children = vec![child("g"); 300_000];
        body.children.push(Node::Element(
            Element::new(Name::new(NS, "f999")).with_text("7"),
        ));
        let start = std::time::Instant::now();
        let mapped = mapping.map("urn:test/R", &body, Timestamp(9));
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
        assert_eq!(mapped.elements[0].1.values.last(), Some(&Value::Integer(7)));
    }

    #[test]
    fn wrong_values_are_null_bad_and_counted() {
        let mapped = mapped("<Temperature>warm</Temperature><Ecg>1 x</Ecg><Raw>abc</Raw>");
        let (_, element) = &mapped.elements[0];
        assert!(element.values.iter().all(|value| *value == Value::Null));
        assert_eq!(element.quality, Quality::Bad);
        assert_eq!(mapped.troubles.len(), 4, "three wrong, one missing");
    }

    #[test]
    fn another_element_is_refused() {
        let mut mapping = FlatMapping::default();
        mapping
            .add("r", "urn:test/Reading", flat())
            .expect("it has columns");
        let mapped = mapping.map(
            "urn:test/Reading",
            &Element::new(Name::local("x")),
            Timestamp(0),
        );
        assert_eq!((mapped.elements.len(), mapped.troubles.len()), (0, 1));
    }
}
