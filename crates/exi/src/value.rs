//! Typed values and their lexical forms.

use alloc::string::String;
use core::fmt::{self, Write as _};

/// A value of an attribute or of character data.
///
/// The decoder returns strings as [`Value::Text`] and all other values typed. The encoder accepts
/// either.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// A string. The encoder also accepts the lexical form of any other value.
    Text(&'a str),
    /// The lexical form of a value that no other variant holds: a list, with one space between its
    /// items; a value of an enumeration that is not a string; a number beyond 64 bits.
    Lexical(&'a str),
    /// `xs:boolean`.
    Boolean(bool),
    /// `xs:integer` and the types derived from it.
    Integer(i64),
    /// `xs:unsignedLong` above the range of [`Value::Integer`].
    Unsigned(u64),
    /// `xs:decimal`.
    Decimal(Decimal),
    /// `xs:float`, `xs:double`.
    Float(Float),
    /// `xs:dateTime` and its family.
    DateTime(DateTime),
    /// `xs:base64Binary`.
    Base64(&'a [u8]),
    /// `xs:hexBinary`.
    Hex(&'a [u8]),
    /// The value of an `xsi:type` attribute.
    QName {
        /// The namespace name, or empty.
        namespace: &'a str,
        /// The local part.
        local: &'a str,
        /// The prefix, where prefixes are preserved.
        prefix: Option<&'a str>,
    },
}

/// A decimal number: sign, integral part, fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decimal {
    /// True below zero and for minus zero.
    pub negative: bool,
    /// The integral part.
    pub integral: u64,
    /// The digits of the fraction as a number, without trailing zeros.
    pub fraction: u64,
    /// Number of digits of the fraction, with leading zeros: 0.05 has two.
    pub fraction_digits: u8,
}

/// A floating-point number with base 10 (7.1.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Float {
    /// `mantissa` times ten to the power of `exponent`.
    Finite {
        /// The mantissa.
        mantissa: i64,
        /// The exponent, of magnitude below 2^14.
        exponent: i16,
    },
    /// INF.
    Infinity,
    /// -INF.
    NegativeInfinity,
    /// Not a number.
    NaN,
}

/// A member of the date and time family (table 7-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateTimeKind {
    /// `xs:gYear`.
    GYear,
    /// `xs:gYearMonth`.
    GYearMonth,
    /// `xs:date`.
    Date,
    /// `xs:dateTime`.
    DateTime,
    /// `xs:gMonth`.
    GMonth,
    /// `xs:gMonthDay`.
    GMonthDay,
    /// `xs:gDay`.
    GDay,
    /// `xs:time`.
    Time,
}

/// A point in time or a part of one. Fields that its kind lacks are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateTime {
    /// The member of the family.
    pub kind: DateTimeKind,
    /// The year.
    pub year: i64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 24.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 60.
    pub second: u8,
    /// The digits of the fraction of the second as a number, without trailing zeros.
    pub fraction: u64,
    /// Number of digits of the fraction, with leading zeros; 0 without a fraction.
    pub fraction_digits: u8,
    /// Offset from UTC in minutes, at most 14 hours either way.
    pub zone_minutes: Option<i16>,
}

impl DateTimeKind {
    pub(crate) const fn has_year(self) -> bool {
        matches!(
            self,
            Self::GYear | Self::GYearMonth | Self::Date | Self::DateTime
        )
    }

    pub(crate) const fn has_month_day(self) -> bool {
        !matches!(self, Self::GYear | Self::Time)
    }

    pub(crate) const fn has_month(self) -> bool {
        self.has_month_day() && !matches!(self, Self::GDay)
    }

    pub(crate) const fn has_day(self) -> bool {
        self.has_month_day() && !matches!(self, Self::GYearMonth | Self::GMonth)
    }

    pub(crate) const fn has_time(self) -> bool {
        matches!(self, Self::DateTime | Self::Time)
    }
}

