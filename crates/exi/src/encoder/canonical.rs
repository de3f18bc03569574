//! Canonical EXI: equal documents give equal streams, for signatures.
//!
//! Events are normalized before they are encoded. Namespace declarations are sorted by prefix.
//! Character data are merged into one event (4.3.1). White space is kept only where it is
//! significant (4.3.2): within `xml:space="preserve"` and in elements without children. Values have
//! one form each, attributes one order. Compression is left to the transport.
//!
//! Source: Canonical EXI, W3C Recommendation, 7 June 2018.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Encoder, HeaderOptions, StreamWriter};
use crate::datatype::PreparedValue;
use crate::error::{Cause, Error};
use crate::event::Event;
use crate::grammar::Position;
use crate::options::{Alignment, Options, Representation};
use crate::representation::EXI_NAMESPACE;
use crate::schema::{Terminal, WhiteSpace, XML_NAMESPACE, XSD_NAMESPACE};
use crate::value::{DateTime, Float, Value, collapse};

/// Options on which both sides agree before they compare canonical streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CanonicalOptions {
    /// The header has no options document; the decoder knows the options.
    pub omit_options_document: bool,
    /// Times with a time zone are converted to Coordinated Universal Time.
    pub utc_time: bool,
}

/// Events that are held back until the following ones are known.
#[derive(Debug, Default)]
pub(super) struct PendingEvents {
    /// Declarations of the open start tag: prefix, namespace, and whether the prefix is the
    /// element's own.
    declarations: Vec<(String, String, bool)>,
    /// Character data since the last tag.
    text: String,
    /// True if the last tag was a start tag.
    after_start_tag: bool,
    /// For each open element, true if white space is preserved.
    preserves_space: Vec<bool>,
}

impl PendingEvents {
    pub(super) fn clear(&mut self) {
        self.declarations.clear();
        self.text.clear();
        self.after_start_tag = false;
        self.preserves_space.clear();
    }
}

