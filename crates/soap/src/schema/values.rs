//! Whether a text is a value of a simple type, and which values it has, in words.

use std::cmp::Ordering;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_xml::{Value, trim};

use super::{SimpleType, ValueFamily, XsdType, parse_date_time, parse_duration};

/// Values of an enumeration that are named in a message. Reason: more do not fit on a screen.
const SHOWN_MAX: usize = 24;

/// Whether XML can have the character (XML 1.0, production 2).
fn is_char(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

/// A number as far as limits need it. Reason: 128 bits hold all integers of 64 bits exactly; larger
/// ones are compared as `f64`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    fn parse(data_type: XsdType, text: &str) -> Option<Self> {
        match data_type.family() {
            ValueFamily::Integer => match text.parse() {
                Ok(integer) => Some(Self::Integer(integer)),
                // An integer of any size.
                Err(_) if is_decimal(text) && !text.contains('.') => {
                    text.parse().ok().map(Self::Float)
                }
                Err(_) => None,
            },
            ValueFamily::Number => Value::from(text).double().ok().map(Self::Float),
            ValueFamily::Duration => parse_duration(text)
                .ok()
                .map(|nanoseconds| Self::Integer(i128::from(nanoseconds))),
            ValueFamily::DateTime => parse_date_time(text)
                .ok()
                .map(|nanoseconds| Self::Integer(i128::from(nanoseconds))),
            ValueFamily::Boolean | ValueFamily::Text | ValueFamily::Bytes => None,
        }
    }

    fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(one), Self::Integer(other)) => Some(one.cmp(&other)),
            (one, other) => one.float().partial_cmp(&other.float()),
        }
    }

    fn float(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Float(float) => float,
        }
    }
}

/// The range of an integer type.
fn range(data_type: XsdType) -> (Option<i128>, Option<i128>) {
    let within = |min: i128, max: i128| (Some(min), Some(max));
    match data_type {
        XsdType::Byte => within(i8::MIN.into(), i8::MAX.into()),
        XsdType::Short => within(i16::MIN.into(), i16::MAX.into()),
        XsdType::Int => within(i32::MIN.into(), i32::MAX.into()),
        XsdType::Long => within(i64::MIN.into(), i64::MAX.into()),
        XsdType::UnsignedByte => within(0, u8::MAX.into()),
        XsdType::UnsignedShort => within(0, u16::MAX.into()),
        XsdType::UnsignedInt => within(0, u32::MAX.into()),
        XsdType::UnsignedLong => within(0, u64::MAX.into()),
        XsdType::NonNegativeInteger => (Some(0), None),
        XsdType::PositiveInteger => (Some(1), None),
        XsdType::NonPositiveInteger => (None, Some(0)),
        XsdType::NegativeInteger => (None, Some(-1)),
        _ => (None, None),
    }
}

/// Digits, of which a point may be among, after a sign.
fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_digit_or_point = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    digits.bytes().any(|byte| byte.is_ascii_digit())
        && digits.bytes().all(is_digit_or_point)
        && digits.matches('.').count() <= 1
}

fn bytes_of_base64(text: &str) -> Option<usize> {
    let packed: String = text.split_ascii_whitespace().collect();
    STANDARD.decode(packed).ok().map(|bytes| bytes.len())
}

fn bytes_of_hex(text: &str) -> Option<usize> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hex && text.len().is_multiple_of(2)).then_some(text.len() / 2)
}

/// The length that the facets limit: characters, or bytes of binary data. `None` if the text is not of
/// the type. Dates without time, languages and names are not examined.
fn length(data_type: XsdType, text: &str) -> Option<usize> {
    match data_type {
        XsdType::Base64Binary => bytes_of_base64(text),
        XsdType::HexBinary => bytes_of_hex(text),
        XsdType::Boolean => Value::from(text).boolean().ok().map(|_| 0),
        XsdType::Decimal => is_decimal(text).then_some(0),
        _ => match data_type.family() {
            ValueFamily::Text => Some(text.chars().count()),
            _ if trim(text) != text => None,
            _ => Number::parse(data_type, text).map(|_| 0),
        },
    }
}

impl SimpleType {
    /// Whether the text is one of its values. Patterns are not examined.
    #[must_use]
    pub fn permits(&self, text: &str) -> bool {
        let within = trim(text);
        if !text.chars().all(is_char) {
            return false;
        }
        if !self.members.is_empty() && !self.members.iter().any(|member| member.permits(text)) {
            return false;
        }
        if self.is_list {
            let items: Vec<&str> = within.split_ascii_whitespace().collect();
            return self.permits_length(items.len())
                && items.iter().all(|item| self.permits_value(item));
        }
        // White space belongs to a string only.
        let value = match self.data_type {
            XsdType::String | XsdType::NormalizedString | XsdType::AnySimpleType => text,
            _ => within,
        };
        match length(self.data_type, value) {
            Some(length) => self.permits_length(length) && self.permits_value(value),
            None => false,
        }
    }

