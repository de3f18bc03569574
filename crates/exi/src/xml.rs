//! EXI streams through the event model of `chappe-xml`. Code that writes messages to an
//! [`EventSink`] and reads them from an [`EventSource`] works the same with text and EXI.
//!
//! That model owns its names, so reading allocates for each of them; [`StreamReader::next_event`] does
//! not. The model has no comments, processing instructions or document types; they are skipped.
//!
//! ```
//! use chappe_exi::{Decoder, Encoder, Options, Schema, xml};
//! use chappe_xml::Element;
//! use std::sync::Arc;
//! let element = Element::parse(b"<a xmlns='urn:x'><b c='1'>two</b></a>")?;
//! let mut options = Options::default();
//! options.preserve.prefixes = true;
//! let schema = Arc::new(Schema::none());
//! let mut encoder = Encoder::new(schema.clone());
//! let mut sink = xml::Sink::new(encoder.begin(&options)?)?;
//! element.write(&mut sink)?;
//! let stream = sink.finish()?.to_vec();
//! let mut decoder = Decoder::new(schema);
//! let reading = decoder.begin(&stream, Some(&options))?;
//! assert_eq!(Element::read(&mut xml::Source::new(reading))?, element);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::borrow::{Cow, ToOwned};
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};

use chappe_xml::{EventSink, EventSource, Namespace, Reason};

use crate::{Cause, Error, Event, Float, Name, StreamReader, StreamWriter, Value};

/// Encodes the events of a document to a stream.
#[derive(Debug)]
pub struct Sink<'e>(StreamWriter<'e>);

impl<'e> Sink<'e> {
    /// Starts the document.
    ///
    /// # Errors
    /// See [`StreamWriter::event`].
    pub fn new(mut writing: StreamWriter<'e>) -> Result<Self, Error> {
        writing.event(Event::StartDocument)?;
        Ok(Self(writing))
    }

    /// Ends the document and returns the whole stream.
    ///
    /// # Errors
    /// The document is incomplete.
    pub fn finish(mut self) -> Result<&'e [u8], Error> {
        self.0.event(Event::EndDocument)?;
        self.0.finish()
    }
}

impl EventSink for Sink<'_> {
    fn event(&mut self, event: chappe_xml::Event<'_>) -> Result<(), chappe_xml::Error> {
        use chappe_xml::Event as Xml;
        let written = match &event {
            Xml::StartElement(name) => self.0.event(Event::StartElement(exi_name(name))),
            Xml::Namespace { prefix, namespace } => self.0.event(Event::Namespace {
                prefix,
                namespace,
                of_element: false,
            }),
            Xml::Attribute(name, value) => self
                .0
                .event(Event::Attribute(exi_name(name), exi_value(value))),
            Xml::Text(value) => self.0.event(Event::Characters(exi_value(value))),
            Xml::EndElement => self.0.event(Event::EndElement),
        };
        written.map_err(converted_error)
    }
}

fn exi_name(name: &chappe_xml::Name) -> Name<'_> {
    Name::new(&name.namespace, &name.local)
}

fn exi_value<'a>(value: &'a chappe_xml::Value<'_>) -> Value<'a> {
    match value {
        chappe_xml::Value::Text(text) => Value::Text(text),
        chappe_xml::Value::Boolean(value) => Value::Boolean(*value),
        chappe_xml::Value::Integer(value) => Value::Integer(*value),
        chappe_xml::Value::Double(value) => Value::Float(Float::from_f64(*value)),
    }
}

/// Converts an error to the other model, with its offset in bytes.
fn converted_error(error: Error) -> chappe_xml::Error {
    let reason = match error.cause {
        // Its name is that of a field of this crate's limits.
        Cause::Limit { limit, bound } => Reason::Limit {
            limit,
            bound: usize::try_from(bound).unwrap_or(usize::MAX),
        },
        _ => Reason::Malformed(error.to_string()),
    };
    chappe_xml::Error {
        offset: error.offset / 8,
        reason,
    }
}

/// Maximum number of namespaces that a [`Source`] caches. Default 256: documents use about ten.
const NAMESPACES_MAX: usize = 256;

/// Decodes the events of the document in a stream.
///
/// A stream can repeat a namespace or a value in a few bits, so its events may be much larger than
/// the stream. Build trees with [`Element::read_within`](chappe_xml::Element::read_within).
#[derive(Debug)]
pub struct Source<'d, 's> {
    reading: StreamReader<'d, 's>,
    namespaces: Namespaces,
}

/// The namespaces of the names returned so far, each stored once.
#[derive(Debug, Default)]
struct Namespaces(BTreeSet<Namespace>);

impl Namespaces {
    fn name(&mut self, name: &Name<'_>) -> chappe_xml::Name {
        if let Some(known) = self.0.get(name.namespace) {
            return chappe_xml::Name::inside(known, name.local);
        }
        let namespace = Namespace::from(String::from(name.namespace));
        if self.0.len() < NAMESPACES_MAX {
            self.0.insert(namespace.clone());
        }
        chappe_xml::Name::inside(&namespace, name.local)
    }
}

impl<'d, 's> Source<'d, 's> {
    /// A source of the remaining events.
    #[must_use]
    pub fn new(reading: StreamReader<'d, 's>) -> Self {
        let namespaces = Namespaces::default();
        Self {
            reading,
            namespaces,
        }
    }
}

impl EventSource for Source<'_, '_> {
    fn next_event(&mut self) -> Result<Option<chappe_xml::Event<'_>>, chappe_xml::Error> {
        loop {
            // A borrowed event could not be skipped in this loop, so the returned event owns its
            // text.
            let Some(event) = self.reading.next_event().map_err(converted_error)? else {
                return Ok(None);
            };
            if let Some(event) = converted_event(&event, &mut self.namespaces) {
                return Ok(Some(event));
            }
        }
    }
}

fn converted_event(
    event: &Event<'_>,
    namespaces: &mut Namespaces,
) -> Option<chappe_xml::Event<'static>> {
    use chappe_xml::Event as Xml;
    Some(match event {
        Event::StartElement(name) => Xml::StartElement(namespaces.name(name)),
        Event::EndElement => Xml::EndElement,
        Event::Attribute(name, value) => Xml::Attribute(namespaces.name(name), xml_value(value)),
        Event::Characters(value) => Xml::Text(xml_value(value)),
        Event::Namespace {
            prefix, namespace, ..
        } => Xml::Namespace {
            prefix: Cow::Owned((*prefix).to_owned()),
            namespace: Cow::Owned((*namespace).to_owned()),
        },
        _ => return None,
    })
}

/// The value if the other model has its type, otherwise its lexical form.
fn xml_value(value: &Value<'_>) -> chappe_xml::Value<'static> {
    match value {
        Value::Boolean(value) => chappe_xml::Value::Boolean(*value),
        Value::Integer(value) => chappe_xml::Value::Integer(*value),
        Value::Float(value) => chappe_xml::Value::Double(value.to_f64()),
        other => chappe_xml::Value::Text(Cow::Owned(other.to_string())),
    }
}
