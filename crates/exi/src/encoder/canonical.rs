//! Canonical EXI: of one document always the same stream, for signatures.
//!
//! It stands in front of the encoder: declarations of namespaces are sorted by prefix, character data
//! comes as one event (4.3.1), and white space stays where it means something (4.3.2): within
//! `xml:space="preserve"`, and in elements without children. Values have one form each, attributes one order, compression is
//! left to who transports the stream.
//!
//! Source: Canonical EXI, W3C Recommendation, 7 June 2018.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Encoder, HeaderOptions, Writing};
use crate::datatype::Ready;
use crate::error::{Cause, Error};
use crate::event::Event;
use crate::grammar::At;
use crate::options::{Alignment, Options, Representation};
use crate::representation::EXI_NAMESPACE;
use crate::schema::{Terminal, WhiteSpace, XML_NAMESPACE, XSD_NAMESPACE};
use crate::value::{DateTime, Float, Value, collapse};

/// What both sides agree on before they compare canonical streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Canonical {
    /// The header has no options document; the reader knows the options.
    pub omit_options_document: bool,
    /// Times with a time zone are written as Coordinated Universal Time.
    pub utc_time: bool,
}

/// What waits for the events that follow.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Prefix and namespace of the declarations of the open start tag.
    declared: Vec<(String, String, bool)>,
    /// Character data up to the next tag.
    text: String,
    /// The last tag was a start tag.
    started: bool,
    /// Whether white space is preserved, for each open element.
    preserve: Vec<bool>,
}

impl Waiting {
    pub(super) fn clear(&mut self) {
        self.declared.clear();
        self.text.clear();
        self.started = false;
        self.preserve.clear();
    }
}

impl Options {
    /// The options with which a canonical body is written and read: compression is left to who
    /// transports it.
    #[must_use]
    pub fn canonical(&self) -> Self {
        let mut options = self.clone();
        if options.compression {
            options.compression = false;
            options.alignment = Alignment::PreCompression;
        }
        if !options.channels() {
            options.block_size = Self::BLOCK_SIZE;
        }
        options.metadata.clear();
        let map = &mut options.datatype_representation_map;
        map.retain(|one| !is_default(one));
        map.sort_by(|a, b| {
            let (a, b) = (&a.datatype, &b.datatype);
            (&a.local, &a.namespace).cmp(&(&b.local, &b.namespace))
        });
        options
    }
}

/// Whether an entry says what holds without it (table 7-1).
fn is_default(entry: &Representation) -> bool {
    let Representation {
        datatype,
        representation,
    } = entry;
    let usual = match datatype.local.as_str() {
        "float" => "double",
        "anySimpleType" => "string",
        "base64Binary" | "hexBinary" | "boolean" | "dateTime" | "time" | "date" | "gYearMonth"
        | "gYear" | "gMonthDay" | "gDay" | "gMonth" | "decimal" | "double" | "integer"
        | "string" => datatype.local.as_str(),
        _ => return false,
    };
    datatype.namespace == XSD_NAMESPACE
        && representation.namespace == EXI_NAMESPACE
        && representation.local == usual
}

