//! Values as formats give them, and their conversion into the types of fields.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use chappe_stream::{FieldType, Samples, Timestamp, Value};
use serde_json::Value as Json;

use crate::config::{BytesEncoding, NonFinite};
use crate::fault::{Reason, shown};

/// Largest magnitude at which every whole number is a double: 2^53.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// A value as its format gives it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Raw<'m> {
    /// There is none.
    Missing,
    /// It is null by the format.
    Null,
    Boolean(bool),
    Integer(i64),
    Unsigned(u64),
    Double(f64),
    /// A text, which may write a number.
    Text(Cow<'m, str>),
    Bytes(&'m [u8]),
    Numbers(Vec<f64>),
    /// An array or object.
    Json(&'m Json),
}

/// The rules of texts in a format.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextRules {
    pub(crate) null: Vec<String>,
    pub(crate) non_finite: NonFinite,
    pub(crate) is_decimal_comma: bool,
}

impl TextRules {
    pub(crate) fn is_null(&self, text: &str) -> bool {
        self.null.iter().any(|null| null == text.trim())
    }
}

impl<'m> From<&'m Json> for Raw<'m> {
    fn from(json: &'m Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(flag) => Self::Boolean(*flag),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => Self::Integer(number),
                (None, Some(number)) => Self::Unsigned(number),
                (None, None) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::Text(Cow::Borrowed(text)),
            Json::Array(_) | Json::Object(_) => Self::Json(json),
        }
    }
}

impl Raw<'_> {
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::Missing | Self::Null)
    }

    /// Bytes that reading the value costs, apart from a fixed part; objects count when they become a text.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Numbers(numbers) => size_of_val(&numbers[..]),
            Self::Json(Json::Array(values)) => size_of::<f64>() * values.len(),
            _ => 0,
        }
    }

    /// The value as text, for placeholders; `None` for none, and for values that have no text.
    pub(crate) fn text(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::Missing | Self::Null | Self::Numbers(_) => return None,
            Self::Boolean(flag) => Cow::Borrowed(if *flag { "true" } else { "false" }),
            Self::Integer(number) => Cow::Owned(number.to_string()),
            Self::Unsigned(number) => Cow::Owned(number.to_string()),
            Self::Double(number) => Cow::Owned(number.to_string()),
            Self::Text(text) => Cow::Borrowed(text),
            Self::Bytes(bytes) => Cow::Borrowed(std::str::from_utf8(bytes).ok()?),
            Self::Json(json) => Cow::Owned(json.to_string()),
        })
    }

    fn shown(&self) -> String {
        match self {
            Self::Text(text) => format!("{:?}", shown(text)),
            Self::Bytes(bytes) => format!("{} bytes", bytes.len()),
            Self::Numbers(numbers) => format!("a list of {} numbers", numbers.len()),
            Self::Json(Json::Array(_)) => "an array".to_owned(),
            Self::Json(_) => "an object".to_owned(),
            other => other.text().map_or("null".to_owned(), |text| shown(&text)),
        }
    }

    fn mismatch(&self, wanted: FieldType) -> Reason {
        let found = self.shown();
        let wanted = wanted.name();
        Reason::Type { wanted, found }
    }
}

/// The target of a conversion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) field_type: FieldType,
    pub(crate) encoding: BytesEncoding,
    /// For samples: the time of the first one is that of the element.
    pub(crate) period_ns: u64,
}

/// Converts a value into the type of its field; null if there is none.
pub(crate) fn convert(raw: Raw<'_>, target: Target, rules: &TextRules) -> Result<Value, Reason> {
    if let Raw::Text(text) = &raw {
        let is_empty = text.is_empty() && target.field_type != FieldType::Text;
        if is_empty || rules.is_null(text) {
            return Ok(Value::Null);
        }
    }
    if raw.is_none() {
        return Ok(Value::Null);
    }
    match target.field_type {
        FieldType::Double => double(&raw, rules),
        FieldType::Integer => integer(&raw, rules),
        FieldType::Boolean => boolean(&raw),
        FieldType::Text => match raw {
            Raw::Text(text) => Ok(Value::Text(text.into_owned())),
            _ => {
                let text = raw.text().map(Cow::into_owned);
                text.map(Value::Text)
                    .ok_or_else(|| raw.mismatch(FieldType::Text))
            }
        },
        FieldType::Bytes => bytes(&raw, target.encoding),
        FieldType::Samples => samples(&raw, target.period_ns, rules),
    }
}

