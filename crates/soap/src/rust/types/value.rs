//! Values: their Rust types, and what the schema demands of them.

use crate::rust::names::{comment, plain};
use crate::schema::{SimpleType, XsdType};

/// Whether a type is a number, or a list of them.
pub(super) fn number_of(data_type: &str) -> bool {
    let inner = data_type.strip_prefix("Samples<");
    let inner = inner
        .and_then(|rest| rest.strip_suffix('>'))
        .unwrap_or(data_type);
    matches!(
        inner,
        "i8" | "i16" | "i32" | "i64" | "u16" | "u32" | "u64" | "f32" | "f64"
    )
}

/// The number of a built-in type.
pub(super) fn number(data_type: XsdType) -> Option<&'static str> {
    Some(match data_type {
        XsdType::Byte => "i8",
        XsdType::Short => "i16",
        XsdType::Int => "i32",
        XsdType::Long
        | XsdType::Integer
        | XsdType::NegativeInteger
        | XsdType::NonPositiveInteger => "i64",
        XsdType::UnsignedByte | XsdType::UnsignedShort => "u16",
        XsdType::UnsignedInt => "u32",
        XsdType::UnsignedLong | XsdType::NonNegativeInteger | XsdType::PositiveInteger => "u64",
        XsdType::Float => "f32",
        XsdType::Double | XsdType::Decimal => "f64",
        _ => return None,
    })
}

/// What the schema demands of a value and the Rust type does not.
pub(super) fn constraint(simple: &SimpleType) -> Vec<String> {
    let facets = &simple.facets;
    let is_enum = number(simple.data_type).is_none()
        && !facets.enumeration.is_empty()
        && !simple.is_list
        && simple.members.is_empty();
    let is_limited = facets.min.is_some()
        || facets.max.is_some()
        || facets.min_length.is_some()
        || facets.max_length.is_some()
        || !facets.enumeration.is_empty();
    let is_text = matches!(
        simple.data_type,
        XsdType::String | XsdType::Token | XsdType::NormalizedString | XsdType::AnySimpleType
    );
    let is_other = number(simple.data_type).is_none()
        && !is_text
        && !matches!(
            simple.data_type,
            XsdType::Boolean | XsdType::Base64Binary | XsdType::Duration | XsdType::DateTime
        );
    let is_narrower = matches!(
        simple.data_type,
        XsdType::UnsignedByte
            | XsdType::Decimal
            | XsdType::Integer
            | XsdType::PositiveInteger
            | XsdType::NegativeInteger
            | XsdType::NonPositiveInteger
            | XsdType::NonNegativeInteger
    );
    let says = is_limited || is_other || is_narrower || !simple.members.is_empty();
    match says && !is_enum {
        true => comment("    ///", &plain(&format!("In the schema: {simple}."))),
        false => Vec::new(),
    }
}