/// Removes trailing zeros from a number of `count` digits; returns the number and its remaining
/// digits.
fn strip_zeros(mut digits: u64, mut count: u8) -> (u64, u8) {
    while count > 0 && digits.is_multiple_of(10) {
        digits /= 10;
        count -= 1;
    }
    (digits, count)
}

/// Parses at most 19 digits.
fn number(digits: &str) -> Option<u64> {
    let plain =
        !digits.is_empty() && digits.len() <= 19 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.bytes().fold(0, |n, b| n * 10 + u64::from(b - b'0')))
}

impl Decimal {
    /// Parses the lexical form of `xs:decimal` if each part has at most 19 digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = collapse(text);
        let (negative, digits) = sign(text);
        let (integral, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if integral.is_empty() && fraction.is_empty() {
            return None;
        }
        let integral = match integral.trim_start_matches('0') {
            "" if integral.bytes().all(|b| b == b'0') => 0,
            rest => number(rest)?,
        };
        let fraction = fraction.trim_end_matches('0');
        let fraction_digits = u8::try_from(fraction.len()).ok()?;
        let fraction = if fraction.is_empty() {
            0
        } else {
            number(fraction)?
        };
        Some(Self {
            negative,
            integral,
            fraction,
            fraction_digits,
        })
    }
}

impl Float {
    /// Parses the lexical form of `xs:double`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = collapse(text);
        match text {
            "INF" => return Some(Self::Infinity),
            "-INF" => return Some(Self::NegativeInfinity),
            "NaN" => return Some(Self::NaN),
            _ => {}
        }
        let (digits, exponent) = match text.split_once(['e', 'E']) {
            Some((digits, exponent)) => {
                let plain = exponent.strip_prefix('+').unwrap_or(exponent);
                if plain.starts_with('+') {
                    return None;
                }
                (digits, plain.parse::<i32>().ok()?)
            }
            None => (text, 0),
        };
        let (negative, digits) = sign(digits);
        let (integral, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let plain = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if (integral.is_empty() && fraction.is_empty()) || !plain(integral) || !plain(fraction) {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        let mut magnitude = 0i64;
        for digit in integral.bytes().chain(fraction.bytes()) {
            magnitude = magnitude
                .checked_mul(10)?
                .checked_sub(i64::from(digit - b'0'))?;
        }
        let mantissa = if negative {
            magnitude
        } else {
            magnitude.checked_neg()?
        };
        let exponent = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
        Self::finite(mantissa, exponent)
    }

    fn finite(mantissa: i64, exponent: i32) -> Option<Self> {
        let exponent = i16::try_from(exponent).ok()?;
        let within = exponent.unsigned_abs() < 1 << 14;
        within.then_some(Self::Finite { mantissa, exponent })
    }

    /// The shortest decimal number that parses to this double.
    #[must_use]
    pub fn from_f64(value: f64) -> Self {
        if value.is_nan() {
            return Self::NaN;
        }
        if value.is_infinite() {
            return if value > 0.0 {
                Self::Infinity
            } else {
                Self::NegativeInfinity
            };
        }
        // Whole numbers that a double represents exactly.
        if value.abs() < 9_007_199_254_740_992.0 && value == (value as i64) as f64 {
            return Self::Finite {
                mantissa: value as i64,
                exponent: 0,
            };
        }
        let mut text = NumberText::default();
        let written = write!(text, "{value:e}").is_ok();
        let parsed = if written {
            Self::parse(text.as_str())
        } else {
            None
        };
        // The shortest form has at most 17 digits and an exponent below 400.
        parsed.unwrap_or(Self::NaN)
    }

    /// The nearest double.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Infinity => f64::INFINITY,
            Self::NegativeInfinity => f64::NEG_INFINITY,
            Self::NaN => f64::NAN,
            Self::Finite { mantissa, exponent } => {
                let mut text = NumberText::default();
                match write!(text, "{mantissa}e{exponent}") {
                    Ok(()) => text.as_str().parse().unwrap_or(f64::NAN),
                    Err(_) => f64::NAN,
                }
            }
        }
    }

    /// The same number without trailing zeros in the mantissa; zero gets exponent zero.
    #[must_use]
    pub fn normalized(self) -> Self {
        match self {
            Self::Finite {
                mut mantissa,
                mut exponent,
            } => {
                if mantissa == 0 {
                    exponent = 0;
                }
                while mantissa != 0 && mantissa % 10 == 0 && exponent < (1 << 14) - 1 {
                    mantissa /= 10;
                    exponent += 1;
                }
                Self::Finite { mantissa, exponent }
            }
            other => other,
        }
    }
}

