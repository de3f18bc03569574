//! Events that are replayed, with typed values as a program has them.

use chappe_exi::{DateTime, Decimal, Decoder, Error, Event, Float, Name, Options, Value};

/// An event that borrows nothing.
pub(super) enum Recording {
    StartDocument,
    EndDocument,
    StartElement(String, String),
    EndElement,
    Attribute(String, String, Kept),
    Characters(Kept),
}

/// A value that borrows nothing.
pub(super) enum Kept {
    Text(String),
    Boolean(bool),
    Integer(i64),
    Decimal(Decimal),
    Float(Float),
    DateTime(DateTime),
}

impl Kept {
    fn of(value: &Value<'_>) -> Self {
        match *value {
            Value::Boolean(value) => Self::Boolean(value),
            Value::Integer(value) => Self::Integer(value),
            Value::Decimal(value) => Self::Decimal(value),
            Value::Float(value) => Self::Float(value),
            Value::DateTime(value) => Self::DateTime(value),
            ref other => Self::Text(other.to_string()),
        }
    }

    fn borrowed(&self) -> Value<'_> {
        match self {
            Self::Text(text) => Value::Text(text),
            Self::Boolean(value) => Value::Boolean(*value),
            Self::Integer(value) => Value::Integer(*value),
            Self::Decimal(value) => Value::Decimal(*value),
            Self::Float(value) => Value::Float(*value),
            Self::DateTime(value) => Value::DateTime(*value),
        }
    }
}

impl Recording {
    fn of(event: &Event<'_>) -> Option<Self> {
        Some(match event {
            Event::StartDocument => Self::StartDocument,
            Event::EndDocument => Self::EndDocument,
            Event::StartElement(name) => {
                Self::StartElement(name.namespace.to_owned(), name.local.to_owned())
            }
            Event::EndElement => Self::EndElement,
            Event::Attribute(name, value) => Self::Attribute(
                name.namespace.to_owned(),
                name.local.to_owned(),
                Kept::of(value),
            ),
            Event::Characters(value) => Self::Characters(Kept::of(value)),
            _ => return None,
        })
    }

    pub(super) fn borrowed(&self) -> Event<'_> {
        match self {
            Self::StartDocument => Event::StartDocument,
            Self::EndDocument => Event::EndDocument,
            Self::StartElement(namespace, local) => {
                Event::StartElement(Name::new(namespace, local))
            }
            Self::EndElement => Event::EndElement,
            Self::Attribute(namespace, local, value) => {
                Event::Attribute(Name::new(namespace, local), value.borrowed())
            }
            Self::Characters(value) => Event::Characters(value.borrowed()),
        }
    }
}

/// The events of a stream.
pub(super) struct Recorded {
    pub(super) events: Vec<Recording>,
}

impl Recorded {
    pub(super) fn of(
        decoder: &mut Decoder,
        stream: &[u8],
        options: &Options,
    ) -> Result<Self, Error> {
        let mut events = Vec::new();
        let mut reading = decoder.begin(stream, Some(options))?;
        while let Some(event) = reading.next_event()? {
            events.extend(Recording::of(&event));
        }
        Ok(Self { events })
    }
}

/// A value from each event, so that the compiler omits none.
pub(super) fn weight(event: &Event<'_>) -> usize {
    let of_value = |value: &Value<'_>| match value {
        Value::Text(text) | Value::Lexical(text) => text.len(),
        Value::Integer(value) => *value as usize,
        Value::Float(Float::Finite { mantissa, .. }) => *mantissa as usize,
        Value::DateTime(value) => usize::from(value.second),
        _ => 1,
    };
    match event {
        Event::StartElement(name) => name.namespace.len() + name.local.len(),
        Event::Attribute(name, value) => name.local.len().wrapping_add(of_value(value)),
        Event::Characters(value) => of_value(value),
        _ => 1,
    }
}

/// Whether text is well-formed.
#[cfg(test)]
pub(super) fn is_document(text: &str) -> bool {
    let options = Options::default();
    let read = chappe_exi::text::read(text.as_bytes(), &options, Default::default(), &mut |_| {
        Ok(())
    });
    read.is_ok()
}
