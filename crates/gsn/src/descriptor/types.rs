//! Types and units of fields, names of sensors.

use chappe_stream::ucum::Unit;
use chappe_stream::{FieldType, check_name, name_part};

/// The type of a field, and what changes if it is not the same.
pub(super) fn field_type(written: &str) -> Result<(FieldType, Option<&'static str>), String> {
    let base = written.trim().to_ascii_lowercase();
    let base = base.split(['(', ':']).next().unwrap_or_default().trim();
    let length = written.contains('(');
    Ok(match base {
        "varchar" | "char" => (
            FieldType::Text,
            length.then_some("a text of any length up to 1 MiB"),
        ),
        "string" => (FieldType::Text, None),
        "integer" | "int" | "tinyint" | "smallint" => {
            (FieldType::Integer, Some("an integer of 64 bits"))
        }
        "bigint" => (FieldType::Integer, None),
        "float" => (FieldType::Double, Some("a number of double precision")),
        "double" | "numeric" => (FieldType::Double, None),
        "binary" | "blob" => (
            FieldType::Bytes,
            written
                .contains(['(', ':'])
                .then_some("bytes without a length and a media type"),
        ),
        "time" => {
            return Err(format!(
                "{written:?} is not supported; write bigint, milliseconds since 1970"
            ));
        }
        _ => return Err(format!("{written:?} is not a type of GSN")),
    })
}

/// GSN's type for values, and what changes if it is not the same.
pub(super) fn gsn_type(field_type: FieldType) -> Option<(&'static str, Option<&'static str>)> {
    Some(match field_type {
        FieldType::Boolean => ("tinyint", Some("0 and 1")),
        FieldType::Integer => ("bigint", None),
        FieldType::Double => ("double", None),
        FieldType::Text => ("string", None),
        FieldType::Bytes => ("binary", None),
        FieldType::Samples => return None,
    })
}

/// The UCUM code of a unit, if it is known.
pub(crate) fn ucum(unit: &str) -> Option<String> {
    let code = match unit.trim().to_lowercase().as_str() {
        "°c" | "celsius" | "degree celsius" | "degrees celsius" | "deg c" | "degc" => "Cel",
        "degree" | "degrees" | "°" => "deg",
        "percent" => "%",
        "ppm" => "[ppm]",
        "w/m^2" | "w/m²" => "W/m2",
        "m^3" | "m³" => "m3",
        "m/sec" => "m/s",
        "seconds" | "sec" => "s",
        "milliseconds" | "msec" => "ms",
        "volt" | "volts" => "V",
        "ampere" | "amperes" => "A",
        "meter" | "meters" | "metre" | "metres" => "m",
        // UCUM's C is coulomb, and F farad.
        "c" | "f" => return None,
        _ => unit.trim(),
    };
    Unit::parse(code).is_ok().then(|| code.to_owned())
}

/// The name of a stream or sensor that is called `name` in GSN.
pub(super) fn stream_name(name: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_whitespace()).collect();
    let name = name.to_ascii_lowercase();
    if check_name(&name).is_ok() {
        return name;
    }
    let parts: Vec<String> = name.split('.').map(name_part).take(16).collect();
    let mut joined = parts.join(".");
    // A part has at most 48 bytes, a name 128.
    while check_name(&joined).is_err() && joined.contains('.') {
        joined = joined
            .rsplit_once('.')
            .map_or_else(String::new, |(head, _)| head.to_owned());
    }
    joined
}
