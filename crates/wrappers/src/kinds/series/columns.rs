//! Names and units of columns.

use std::collections::BTreeMap;

use chappe_format::units::of_metric_name;
use chappe_stream::{Field, FieldType, RESERVED_COLUMNS};

/// Longest name of a column; reason: that of a field of a stream.
const NAME_BYTES_MAX: usize = 64;
/// Longest original name; reason: it is kept in the description of its column.
const ORIGINAL_BYTES_MAX: usize = 240;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    /// A text that tells series apart.
    Label,
    /// A value.
    Field,
}

/// The type of a field, in the words of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    Float,
    Integer,
    Boolean,
    String,
}

impl FieldKind {
    pub(crate) const fn field_type(self) -> FieldType {
        match self {
            Self::Float => FieldType::Double,
            Self::Integer => FieldType::Integer,
            Self::Boolean => FieldType::Boolean,
            Self::String => FieldType::Text,
        }
    }
}

/// The words of the protocol for a type.
pub(super) const fn type_word(field_type: FieldType) -> &'static str {
    match field_type {
        FieldType::Double => "float",
        FieldType::Integer => "integer",
        FieldType::Boolean => "boolean",
        _ => "string",
    }
}

/// Before the measurement in a description.
const OF: &str = " of \"";

/// The description by which a column is found again after a restart: what it is, and its original name. That of the
/// first column of a stream also tells the measurement, unless the name of the stream does.
pub(super) fn description(noun: &str, name: &str, measurement: Option<&str>) -> String {
    match measurement {
        Some(measurement) => format!("{noun} {name} of {measurement:?}"),
        None => format!("{noun} {name}"),
    }
}

/// The original name in a description.
pub(super) fn original<'d>(noun: &str, description: &'d str) -> Option<&'d str> {
    description.strip_prefix(noun)?.strip_prefix(' ')
}

/// The name and the quoted measurement in the original name of a first column. In quotes, a quote has a backslash before
/// it, so that no measurement looks like two.
pub(super) fn split_measurement(original: &str) -> (&str, Option<&str>) {
    match original.rfind(OF).filter(|_| original.ends_with('"')) {
        Some(at) => (&original[..at], Some(&original[at + OF.len() - 1..])),
        None => (original, None),
    }
}

/// Whether a first column of this name must tell its measurement to be understood.
pub(super) fn needs_measurement(name: &str) -> bool {
    name.contains(OF)
}

/// A column for an original name that no other column has.
pub(super) fn column_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut column = String::with_capacity(name.len());
    for c in name.chars() {
        if column.len() == NAME_BYTES_MAX - 4 {
            break;
        }
        match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9' | '_') => column.push(c),
            _ if column.ends_with('_') => {}
            _ => column.push('_'),
        }
    }
    if column.is_empty() || column.starts_with(|c: char| c.is_ascii_digit()) {
        column.insert(0, '_');
    }
    let is_usable = |name: &str| !RESERVED_COLUMNS.contains(&name) && !is_taken(name);
    if is_usable(&column) {
        return column;
    }
    // A stream has at most 256 columns, so one of these is free.
    let mut numbered = (2..).map(|number| format!("{column}_{number}"));
    numbered.find(|name| is_usable(name)).unwrap_or(column)
}

/// A field of a schema.
pub(super) fn field(
    column: String,
    field_type: FieldType,
    unit: Option<String>,
    description: String,
) -> Field {
    Field {
        name: column,
        field_type,
        unit,
        observed_property: None,
        description: Some(description),
    }
}

/// Whether an original name is too long to be kept with its column.
pub(super) const fn is_too_long(name: &str) -> bool {
    name.len() > ORIGINAL_BYTES_MAX
}

/// The unit that the file states for a field.
pub(super) fn unit_of_file<'a>(
    units: &'a BTreeMap<String, String>,
    measurement: &str,
    name: &str,
) -> Option<&'a str> {
    let own = units.get(&format!("{measurement}.{name}"));
    own.or_else(|| units.get(measurement)).map(String::as_str)
}

/// The unit of a field: that of the file, or the one that names tell.
pub(super) fn unit(
    units: &BTreeMap<String, String>,
    measurement: &str,
    name: &str,
    told: Option<&str>,
) -> Option<String> {
    let own = unit_of_file(units, measurement, name).or(told);
    let own = own.or_else(|| of_metric_name(name));
    own.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_column_tells_its_measurement() {
        for (name, measurement) in [
            ("v", "CPU"),
            ("v of \"x\"", "a \" of \"b"),
            (" of \"", "\\"),
            ("", "é\n"),
        ] {
            let text = description("field", name, Some(measurement));
            let original = original("field", &text).unwrap();
            let quoted = format!("{measurement:?}");
            assert_eq!(split_measurement(original), (name, Some(&*quoted)));
        }
        assert_eq!(split_measurement("v"), ("v", None));
        assert!(needs_measurement("v of \"x\"") && !needs_measurement("v"));
    }

    #[test]
    fn columns_are_names_of_fields() {
        let free = |name: &str| column_name(name, |_| false);
        assert_eq!(free("usage idle.total"), "usage_idle_total");
        assert_eq!(free("5xx"), "_5xx");
        assert_eq!(free("Température"), "temp_rature");
        assert_eq!(free("key"), "key_2");
        assert_eq!(free(""), "_");
        assert_eq!(column_name("a", |name| name == "a" || name == "a_2"), "a_3");
        assert!(free(&"x".repeat(500)).len() <= NAME_BYTES_MAX);
    }
}