fn double(raw: &Raw<'_>, rules: &TextRules) -> Result<Value, Reason> {
    let mismatch = || raw.mismatch(FieldType::Double);
    let number = match raw {
        Raw::Double(number) => *number,
        Raw::Integer(number) => *number as f64,
        Raw::Unsigned(number) => *number as f64,
        Raw::Text(text) => number(text.trim(), rules).ok_or_else(mismatch)?,
        _ => return Err(mismatch()),
    };
    match (number.is_finite(), rules.non_finite) {
        (true, _) => Ok(Value::Double(number)),
        (false, NonFinite::Null) => Ok(Value::Null),
        (false, NonFinite::Refuse) => Err(Reason::NotFinite),
    }
}

/// The number that a text writes.
pub(crate) fn number(text: &str, rules: &TextRules) -> Option<f64> {
    if !rules.is_decimal_comma {
        return text.parse().ok();
    }
    // A point would be a mark of thousands, or a mistake.
    match (text.contains('.'), text.contains(',')) {
        (true, _) => None,
        (false, true) => text.replacen(',', ".", 1).parse().ok(),
        (false, false) => text.parse().ok(),
    }
}

fn integer(raw: &Raw<'_>, rules: &TextRules) -> Result<Value, Reason> {
    let mismatch = || raw.mismatch(FieldType::Integer);
    let whole = |number: f64| {
        if number.fract() != 0.0 || !number.is_finite() {
            return Err(mismatch());
        }
        if number.abs() > EXACT_MAX {
            return Err(Reason::Range(raw.shown()));
        }
        Ok(Value::Integer(number as i64))
    };
    match raw {
        Raw::Integer(number) => Ok(Value::Integer(*number)),
        Raw::Unsigned(number) => match i64::try_from(*number) {
            Ok(number) => Ok(Value::Integer(number)),
            Err(_) => Err(Reason::Range(raw.shown())),
        },
        Raw::Double(number) => whole(*number),
        Raw::Text(text) => {
            let text = text.trim();
            if let Ok(number) = text.parse() {
                return Ok(Value::Integer(number));
            }
            let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
            if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(Reason::Range(raw.shown()));
            }
            whole(number(text, rules).ok_or_else(mismatch)?)
        }
        _ => Err(mismatch()),
    }
}

fn boolean(raw: &Raw<'_>) -> Result<Value, Reason> {
    let flag = match raw {
        Raw::Boolean(flag) => Some(*flag),
        Raw::Integer(0) | Raw::Unsigned(0) => Some(false),
        Raw::Integer(1) | Raw::Unsigned(1) => Some(true),
        Raw::Text(text) => {
            let text = text.trim();
            let is_one_of = |words: [&str; 4]| words.iter().any(|it| it.eq_ignore_ascii_case(text));
            match (
                is_one_of(["true", "1", "yes", "on"]),
                is_one_of(["false", "0", "no", "off"]),
            ) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            }
        }
        _ => None,
    };
    flag.map(Value::Boolean)
        .ok_or_else(|| raw.mismatch(FieldType::Boolean))
}

fn bytes(raw: &Raw<'_>, encoding: BytesEncoding) -> Result<Value, Reason> {
    let mismatch = || raw.mismatch(FieldType::Bytes);
    let text = match raw {
        Raw::Bytes(bytes) => return Ok(Value::Bytes(bytes.to_vec())),
        Raw::Text(text) => text.trim(),
        _ => return Err(mismatch()),
    };
    let bytes = match encoding {
        BytesEncoding::Base64 => base64(text),
        BytesEncoding::Hex => hexadecimal(text),
    };
    bytes.map(Value::Bytes).ok_or_else(mismatch)
}

/// The bytes of a base64 text, in either alphabet, with or without padding.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    match text.contains(['-', '_']) {
        true => BASE64_URL.decode(text).ok(),
        false => BASE64.decode(text).ok(),
    }
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

