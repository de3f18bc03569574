//! The integration tests of `chappe-gsn` in one program: linking one takes seconds.

mod as_gsn;
mod descriptors;
mod evaluated;

use chappe_stream::{Field, FieldType, StreamSchema};

/// The stream that sensors of these tests read: an integer, a double and a text.
fn input_schema() -> StreamSchema {
    let field = |name: &str, field_type| Field {
        name: name.to_owned(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    StreamSchema {
        fields: vec![
            field("n", FieldType::Integer),
            field("x", FieldType::Double),
            field("t", FieldType::Text),
        ],
        key: None,
    }
}
