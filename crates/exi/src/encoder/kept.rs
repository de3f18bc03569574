//! Values that are kept until they can be written: those of attributes until the start tag is whole,
//! those of a block until its end.

use alloc::string::String;
use alloc::vec::Vec;

use crate::value::Value;

/// A piece of the text or of the octets.
pub(super) type Piece = (usize, usize);

/// A value whose text or octets are in a [`Keeper`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Kept {
    Text(Piece),
    Base64(Piece),
    Hex(Piece),
    QName {
        namespace: Piece,
        local: Piece,
        prefix: Option<Piece>,
    },
    /// Without anything borrowed.
    Other(Value<'static>),
}

/// Text and octets of values, reused.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    text: String,
    octets: Vec<u8>,
}

impl Keeper {
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.octets.clear();
    }

    pub(super) fn keep_text(&mut self, text: &str) -> Piece {
        let start = self.text.len();
        self.text.push_str(text);
        (start, self.text.len())
    }

    fn keep_octets(&mut self, octets: &[u8]) -> Piece {
        let start = self.octets.len();
        self.octets.extend_from_slice(octets);
        (start, self.octets.len())
    }

    pub(super) fn keep(&mut self, value: &Value<'_>) -> Kept {
        match *value {
            Value::Text(text) | Value::Lexical(text) => Kept::Text(self.keep_text(text)),
            Value::Base64(octets) => Kept::Base64(self.keep_octets(octets)),
            Value::Hex(octets) => Kept::Hex(self.keep_octets(octets)),
            Value::QName {
                namespace,
                local,
                prefix,
            } => Kept::QName {
                namespace: self.keep_text(namespace),
                local: self.keep_text(local),
                prefix: prefix.map(|prefix| self.keep_text(prefix)),
            },
            Value::Boolean(value) => Kept::Other(Value::Boolean(value)),
            Value::Integer(value) => Kept::Other(Value::Integer(value)),
            Value::Unsigned(value) => Kept::Other(Value::Unsigned(value)),
            Value::Decimal(value) => Kept::Other(Value::Decimal(value)),
            Value::Float(value) => Kept::Other(Value::Float(value)),
            Value::DateTime(value) => Kept::Other(Value::DateTime(value)),
        }
    }

    pub(super) fn text(&self, (start, end): Piece) -> &str {
        &self.text[start..end]
    }

    pub(super) fn value(&self, kept: Kept) -> Value<'_> {
        match kept {
            Kept::Text(piece) => Value::Text(self.text(piece)),
            Kept::Base64((start, end)) => Value::Base64(&self.octets[start..end]),
            Kept::Hex((start, end)) => Value::Hex(&self.octets[start..end]),
            Kept::QName {
                namespace,
                local,
                prefix,
            } => Value::QName {
                namespace: self.text(namespace),
                local: self.text(local),
                prefix: prefix.map(|prefix| self.text(prefix)),
            },
            Kept::Other(value) => value,
        }
    }
}