fn samples(raw: &Raw<'_>, period_ns: u64, rules: &TextRules) -> Result<Value, Reason> {
    let mismatch = || raw.mismatch(FieldType::Samples);
    let values = match raw {
        Raw::Numbers(numbers) => numbers.clone(),
        Raw::Json(Json::Array(items)) => {
            let numbers = items.iter().map(|item| match item {
                Json::Number(number) => number.as_f64(),
                Json::String(text) => number(text, rules),
                _ => None,
            });
            numbers.collect::<Option<_>>().ok_or_else(mismatch)?
        }
        _ => return Err(mismatch()),
    };
    if !values.iter().all(|number| number.is_finite()) {
        return Err(Reason::NotFinite);
    }
    Ok(Value::Samples(Samples {
        start: Timestamp(0),
        period_ns,
        values,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(field_type: FieldType, raw: Raw<'_>) -> Result<Value, Reason> {
        let target = Target {
            field_type,
            encoding: BytesEncoding::Base64,
            period_ns: 1,
        };
        convert(raw, target, &TextRules::default())
    }

    fn text(text: &str) -> Raw<'_> {
        Raw::Text(Cow::Borrowed(text))
    }

    #[test]
    fn whole_numbers_stay_exact() {
        let largest = i64::MAX.to_string();
        let integer = FieldType::Integer;
        assert_eq!(to(integer, text(&largest)), Ok(Value::Integer(i64::MAX)));
        assert_eq!(
            to(integer, Raw::Integer(i64::MIN)),
            Ok(Value::Integer(i64::MIN))
        );
        let json: Json = serde_json::from_str("9007199254740993").unwrap();
        assert_eq!(
            to(integer, Raw::from(&json)),
            Ok(Value::Integer((1 << 53) + 1))
        );
        assert_eq!(to(integer, text("12.0")), Ok(Value::Integer(12)));
        for beyond in ["9223372036854775808", "1e300", "-99999999999999999999"] {
            assert!(
                matches!(to(integer, text(beyond)), Err(Reason::Range(_))),
                "{beyond}"
            );
        }
        assert!(matches!(
            to(integer, Raw::Unsigned(u64::MAX)),
            Err(Reason::Range(_))
        ));
        for wrong in ["12.5", "x", "NaN", "1 2"] {
            assert!(
                matches!(to(integer, text(wrong)), Err(Reason::Type { .. })),
                "{wrong}"
            );
        }
    }

    #[test]
    fn numbers_that_are_not_finite_follow_the_rule() {
        for number in ["NaN", "inf", "-Infinity"] {
            assert_eq!(to(FieldType::Double, text(number)), Err(Reason::NotFinite));
            let rules = TextRules {
                non_finite: NonFinite::Null,
                ..TextRules::default()
            };
            let target = Target {
                field_type: FieldType::Double,
                encoding: BytesEncoding::Base64,
                period_ns: 1,
            };
            assert_eq!(convert(text(number), target, &rules), Ok(Value::Null));
        }
    }

    #[test]
    fn a_decimal_comma_excludes_the_point() {
        let rules = TextRules {
            is_decimal_comma: true,
            ..TextRules::default()
        };
        assert_eq!(number("21,5", &rules), Some(21.5));
        assert_eq!(number("-3", &rules), Some(-3.0));
        assert_eq!(number("1.234,5", &rules), None);
        assert_eq!(number("1,2,3", &rules), None);
        assert!(integer(&text("1.000"), &rules).is_err());
        assert_eq!(integer(&text("3,0"), &rules), Ok(Value::Integer(3)));
    }

    #[test]
    fn texts_become_booleans_and_bytes() {
        assert_eq!(to(FieldType::Boolean, text("ON")), Ok(Value::Boolean(true)));
        assert_eq!(
            to(FieldType::Boolean, Raw::Integer(0)),
            Ok(Value::Boolean(false))
        );
        assert!(to(FieldType::Boolean, text("maybe")).is_err());
        let bytes = Value::Bytes(vec![0xfb, 0xff]);
        for encoded in ["+/8=", "+/8", "-_8"] {
            assert_eq!(to(FieldType::Bytes, text(encoded)), Ok(bytes.clone()));
        }
        assert_eq!(hexadecimal("fBfF"), Some(vec![0xfb, 0xff]));
        assert_eq!(hexadecimal("fBf"), None);
        assert_eq!(hexadecimal("é"), None);
    }
}