/// The text of a number, on the stack.
struct NumberText {
    bytes: [u8; 40],
    length: usize,
}

impl Default for NumberText {
    fn default() -> Self {
        Self {
            bytes: [0; 40],
            length: 0,
        }
    }
}

impl NumberText {
    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl fmt::Write for NumberText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let room = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// Removes white space at both ends (whiteSpace = collapse).
pub(crate) fn collapse(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\r'])
}

fn sign(text: &str) -> (bool, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    }
}

/// Removes `count` digits from the start of `text`.
fn digits<'t>(text: &mut &'t str, count: usize) -> Option<&'t str> {
    let taken = text.get(..count)?;
    let plain = taken.bytes().all(|b| b.is_ascii_digit());
    *text = &text[count..];
    plain.then_some(taken)
}

fn two_digits(text: &mut &str, least: u8, most: u8) -> Option<u8> {
    let value = digits(text, 2)?.parse().ok()?;
    (least..=most).contains(&value).then_some(value)
}

fn literal(text: &mut &str, literal: &str) -> Option<()> {
    *text = text.strip_prefix(literal)?;
    Some(())
}

fn days_of_month(year: i64, month: u8) -> u8 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl DateTime {
    /// Parses the lexical form of a member of the family if the fraction of its second has at most
    /// 19 digits.
    #[must_use]
    pub fn parse(kind: DateTimeKind, text: &str) -> Option<Self> {
        let mut rest = collapse(text);
        let mut value = Self::empty(kind);
        if kind.has_year() {
            value.year = Self::parse_year(&mut rest)?;
        }
        if kind.has_month() {
            literal(&mut rest, if kind.has_year() { "-" } else { "--" })?;
            value.month = two_digits(&mut rest, 1, 12)?;
            if kind == DateTimeKind::GMonth {
                // The first edition of XML Schema wrote --MM--.
                rest = rest.strip_prefix("--").unwrap_or(rest);
            }
        }
        if kind.has_day() {
            literal(&mut rest, if kind.has_month() { "-" } else { "---" })?;
            value.day = two_digits(&mut rest, 1, 31)?;
        }
        if kind.has_time() {
            if kind.has_day() {
                literal(&mut rest, "T")?;
            }
            value.parse_time(&mut rest)?;
        }
        value.zone_minutes = Self::parse_zone(&mut rest)?;
        rest.is_empty().then_some(value)
    }

    /// Converts a time or dateTime with a time zone to Coordinated Universal Time. Other values are
    /// unchanged, except that hour 24 becomes hour 0 of the next day.
    #[must_use]
    pub fn to_utc(mut self) -> Self {
        let Some(zone) = self.zone_minutes.filter(|_| self.kind.has_time()) else {
            return self.without_hour_24();
        };
        self.zone_minutes = Some(0);
        let minutes = i32::from(self.hour) * 60 + i32::from(self.minute) - i32::from(zone);
        let of_day = minutes.rem_euclid(24 * 60);
        // Both values are below 60.
        (self.hour, self.minute) = ((of_day / 60) as u8, (of_day % 60) as u8);
        if self.kind == DateTimeKind::DateTime {
            match minutes.div_euclid(24 * 60) {
                days if days > 0 => self.next_day(),
                days if days < 0 => self.previous_day(),
                _ => {}
            }
        }
        self
    }

    /// Converts hour 24 to hour 0 of the next day.
    pub(crate) fn without_hour_24(mut self) -> Self {
        if self.hour == 24 {
            self.hour = 0;
            if self.kind == DateTimeKind::DateTime {
                self.next_day();
            }
        }
        self
    }

    fn next_day(&mut self) {
        self.day += 1;
        if self.day > days_of_month(self.year, self.month) {
            self.day = 1;
            self.month += 1;
        }
        if self.month > 12 {
            self.month = 1;
            self.year += 1;
        }
    }

    fn previous_day(&mut self) {
        if self.day > 1 {
            self.day -= 1;
            return;
        }
        self.month -= 1;
        if self.month == 0 {
            self.month = 12;
            self.year -= 1;
        }
        self.day = days_of_month(self.year, self.month);
    }

    pub(crate) const fn empty(kind: DateTimeKind) -> Self {
        Self {
            kind,
            year: 0,
            month: 0,
            day: 0,
            hour: 0,
            minute: 0,
            second: 0,
            fraction: 0,
            fraction_digits: 0,
            zone_minutes: None,
        }
    }

    fn parse_year(rest: &mut &str) -> Option<i64> {
        let negative = rest.starts_with('-');
        let text = rest.strip_prefix('-').unwrap_or(rest);
        let count = text.bytes().take_while(u8::is_ascii_digit).count();
        let magnitude = i64::try_from(number(text.get(..count)?)?).ok()?;
        *rest = &text[count..];
        (count >= 4).then_some(if negative { -magnitude } else { magnitude })
    }

    fn parse_time(&mut self, rest: &mut &str) -> Option<()> {
        self.hour = two_digits(rest, 0, 24)?;
        literal(rest, ":")?;
        self.minute = two_digits(rest, 0, 59)?;
        literal(rest, ":")?;
        self.second = two_digits(rest, 0, 60)?;
        if let Some(fraction) = rest.strip_prefix('.') {
            let count = fraction.bytes().take_while(u8::is_ascii_digit).count();
            *rest = &fraction[count..];
            let kept = fraction[..count].trim_end_matches('0');
            if count == 0 {
                return None;
            }
            self.fraction = if kept.is_empty() { 0 } else { number(kept)? };
            self.fraction_digits = u8::try_from(kept.len()).ok()?;
        }
        Some(())
    }

    /// The outer none means malformed, the inner none means no time zone.
    fn parse_zone(rest: &mut &str) -> Option<Option<i16>> {
        if rest.is_empty() {
            return Some(None);
        }
        if let Some(after) = rest.strip_prefix('Z') {
            *rest = after;
            return Some(Some(0));
        }
        let negative = match rest.as_bytes()[0] {
            b'-' => true,
            b'+' => false,
            _ => return None,
        };
        *rest = &rest[1..];
        let hours = i16::from(two_digits(rest, 0, 14)?);
        literal(rest, ":")?;
        let minutes = i16::from(two_digits(rest, 0, 59)?);
        let zone = hours * 60 + minutes;
        if zone > 14 * 60 {
            return None;
        }
        Some(Some(if negative { -zone } else { zone }))
    }

    fn fmt_year(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.year < 0 {
            f.write_char('-')?;
        }
        write!(f, "{:04}", self.year.unsigned_abs())
    }

    fn fmt_time(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}:{:02}", self.hour, self.minute, self.second)?;
        fmt_fraction(f, self.fraction, self.fraction_digits)
    }
}

