//! The current event, built from the tables and buffers of the decoder.

use super::Decoder;
use crate::datatype::{Buffers, DecodedValue};
use crate::event::{Event, Name};
use crate::grammar::Grammar;
use crate::schema::NONE;
use crate::tables::ValuePartitions;
use crate::value::Value;

/// An event whose text is in the tables and buffers of the decoder.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawEvent {
    StartDocument,
    EndDocument,
    StartElement {
        name: u32,
        prefix: u32,
    },
    EndElement,
    Attribute {
        name: u32,
        prefix: u32,
        value: ValueSlot,
    },
    Namespace {
        uri: u32,
        of_element: bool,
    },
    Characters(ValueSlot),
    Comment,
    ProcessingInstruction,
    DocType,
    EntityReference,
    SelfContained,
}

/// The state of an event's value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ValueSlot {
    /// Not read yet: its datatype, or [`NONE`] for a string, and the name of its partition.
    Pending {
        name: u32,
        datatype: u32,
    },
    /// Read; it is in the decoder.
    DecodedValue,
    QName {
        name: u32,
        prefix: u32,
    },
    /// The value with this number in the block.
    InBlock(u32),
}

/// Builds the current event from the tables and buffers.
///
/// Each arm builds the whole event in place: an event is large, and one that is assembled from
/// parts is copied.
#[inline(never)]
pub(crate) fn current_event(decoder: &Decoder) -> Option<Event<'_>> {
    match decoder.raw {
        RawEvent::StartElement { name, prefix } => {
            Some(Event::StartElement(resolve_name(decoder, name, prefix)))
        }
        RawEvent::EndElement => Some(Event::EndElement),
        RawEvent::Characters(ValueSlot::DecodedValue) => match decoder.decoded_value {
            DecodedValue::Text => Some(Event::Characters(Value::Text(&decoder.buffers.text))),
            DecodedValue::InTable(at) => Some(Event::Characters(Value::Text(
                decoder.values.by_identifier(at),
            ))),
            DecodedValue::Integer(value) => Some(Event::Characters(Value::Integer(value))),
            DecodedValue::Float(value) => Some(Event::Characters(Value::Float(value))),
            DecodedValue::Boolean(value) => Some(Event::Characters(Value::Boolean(value))),
            _ => Some(Event::Characters(resolve_value(
                decoder,
                ValueSlot::DecodedValue,
            ))),
        },
        RawEvent::Characters(value) => Some(Event::Characters(resolve_value(decoder, value))),
        RawEvent::Attribute {
            name,
            prefix,
            value,
        } => Some(Event::Attribute(
            resolve_name(decoder, name, prefix),
            resolve_value(decoder, value),
        )),
        _ => Some(rare_event(decoder)),
    }
}

fn rare_event(decoder: &Decoder) -> Event<'_> {
    let strings = decoder.event_strings();
    match decoder.raw {
        RawEvent::StartDocument => Event::StartDocument,
        RawEvent::Namespace { uri, of_element } => Event::Namespace {
            prefix: strings[0],
            namespace: decoder.grammar.names.uri(&decoder.grammar.schema, uri),
            of_element,
        },
        RawEvent::Comment => Event::Comment(strings[0]),
        RawEvent::ProcessingInstruction => Event::ProcessingInstruction {
            target: strings[0],
            text: strings[1],
        },
        RawEvent::DocType => Event::DocType {
            name: strings[0],
            public: strings[1],
            system: strings[2],
            text: strings[3],
        },
        RawEvent::EntityReference => Event::EntityReference(strings[0]),
        RawEvent::SelfContained => Event::SelfContained,
        // `current_event` handles the other events.
        _ => Event::EndDocument,
    }
}

#[inline(always)]
fn resolve_name(decoder: &Decoder, name: u32, prefix: u32) -> Name<'_> {
    let Grammar { names, schema, .. } = &decoder.grammar;
    let (uri, local) = names.name(schema, name);
    Name {
        namespace: names.uri(schema, uri),
        local,
        prefix: match prefix {
            NONE => None,
            prefix => names.prefix(uri, prefix),
        },
    }
}

fn resolve_value(decoder: &Decoder, value: ValueSlot) -> Value<'_> {
    match value {
        ValueSlot::DecodedValue => {
            resolve_decoded(&decoder.decoded_value, &decoder.buffers, &decoder.values)
        }
        ValueSlot::QName { name, prefix } => {
            let Name {
                namespace,
                local,
                prefix,
            } = resolve_name(decoder, name, prefix);
            Value::QName {
                namespace,
                local,
                prefix,
            }
        }
        ValueSlot::InBlock(at) => decoder.block.value(at),
        // Values are read before events are returned.
        ValueSlot::Pending { .. } => Value::Text(""),
    }
}

#[inline(always)]
pub(super) fn resolve_decoded<'a>(
    found: &DecodedValue,
    buffers: &'a Buffers,
    values: &'a ValuePartitions,
) -> Value<'a> {
    match *found {
        DecodedValue::Boolean(value) => Value::Boolean(value),
        DecodedValue::Integer(value) => Value::Integer(value),
        DecodedValue::Unsigned(value) => Value::Unsigned(value),
        DecodedValue::Decimal(value) => Value::Decimal(value),
        DecodedValue::Float(value) => Value::Float(value),
        DecodedValue::DateTime(value) => Value::DateTime(value),
        DecodedValue::Base64 => Value::Base64(&buffers.octets),
        DecodedValue::Hex => Value::Hex(&buffers.octets),
        DecodedValue::Text => Value::Text(&buffers.text),
        DecodedValue::Lexical => Value::Lexical(&buffers.text),
        DecodedValue::InTable(at) => Value::Text(values.by_identifier(at)),
    }
}

impl Decoder {
    /// Strings of the current event, from its block if it is in one.
    fn event_strings(&self) -> [&str; 4] {
        match self.block.strings() {
            Some(strings) => strings,
            None => core::array::from_fn(|at| self.strings[at].as_str()),
        }
    }
}
