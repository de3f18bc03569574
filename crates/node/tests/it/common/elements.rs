//! Schemas and elements of the tests.

#![allow(dead_code, reason = "each test uses a part of it")]

use chappe_stream::{Field, FieldType, StreamElement, StreamSchema, Timestamp, Value};

/// Fields without unit.
pub(crate) fn schema(fields: &[(&str, FieldType)]) -> StreamSchema {
    let field = |(name, field_type): &(&str, FieldType)| Field {
        name: (*name).into(),
        field_type: *field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    StreamSchema {
        fields: fields.iter().map(field).collect(),
        key: None,
    }
}

/// An element of this time in nanoseconds.
pub(crate) fn element(time: i64, values: Vec<Value>) -> StreamElement {
    StreamElement {
        position: Default::default(),
        source_time: Timestamp(time),
        receive_time: Timestamp(time),
        key: None,
        values,
        quality: Default::default(),
        origin: None,
    }
}
