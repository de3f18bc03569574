//! Streams by the event model of `chappe-xml`, so that what writes messages to an
//! [`EventSink`] and reads them from an [`EventSource`] need not know whether they travel as text.
//!
//! That model has owned names, hence reading allocates for each; [`Reading::next_event`] does not.
//! Comments, processing instructions and document types have no place in it and are passed over.
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

use crate::{Error, Event, Float, Name, Reading, Value, Writing};

/// Takes the events of a document for a stream.
#[derive(Debug)]
pub struct Sink<'e>(Writing<'e>);

impl<'e> Sink<'e> {
    /// Begins the document.
    ///
    /// # Errors
    /// As [`Writing::event`].
    pub fn new(mut writing: Writing<'e>) -> Result<Self, Error> {
        writing.event(Event::StartDocument)?;
        Ok(Self(writing))
    }

    /// Ends the document; the whole stream.
    ///
    /// # Errors
    /// A document that has not ended.
    pub fn finish(mut self) -> Result<&'e [u8], Error> {
        self.0.event(Event::EndDocument)?;
        self.0.finish()
    }
}

impl EventSink for Sink<'_> {
    fn event(&mut self, event: chappe_xml::Event<'_>) -> Result<(), chappe_xml::Error> {
        use chappe_xml::Event as Xml;
        let written = match &event {
            Xml::StartElement(name) => self.0.event(Event::StartElement(borrowed(name))),
            Xml::Namespace { prefix, namespace } => self.0.event(Event::Namespace {
                prefix,
                namespace,
                of_element: false,
            }),
            Xml::Attribute(name, value) => {
                self.0.event(Event::Attribute(borrowed(name), typed(value)))
            }
            Xml::Text(value) => self.0.event(Event::Characters(typed(value))),
            Xml::EndElement => self.0.event(Event::EndElement),
        };
        written.map_err(refused)
    }
}

fn borrowed(name: &chappe_xml::Name) -> Name<'_> {
    Name::new(&name.namespace, &name.local)
}

fn typed<'a>(value: &'a chappe_xml::Value<'_>) -> Value<'a> {
    match value {
        chappe_xml::Value::Text(text) => Value::Text(text),
        chappe_xml::Value::Boolean(value) => Value::Boolean(*value),
        chappe_xml::Value::Integer(value) => Value::Integer(*value),
        chappe_xml::Value::Double(value) => Value::Float(Float::from_f64(*value)),
    }
}

/// An error in the words of the other model; its offset is in bytes.
fn refused(error: Error) -> chappe_xml::Error {
    chappe_xml::Error {
        offset: error.offset / 8,
        reason: Reason::Malformed(error.to_string()),
    }
}

/// Namespaces that a [`Source`] remembers. Default 256: documents name some ten.
const NAMESPACES_MAX: usize = 256;

/// Yields the events of the document in a stream.
///
/// A stream names a namespace or a value that it had before in a few bits, hence what is read from it
/// may be long: a tree is built by [`Element::read_within`](chappe_xml::Element::read_within).
#[derive(Debug)]
pub struct Source<'d, 's> {
    reading: Reading<'d, 's>,
    namespaces: Namespaces,
}

/// The namespaces of the names given so far, each stored once.
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
    /// Reads on from here.
    #[must_use]
    pub fn new(reading: Reading<'d, 's>) -> Self {
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
            // An event that is passed over borrows until it is known to be one: what is handed over
            // owns its text.
            let Some(event) = self.reading.next_event().map_err(refused)? else {
                return Ok(None);
            };
            if let Some(event) = shown(&event, &mut self.namespaces) {
                return Ok(Some(event));
            }
        }
    }
}

fn shown(event: &Event<'_>, namespaces: &mut Namespaces) -> Option<chappe_xml::Event<'static>> {
    use chappe_xml::Event as Xml;
    Some(match event {
        Event::StartElement(name) => Xml::StartElement(namespaces.name(name)),
        Event::EndElement => Xml::EndElement,
        Event::Attribute(name, value) => Xml::Attribute(namespaces.name(name), lexical(value)),
        Event::Characters(value) => Xml::Text(lexical(value)),
        Event::Namespace {
            prefix, namespace, ..
        } => Xml::Namespace {
            prefix: Cow::Owned((*prefix).to_owned()),
            namespace: Cow::Owned((*namespace).to_owned()),
        },
        _ => return None,
    })
}

/// A value of a type that the other model has, or its lexical form.
fn lexical(value: &Value<'_>) -> chappe_xml::Value<'static> {
    match value {
        Value::Boolean(value) => chappe_xml::Value::Boolean(*value),
        Value::Integer(value) => chappe_xml::Value::Integer(*value),
        Value::Float(value) => chappe_xml::Value::Double(value.to_f64()),
        other => chappe_xml::Value::Text(Cow::Owned(other.to_string())),
    }
}