    fn permits_length(&self, length: usize) -> bool {
        let length = length as u64;
        self.facets.min_length.is_none_or(|min| length >= min)
            && self.facets.max_length.is_none_or(|max| length <= max)
    }

    fn permits_value(&self, text: &str) -> bool {
        let enumeration = &self.facets.enumeration;
        if !enumeration.is_empty() && !enumeration.iter().any(|known| known == text) {
            return false;
        }
        if length(self.data_type, text).is_none() {
            return false;
        }
        let Some(number) = Number::parse(self.data_type, text) else {
            return true;
        };
        let (least, largest) = range(self.data_type);
        let built_in = [
            (least.map(Number::Integer), Ordering::Less, true),
            (largest.map(Number::Integer), Ordering::Greater, true),
        ];
        let own = [
            (&self.facets.min, Ordering::Less),
            (&self.facets.max, Ordering::Greater),
        ];
        let own = own.map(|(limit, outside)| match limit {
            Some((limit, is_permitted)) => {
                let limit = Number::parse(self.data_type, limit);
                (limit, outside, *is_permitted)
            }
            None => (None, outside, true),
        });
        built_in
            .into_iter()
            .chain(own)
            .all(|(limit, outside, is_permitted)| {
                let Some(limit) = limit else { return true };
                // NaN is within no limits.
                let order = number.compare(limit);
                order.is_some_and(|order| order != outside && (is_permitted || order.is_ne()))
            })
    }
}

/// Its values in words: `xs:int from 0 to 100`, `one of Off, On`.
impl fmt::Display for SimpleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_list {
            f.write_str("a list of values separated by spaces, each ")?;
        }
        let facets = &self.facets;
        if !facets.enumeration.is_empty() {
            let shown: Vec<&str> = facets.enumeration.iter().map(|value| &**value).collect();
            let more = shown.len().saturating_sub(SHOWN_MAX);
            let shown = shown[..shown.len() - more].join(", ");
            write!(f, "one of {shown}")?;
            return match more {
                0 => Ok(()),
                more => write!(f, " and {more} more"),
            };
        }
        if !self.members.is_empty() {
            for (index, member) in self.members.iter().enumerate() {
                let separator = if index > 0 { ", or " } else { "" };
                write!(f, "{separator}{member}")?;
            }
            return Ok(());
        }
        write!(f, "xs:{}", self.data_type.local())?;
        let (least, largest) = range(self.data_type);
        let limit = |limit: &Option<(String, bool)>, built_in: Option<i128>| {
            let built_in = built_in.map(|limit| (limit.to_string(), true));
            limit.clone().or(built_in)
        };
        if let Some((min, is_permitted)) = limit(&facets.min, least) {
            write!(f, " {} {min}", if is_permitted { "from" } else { "above" })?;
        }
        if let Some((max, is_permitted)) = limit(&facets.max, largest) {
            write!(f, " {} {max}", if is_permitted { "to" } else { "below" })?;
        }
        match (facets.min_length, facets.max_length) {
            (None, None) => Ok(()),
            (Some(min), None) => write!(f, " of at least {min} {}", self.counted()),
            (None, Some(max)) => write!(f, " of at most {max} {}", self.counted()),
            (Some(min), Some(max)) if min == max => write!(f, " of {min} {}", self.counted()),
            (Some(min), Some(max)) => write!(f, " of {min} to {max} {}", self.counted()),
        }
    }
}

impl SimpleType {
    /// The unit of its length.
    fn counted(&self) -> &'static str {
        match self.data_type.family() {
            _ if self.is_list => "items",
            ValueFamily::Bytes => "bytes",
            _ => "characters",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Facets;
    use super::*;

    fn simple(data_type: XsdType) -> SimpleType {
        SimpleType {
            data_type,
            is_list: false,
            facets: Facets::default(),
            members: Vec::new(),
        }
    }

    #[test]
    fn a_no_break_space_is_no_white_space() {
        for (data_type, value) in [
            (XsdType::Int, "5"),
            (XsdType::Double, "5.5"),
            (XsdType::Decimal, "5.5"),
            (XsdType::Boolean, "true"),
            (XsdType::Duration, "PT1S"),
            (XsdType::DateTime, "2024-01-01T00:00:00Z"),
        ] {
            let simple = simple(data_type);
            assert!(simple.permits(&format!(" \t{value}\r\n")), "{data_type:?}");
            for wrong in ["\u{a0}", "\u{2003}", "\u{c}"] {
                assert!(!simple.permits(&format!("{wrong}{value}")), "{data_type:?}");
                assert!(!simple.permits(&format!("{value}{wrong}")), "{data_type:?}");
            }
        }
        assert!(simple(XsdType::Token).permits("\u{a0}a"));
    }

    #[test]
    fn a_character_that_xml_cannot_have_is_in_no_value() {
        let text = simple(XsdType::String);
        for wrong in ["\0", "a\u{1}", "\u{fffe}"] {
            assert!(!text.permits(wrong), "{wrong:?}");
        }
        assert!(text.permits("\u{1f600} \r\t"));
    }
}