fn fmt_fraction(f: &mut fmt::Formatter<'_>, fraction: u64, digits: u8) -> fmt::Result {
    match digits {
        0 => Ok(()),
        digits => write!(f, ".{fraction:0width$}", width = usize::from(digits)),
    }
}

/// The lexical form.
impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind;
        if kind.has_year() {
            self.fmt_year(f)?;
        }
        if kind.has_month() {
            let before = if kind.has_year() { "-" } else { "--" };
            write!(f, "{before}{:02}", self.month)?;
        }
        if kind.has_day() {
            let before = if kind.has_month() { "-" } else { "---" };
            write!(f, "{before}{:02}", self.day)?;
        }
        if kind.has_time() {
            if kind.has_day() {
                f.write_char('T')?;
            }
            self.fmt_time(f)?;
        }
        match self.zone_minutes {
            None => Ok(()),
            Some(0) => f.write_char('Z'),
            Some(zone) => {
                let sign = if zone < 0 { '-' } else { '+' };
                let zone = zone.unsigned_abs();
                write!(f, "{sign}{:02}:{:02}", zone / 60, zone % 60)
            }
        }
    }
}

/// The lexical form: the canonical one of XML Schema, but for minus zero.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negative {
            f.write_char('-')?;
        }
        write!(f, "{}", self.integral)?;
        match self.fraction_digits {
            0 => f.write_str(".0"),
            digits => fmt_fraction(f, self.fraction, digits),
        }
    }
}

