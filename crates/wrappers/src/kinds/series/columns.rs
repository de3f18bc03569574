//! Names of columns, and units by the endings of names.

use std::collections::BTreeMap;

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

/// The description by which a column is found again after a restart: what it is, and its original name.
pub(super) fn description(noun: &str, name: &str) -> String {
    format!("{noun} {name}")
}

/// The original name in a description.
pub(super) fn original<'d>(noun: &str, description: &'d str) -> Option<&'d str> {
    description.strip_prefix(noun)?.strip_prefix(' ')
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

/// Units by the last words of a name. Source: the base units of Prometheus's naming practices, and endings that
/// agents use.
const ENDINGS: &[(&str, &str)] = &[
    ("seconds", "s"),
    ("milliseconds", "ms"),
    ("microseconds", "us"),
    ("nanoseconds", "ns"),
    ("minutes", "min"),
    ("hours", "h"),
    ("days", "d"),
    ("bytes", "By"),
    ("bits", "bit"),
    ("celsius", "Cel"),
    ("fahrenheit", "[degF]"),
    ("kelvin", "K"),
    ("percent", "%"),
    ("ratio", "1"),
    ("meters", "m"),
    ("metres", "m"),
    ("volts", "V"),
    ("amperes", "A"),
    ("watts", "W"),
    ("joules", "J"),
    ("grams", "g"),
    ("hertz", "Hz"),
    ("pascals", "Pa"),
    ("lux", "lx"),
];

/// Endings after the unit: they say how it is counted.
const SUFFIXES: [&str; 4] = ["_total", "_sum", "_max", "_min"];

/// The UCUM code of a unit as a word: `seconds`, `bytes`.
pub(crate) fn unit_of_word(word: &str) -> Option<&'static str> {
    let mut endings = ENDINGS.iter();
    let word = word.to_ascii_lowercase();
    endings
        .find(|(name, _)| *name == word)
        .map(|(_, unit)| *unit)
}

/// The unit that the ending of a name tells.
pub(crate) fn unit_of_name(name: &str) -> Option<&'static str> {
    let suffix = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
    let name = suffix.unwrap_or(name);
    let word = name.rsplit_once('_').map(|(_, word)| word)?;
    unit_of_word(word)
}

/// The unit of a field: that of the file, or the one that names tell.
pub(super) fn unit(
    units: &BTreeMap<String, String>,
    measurement: &str,
    name: &str,
    told: Option<&str>,
) -> Option<String> {
    let of_file = units.get(&format!("{measurement}.{name}"));
    let of_file = of_file.or_else(|| units.get(measurement));
    let own = of_file.map(String::as_str).or(told);
    let own = own.or_else(|| unit_of_name(name));
    own.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use chappe_stream::ucum::Unit;

    use super::*;

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

    #[test]
    fn endings_name_units() {
        for (_, unit) in ENDINGS {
            Unit::parse(unit).unwrap();
        }
        assert_eq!(unit_of_name("process_cpu_seconds_total"), Some("s"));
        assert_eq!(unit_of_name("node_memory_MemFree_bytes"), Some("By"));
        assert_eq!(unit_of_name("http_request_duration_seconds_count"), None);
        assert_eq!(unit_of_name("seconds"), None);
    }
}