impl Encoder {
    /// Begins a canonical stream: two that hold the same document under the same options are the same
    /// bytes. Compression becomes pre-compression.
    ///
    /// # Errors
    /// Options that exclude each other.
    pub fn begin_canonical(
        &mut self,
        options: &Options,
        canonical: Canonical,
    ) -> Result<Writing<'_>, Error> {
        options.check().map_err(|cause| Error {
            offset: 0,
            path: String::new(),
            cause,
        })?;
        let header = HeaderOptions {
            cookie: false,
            options: !canonical.omit_options_document,
        };
        let mut options = options.canonical();
        if header.options && options.preserve.lexical_values {
            // It has no effect then (5.4), and is not said (3).
            options.datatype_representation_map.clear();
        }
        let mut writing = self.begin_with(&options, header)?;
        writing.canonical(canonical);
        Ok(writing)
    }

    pub(super) fn take_canonical(&mut self, event: Event<'_>) -> Result<(), Cause> {
        match event {
            Event::Namespace {
                prefix,
                namespace,
                of_element,
            } => {
                let declared = (prefix.into(), namespace.into(), of_element);
                self.waiting.declared.push(declared);
                return Ok(());
            }
            Event::Characters(Value::Text(text)) => {
                self.declare()?;
                self.waiting.text.push_str(text);
                return Ok(());
            }
            Event::Attribute(name, value) => {
                if name.namespace == XML_NAMESPACE && name.local == "space" {
                    // Writing to a string does not fail.
                    let mut lexical = String::new();
                    value.write_lexical(&mut lexical);
                    if let Some(preserve) = self.waiting.preserve.last_mut() {
                        *preserve = lexical == "preserve";
                    }
                }
                return self.take(&Event::Attribute(name, value));
            }
            Event::Comment(_) if !self.grammar.options.preserve.comments => return Ok(()),
            Event::ProcessingInstruction { .. } if !self.grammar.options.preserve.pis => {
                return Ok(());
            }
            _ => {}
        }
        self.declare()?;
        self.text_before(&event)?;
        match event {
            Event::StartElement(_) => {
                let inherited = self.waiting.preserve.last().copied().unwrap_or(false);
                self.waiting.preserve.push(inherited);
                self.waiting.started = true;
            }
            Event::SelfContained => {}
            Event::EndElement => {
                self.waiting.preserve.pop();
                self.waiting.started = false;
            }
            _ => self.waiting.started = false,
        }
        self.take(&event)
    }

    /// Hands over the declarations of the open start tag, by prefix.
    fn declare(&mut self) -> Result<(), Cause> {
        let mut declared = core::mem::take(&mut self.waiting.declared);
        declared.sort();
        let taken = declared.iter().try_for_each(|(prefix, namespace, own)| {
            self.take(&Event::Namespace {
                prefix,
                namespace,
                of_element: *own,
            })
        });
        declared.clear();
        self.waiting.declared = declared;
        taken
    }

    /// Hands over the character data in front of an event, as far as it means something.
    fn text_before(&mut self, event: &Event<'_>) -> Result<(), Cause> {
        let mut text = core::mem::take(&mut self.waiting.text);
        let space = collapse(&text).is_empty();
        let preserved = self.waiting.preserve.last().copied().unwrap_or(false);
        let simple = self.waiting.started && matches!(event, Event::EndElement);
        let kept = !space || preserved || (simple && self.takes_space());
        let mut taken = Ok(());
        if kept && !text.is_empty() {
            if simple && !preserved {
                self.lexical(&mut text);
            }
            taken = self.take(&Event::Characters(Value::Text(&text)));
        }
        text.clear();
        self.waiting.text = text;
        taken
    }

    /// Applies the white space facet of the datatype that is expected, if it is a string.
    fn lexical(&self, text: &mut String) {
        let At::Schema(state) = self.grammar.top().at else {
            return;
        };
        let schema = &self.grammar.schema;
        let datatype = schema
            .productions(state)
            .iter()
            .find_map(|one| match one.terminal {
                Terminal::Characters(datatype) => schema.datatypes.get(datatype as usize),
                _ => None,
            });
        if let Some(normal) = datatype.and_then(|datatype| faceted(datatype.white_space, text)) {
            *text = normal;
        }
    }

    /// The text of an attribute by the white space facet of its datatype; none: as it is.
    pub(super) fn attribute_text(&self, datatype: u32, value: &Value<'_>) -> Option<String> {
        let (Some(_), Value::Text(text)) = (self.canonical, value) else {
            return None;
        };
        let datatype = self.grammar.schema.datatypes.get(datatype as usize)?;
        faceted(datatype.white_space, text)
    }

    /// Whether the open element can contain white space alone: not one of element content.
    fn takes_space(&self) -> bool {
        let At::Schema(state) = self.grammar.top().at else {
            return true;
        };
        let productions = self.grammar.schema.productions(state);
        let text = |terminal| matches!(terminal, Terminal::Characters(_) | Terminal::Untyped);
        productions.iter().any(|one| text(one.terminal))
    }
}

/// Text by a white space facet; none: as it is.
fn faceted(white_space: WhiteSpace, text: &str) -> Option<String> {
    match white_space {
        WhiteSpace::Preserve => None,
        WhiteSpace::Replace => Some(text.replace(['\t', '\n', '\r'], " ")),
        WhiteSpace::Collapse => {
            let words = text.split([' ', '\t', '\n', '\r']);
            let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
            Some(words.join(" "))
        }
    }
}

/// A time without hour 24, and as UTC if it is to be.
fn time(value: DateTime, canonical: Canonical) -> DateTime {
    match canonical.utc_time {
        true => value.to_utc(),
        false => value.without_hour_24(),
    }
}

/// The one form of a value.
pub(super) fn normalized<'v>(item: Ready<'v>, canonical: Canonical) -> Ready<'v> {
    match item {
        Ready::Float(value) => Ready::Float(match value.normalized() {
            // What a float of another sign of zero means is the same.
            Float::Finite { mantissa: 0, .. } => Float::Finite {
                mantissa: 0,
                exponent: 0,
            },
            value => value,
        }),
        Ready::Decimal(mut value) => {
            value.negative &= value.integral != 0 || value.fraction != 0;
            Ready::Decimal(value)
        }
        Ready::DateTime(value) => Ready::DateTime(time(value, canonical)),
        Ready::FineDateTime(value, start, end) => {
            Ready::FineDateTime(time(value, canonical), start, end)
        }
        item => item,
    }
}