/// The lexical form.
impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Infinity => f.write_str("INF"),
            Self::NegativeInfinity => f.write_str("-INF"),
            Self::NaN => f.write_str("NaN"),
            Self::Finite {
                mantissa,
                exponent: 0,
            } => write!(f, "{mantissa}"),
            Self::Finite { mantissa, exponent } => write!(f, "{mantissa}E{exponent}"),
        }
    }
}

impl Value<'_> {
    /// Appends the lexical form. A QName is written with its prefix if it has one.
    pub fn write_lexical(&self, text: &mut String) {
        // Writing to a string does not fail.
        let _ = write!(text, "{self}");
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

/// The lexical form.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) | Self::Lexical(text) => f.write_str(text),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Integer(value) => write!(f, "{value}"),
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Decimal(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::DateTime(value) => value.fmt(f),
            Self::Base64(octets) => fmt_base64(f, octets),
            Self::Hex(octets) => octets.iter().try_for_each(|octet| write!(f, "{octet:02X}")),
            Self::QName { local, prefix, .. } => match prefix {
                Some(prefix) if !prefix.is_empty() => write!(f, "{prefix}:{local}"),
                _ => f.write_str(local),
            },
        }
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn fmt_base64(f: &mut fmt::Formatter<'_>, octets: &[u8]) -> fmt::Result {
    for chunk in octets.chunks(3) {
        let word = chunk
            .iter()
            .fold(0u32, |word, octet| word << 8 | u32::from(*octet));
        let word = word << (8 * (3 - chunk.len()));
        for place in 0..4 {
            if place <= chunk.len() {
                let digit = word >> (18 - 6 * place) & 63;
                f.write_char(char::from(BASE64[digit as usize]))?;
            } else {
                f.write_char('=')?;
            }
        }
    }
    Ok(())
}

/// Parses `xs:base64Binary`, ignoring white space. Returns false if the text is malformed.
pub(crate) fn parse_base64(text: &str, octets: &mut alloc::vec::Vec<u8>) -> bool {
    let (mut word, mut held, mut padding) = (0u32, 0, 0);
    for byte in text
        .bytes()
        .filter(|b| !matches!(b, b' ' | b'\t' | b'\n' | b'\r'))
    {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => {
                padding += 1;
                0
            }
            _ => return false,
        };
        if padding > 0 && byte != b'=' {
            return false;
        }
        word = word << 6 | u32::from(digit);
        held += 1;
        if held == 4 {
            let bytes = word.to_be_bytes();
            match padding {
                0..=2 => octets.extend_from_slice(&bytes[1..4 - padding]),
                _ => return false,
            }
            (word, held) = (0, 0);
        }
    }
    held == 0
}

/// Parses `xs:hexBinary`. Returns false if the text is malformed.
pub(crate) fn parse_hex(text: &str, octets: &mut alloc::vec::Vec<u8>) -> bool {
    let text = collapse(text).as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if !text.len().is_multiple_of(2) {
        return false;
    }
    for pair in text.chunks_exact(2) {
        match (digit(pair[0]), digit(pair[1])) {
            (Some(high), Some(low)) => octets.push((high << 4 | low) as u8),
            _ => return false,
        }
    }
    true
}