impl Options {
    /// The options of a canonical body, for encoding and decoding. Compression is left to the
    /// transport.
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

/// Returns true if an entry maps a datatype to its default representation (table 7-1).
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
    /// Starts a canonical stream: streams of the same document under the same options have the same
    /// bytes. Compression becomes pre-compression.
    ///
    /// # Errors
    /// Options that exclude each other.
    pub fn begin_canonical(
        &mut self,
        options: &Options,
        canonical: CanonicalOptions,
    ) -> Result<StreamWriter<'_>, Error> {
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
            // The map has no effect then (5.4) and is omitted (3).
            options.datatype_representation_map.clear();
        }
        let mut writing = self.begin_with(&options, header)?;
        writing.canonical(canonical);
        Ok(writing)
    }

    pub(super) fn encode_canonical_event(&mut self, event: Event<'_>) -> Result<(), Cause> {
        match event {
            Event::Namespace {
                prefix,
                namespace,
                of_element,
            } => {
                let declared = (prefix.into(), namespace.into(), of_element);
                self.pending.declarations.push(declared);
                return Ok(());
            }
            Event::Characters(Value::Text(text)) => {
                self.flush_declarations()?;
                self.pending.text.push_str(text);
                return Ok(());
            }
            Event::Attribute(name, value) => {
                if name.namespace == XML_NAMESPACE && name.local == "space" {
                    // Writing to a string does not fail.
                    let mut lexical = String::new();
                    value.write_lexical(&mut lexical);
                    if let Some(preserve) = self.pending.preserves_space.last_mut() {
                        *preserve = lexical == "preserve";
                    }
                }
                return self.encode_event(&Event::Attribute(name, value));
            }
            Event::Comment(_) if !self.grammar.options.preserve.comments => return Ok(()),
            Event::ProcessingInstruction { .. } if !self.grammar.options.preserve.pis => {
                return Ok(());
            }
            _ => {}
        }
        self.flush_declarations()?;
        self.flush_text(&event)?;
        match event {
            Event::StartElement(_) => {
                let inherited = self
                    .pending
                    .preserves_space
                    .last()
                    .copied()
                    .unwrap_or(false);
                self.pending.preserves_space.push(inherited);
                self.pending.after_start_tag = true;
            }
            Event::SelfContained => {}
            Event::EndElement => {
                self.pending.preserves_space.pop();
                self.pending.after_start_tag = false;
            }
            _ => self.pending.after_start_tag = false,
        }
        self.encode_event(&event)
    }

    /// Encodes the declarations of the open start tag, sorted by prefix.
    fn flush_declarations(&mut self) -> Result<(), Cause> {
        let mut declared = core::mem::take(&mut self.pending.declarations);
        declared.sort();
        let taken = declared.iter().try_for_each(|(prefix, namespace, own)| {
            self.encode_event(&Event::Namespace {
                prefix,
                namespace,
                of_element: *own,
            })
        });
        declared.clear();
        self.pending.declarations = declared;
        taken
    }

    /// Encodes the significant character data before an event.
    fn flush_text(&mut self, event: &Event<'_>) -> Result<(), Cause> {
        let mut text = core::mem::take(&mut self.pending.text);
        let space = collapse(&text).is_empty();
        let preserved = self
            .pending
            .preserves_space
            .last()
            .copied()
            .unwrap_or(false);
        let simple = self.pending.after_start_tag && matches!(event, Event::EndElement);
        let kept = !space || preserved || (simple && self.allows_white_space());
        let mut taken = Ok(());
        if kept && !text.is_empty() {
            if simple && !preserved {
                self.apply_white_space(&mut text);
            }
            taken = self.encode_event(&Event::Characters(Value::Text(&text)));
        }
        text.clear();
        self.pending.text = text;
        taken
    }

    /// Applies the white space facet of the expected datatype.
    fn apply_white_space(&self, text: &mut String) {
        let Position::Schema(state) = self.grammar.top().position else {
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
        if let Some(normal) =
            datatype.and_then(|datatype| with_white_space(datatype.white_space, text))
        {
            *text = normal;
        }
    }

    /// Applies the white space facet of an attribute's datatype; none if the text is unchanged.
    pub(super) fn normalized_attribute(&self, datatype: u32, value: &Value<'_>) -> Option<String> {
        let (Some(_), Value::Text(text)) = (self.canonical, value) else {
            return None;
        };
        let datatype = self.grammar.schema.datatypes.get(datatype as usize)?;
        with_white_space(datatype.white_space, text)
    }

    /// Returns true if the open element may contain white space alone, which element-only content
    /// may not.
    fn allows_white_space(&self) -> bool {
        let Position::Schema(state) = self.grammar.top().position else {
            return true;
        };
        let productions = self.grammar.schema.productions(state);
        let text = |terminal| matches!(terminal, Terminal::Characters(_) | Terminal::Untyped);
        productions.iter().any(|one| text(one.terminal))
    }
}

/// Applies a white space facet; none if the text is unchanged.
fn with_white_space(white_space: WhiteSpace, text: &str) -> Option<String> {
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

/// Removes hour 24 and, if requested, converts to UTC.
fn normalized_time(value: DateTime, canonical: CanonicalOptions) -> DateTime {
    match canonical.utc_time {
        true => value.to_utc(),
        false => value.without_hour_24(),
    }
}

/// The canonical form of a value.
pub(super) fn normalized<'v>(
    item: PreparedValue<'v>,
    canonical: CanonicalOptions,
) -> PreparedValue<'v> {
    match item {
        PreparedValue::Float(value) => PreparedValue::Float(match value.normalized() {
            // Floats have no signed zero.
            Float::Finite { mantissa: 0, .. } => Float::Finite {
                mantissa: 0,
                exponent: 0,
            },
            value => value,
        }),
        PreparedValue::Decimal(mut value) => {
            value.negative &= value.integral != 0 || value.fraction != 0;
            PreparedValue::Decimal(value)
        }
        PreparedValue::DateTime(value) => {
            PreparedValue::DateTime(normalized_time(value, canonical))
        }
        PreparedValue::PreciseDateTime(value, start, end) => {
            PreparedValue::PreciseDateTime(normalized_time(value, canonical), start, end)
        }
        item => item,
    }
}
