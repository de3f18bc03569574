//! An element as a SenML pack (RFC 8428): one record for each field.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chappe_stream::{StreamElement, StreamSchema, Value};

use super::{EncodeError, number_text, push_json};
use crate::decoders::senml::UNITS;

/// Names consist of these characters besides letters and digits, with which they start (RFC 8428, 4.5.1).
const NAME_CHARACTERS: &str = "-:./_";

pub(super) fn pack(
    stream: &str,
    schema: &StreamSchema,
    element: &StreamElement,
    text: &mut String,
) -> Result<(), EncodeError> {
    let mut base_name = format!("{stream}/");
    if let Some(key) = &element.key {
        let is_usable = |c: char| c.is_ascii_alphanumeric() || NAME_CHARACTERS.contains(c);
        if !key.chars().all(is_usable) {
            return Err(EncodeError::Text {
                field: "key".to_owned(),
                reason: "a SenML name has only letters, digits and - : . / _",
            });
        }
        base_name.push_str(key);
        base_name.push('/');
    }
    let mut separator = "[{\"bn\":";
    for (field, value) in schema.fields.iter().zip(&element.values) {
        if *value == Value::Null {
            continue;
        }
        text.push_str(separator);
        if separator.starts_with('[') {
            push_json(text, &base_name);
            let time = element.source_time.0;
            let (sign, time) = (if time < 0 { "-" } else { "" }, time.unsigned_abs());
            let (seconds, nanoseconds) = (time / 1_000_000_000, time % 1_000_000_000);
            let _ = write!(text, ",\"bt\":{sign}{seconds}.{nanoseconds:09},");
            separator = ",{";
        }
        let _ = write!(text, "\"n\":\"{}\"", field.name);
        if let Some(unit) = &field.unit {
            text.push_str(",\"u\":");
            push_json(text, senml_unit(unit));
        }
        match value {
            Value::Null => {}
            Value::Boolean(flag) => {
                let _ = write!(text, ",\"vb\":{flag}");
            }
            Value::Integer(number) => {
                let _ = write!(text, ",\"v\":{number}");
            }
            Value::Double(number) if number.is_finite() => {
                let _ = write!(text, ",\"v\":{}", number_text(*number));
            }
            Value::Double(_) => {
                return Err(EncodeError::Text {
                    field: field.name.clone(),
                    reason: "the number is not finite",
                });
            }
            Value::Text(string) => {
                text.push_str(",\"vs\":");
                push_json(text, string);
            }
            Value::Bytes(bytes) => {
                let _ = write!(text, ",\"vd\":\"{}\"", URL_SAFE_NO_PAD.encode(bytes));
            }
            Value::Samples(_) => {
                return Err(EncodeError::Samples {
                    field: field.name.clone(),
                    encoding: "senml",
                });
            }
        }
        text.push('}');
    }
    if separator.starts_with('[') {
        return Err(EncodeError::Empty);
    }
    text.push_str("]\n");
    Ok(())
}

/// The SenML unit of a UCUM code. A code without one is written as it is.
fn senml_unit(code: &str) -> &str {
    // The first of the table: `deg` is written as it is, because not every angle is a longitude.
    let found = UNITS.iter().find(|(senml, ucum)| {
        *ucum == code && !matches!(*senml, "lon" | "lat" | "%RH" | "%EL" | "EL" | "/100")
    });
    found.map_or(code, |(senml, _)| senml)
}