/// The digits of a fraction in reverse order, as streams store it (7.1.3).
pub(crate) fn reversed(fraction: u64, digits: u8) -> u64 {
    let (mut rest, mut reversed) = (fraction, 0);
    for _ in 0..digits {
        reversed = reversed * 10 + rest % 10;
        rest /= 10;
    }
    reversed
}

/// The inverse of [`reversed`]: the fraction and its number of digits; none if it has more than 19.
pub(crate) fn unreversed(reversed: u64) -> Option<(u64, u8)> {
    let (mut rest, mut fraction, mut digits) = (reversed, 0u64, 0u8);
    while rest > 0 {
        fraction = fraction.checked_mul(10)?.checked_add(rest % 10)?;
        rest /= 10;
        digits += 1;
    }
    Some(strip_zeros(fraction, digits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn decimals_parse_and_print_canonically() {
        for (text, canonical) in [
            ("1", "1.0"),
            ("-0012.340", "-12.34"),
            (" +.05 ", "0.05"),
            ("7.", "7.0"),
            ("-0", "-0.0"),
        ] {
            let decimal = Decimal::parse(text).expect("a decimal");
            assert_eq!(decimal.to_string(), canonical);
        }
        for text in ["", ".", "1e3", "1.2.3", "--1", "1 2"] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }

    #[test]
    fn floats_parse_to_mantissa_and_exponent() {
        let finite = |mantissa, exponent| Some(Float::Finite { mantissa, exponent });
        assert_eq!(Float::parse("-1.25e3"), finite(-125, 1));
        assert_eq!(Float::parse("100"), finite(100, 0));
        assert_eq!(Float::parse("1.0"), finite(1, 0));
        assert_eq!(Float::parse("-9223372036854775808"), finite(i64::MIN, 0));
        assert_eq!(Float::parse("9223372036854775808"), None);
        assert_eq!(Float::parse("1e99999"), None);
        assert_eq!(Float::parse("inf"), None);
        assert_eq!(
            Float::from_f64(0.1),
            Float::Finite {
                mantissa: 1,
                exponent: -1
            }
        );
        assert_eq!(
            Float::from_f64(-3.0),
            Float::Finite {
                mantissa: -3,
                exponent: 0
            }
        );
    }

    #[test]
    fn times_keep_their_lexical_form() {
        use DateTimeKind as Kind;
        for (kind, text) in [
            (Kind::DateTime, "2026-11-21T14:30:05.25Z"),
            (Kind::DateTime, "-0044-03-15T24:00:00-05:30"),
            (Kind::Date, "12026-01-31+14:00"),
            (Kind::Time, "23:59:60"),
            (Kind::GYear, "1999Z"),
            (Kind::GYearMonth, "1999-12"),
            (Kind::GMonth, "--12"),
            (Kind::GMonthDay, "--02-29"),
            (Kind::GDay, "---31-00:01"),
        ] {
            let value = DateTime::parse(kind, text).expect(text);
            assert_eq!(value.to_string(), text);
        }
        for text in [
            "2026-13-01",
            "2026-1-1",
            "26-01-01",
            "2026-01-01T",
            "2026-01-01+15:00",
        ] {
            assert_eq!(DateTime::parse(Kind::Date, text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn doubles_round_trip(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            let back = Float::from_f64(value).to_f64();
            prop_assert!(back == value || (back.is_nan() && value.is_nan()));
        }

        #[test]
        fn reversed_fractions_round_trip(fraction in 0..10u64.pow(17), digits in 17..19u8) {
            let (fraction, digits) = strip_zeros(fraction, digits);
            prop_assert_eq!(unreversed(reversed(fraction, digits)), Some((fraction, digits)));
        }

        #[test]
        fn binary_values_round_trip(octets in proptest::collection::vec(any::<u8>(), 0..50)) {
            for (value, parse) in [
                (Value::Base64(&octets), parse_base64 as fn(&str, &mut Vec<u8>) -> bool),
                (Value::Hex(&octets), parse_hex),
            ] {
                let mut read = Vec::new();
                prop_assert!(parse(&value.to_string(), &mut read));
                prop_assert_eq!(&read, &octets);
            }
        }
    }
}
