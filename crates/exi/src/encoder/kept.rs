//! Storage for values that cannot be written yet: attributes of an open start tag and values of a
//! block.

use alloc::string::String;
use alloc::vec::Vec;

use crate::value::Value;

/// A range of the stored text or octets.
pub(super) type StoredRange = (usize, usize);

/// A stored value; its text or octets are in a [`ValueStore`].
#[derive(Clone, Copy, Debug)]
pub(super) enum StoredValue {
    Text(StoredRange),
    Base64(StoredRange),
    Hex(StoredRange),
    QName {
        namespace: StoredRange,
        local: StoredRange,
        prefix: Option<StoredRange>,
    },
    /// A value that borrows nothing.
    Other(Value<'static>),
}

/// Reused buffers for the text and octets of values.
#[derive(Debug, Default)]
pub(super) struct ValueStore {
    text: String,
    octets: Vec<u8>,
}

impl ValueStore {
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.octets.clear();
    }

    pub(super) fn store_text(&mut self, text: &str) -> StoredRange {
        let start = self.text.len();
        self.text.push_str(text);
        (start, self.text.len())
    }

    fn store_octets(&mut self, octets: &[u8]) -> StoredRange {
        let start = self.octets.len();
        self.octets.extend_from_slice(octets);
        (start, self.octets.len())
    }

    pub(super) fn store_value(&mut self, value: &Value<'_>) -> StoredValue {
        match *value {
            Value::Text(text) | Value::Lexical(text) => StoredValue::Text(self.store_text(text)),
            Value::Base64(octets) => StoredValue::Base64(self.store_octets(octets)),
            Value::Hex(octets) => StoredValue::Hex(self.store_octets(octets)),
            Value::QName {
                namespace,
                local,
                prefix,
            } => StoredValue::QName {
                namespace: self.store_text(namespace),
                local: self.store_text(local),
                prefix: prefix.map(|prefix| self.store_text(prefix)),
            },
            Value::Boolean(value) => StoredValue::Other(Value::Boolean(value)),
            Value::Integer(value) => StoredValue::Other(Value::Integer(value)),
            Value::Unsigned(value) => StoredValue::Other(Value::Unsigned(value)),
            Value::Decimal(value) => StoredValue::Other(Value::Decimal(value)),
            Value::Float(value) => StoredValue::Other(Value::Float(value)),
            Value::DateTime(value) => StoredValue::Other(Value::DateTime(value)),
        }
    }

    pub(super) fn text(&self, (start, end): StoredRange) -> &str {
        &self.text[start..end]
    }

    pub(super) fn value(&self, kept: StoredValue) -> Value<'_> {
        match kept {
            StoredValue::Text(piece) => Value::Text(self.text(piece)),
            StoredValue::Base64((start, end)) => Value::Base64(&self.octets[start..end]),
            StoredValue::Hex((start, end)) => Value::Hex(&self.octets[start..end]),
            StoredValue::QName {
                namespace,
                local,
                prefix,
            } => Value::QName {
                namespace: self.text(namespace),
                local: self.text(local),
                prefix: prefix.map(|prefix| self.text(prefix)),
            },
            StoredValue::Other(value) => value,
        }
    }
}
