//! Values in their datatype representations (7.1, 7.2): preparing, writing and reading them.
//!
//! The production, and so the event code before a value, depends on whether the datatype can
//! represent the value. A value is therefore first prepared as [`PreparedValue`]; the event code and then
//! the value are written after that.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use crate::bits::{BitReader, BitWriter, width};
use crate::error::Cause;
use crate::schema::{Representation, Schema};
use crate::value::{
    DateTime, DateTimeKind, Decimal, Float, Value, collapse, parse_base64, parse_hex, reversed,
    unreversed,
};

/// Maximum decimal digits of one number. Reason: conversion time grows with their square.
const DIGITS_MAX: usize = 4096;
/// The same limit in groups of seven bits.
const GROUPS_MAX: usize = 1945;
/// Maximum values in one list. Reason: a list is prepared as a whole.
const LIST_MAX: u64 = 1 << 20;

/// A value that fits its representation and is ready to be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PreparedValue<'a> {
    /// An n-bit unsigned integer: value and width in bits.
    Bits(u32, u32),
    Integer(i64),
    Unsigned(u64),
    /// A number of any size: its sign, if it has one, and the range of its groups in the scratch
    /// buffer.
    Large(Option<bool>, usize, usize),
    Decimal(Decimal),
    /// A decimal of any size: sign, groups of the integral part and of the reversed fraction.
    LargeDecimal(bool, (usize, usize), (usize, usize)),
    Float(Float),
    DateTime(DateTime),
    /// A time with a fraction of any size, as the range of groups of the reversed fraction.
    PreciseDateTime(DateTime, usize, usize),
    /// Octets borrowed from the caller.
    Octets(&'a [u8]),
    /// A range of octets in the scratch buffer.
    ScratchOctets(usize, usize),
    /// A string for the value partitions.
    Text(&'a str),
    /// A string of a restricted character set.
    Restricted(u32, &'a str),
    /// A list: the datatype of its items, their text separated by white space, and their number.
    /// Each item is prepared when it is written.
    List(u32, &'a str, u64),
    /// The lexical form in the scratch buffer, for this datatype.
    Lexical(u32),
}

impl PreparedValue<'_> {
    /// A placeholder for a value to be prepared.
    pub(crate) const NONE: Self = Self::Bits(0, 0);
}

/// Reused buffers for preparing values.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) octets: Vec<u8>,
    /// A lexical form.
    pub(crate) text: String,
    digits: Vec<u8>,
}

/// The representations of datatypes under the options of a stream.
pub(crate) trait Representations {
    fn representation(&self, datatype: u32) -> &Representation;
}

impl Representations for Schema {
    fn representation(&self, datatype: u32) -> &Representation {
        &self.datatypes[datatype as usize].representation
    }
}

/// Prepares a value from its lexical form. Returns false if the datatype cannot represent it.
pub(crate) fn prepare<'a>(
    schema: &impl Representations,
    datatype: u32,
    text: &'a str,
    scratch: &mut Scratch,
    to: &mut PreparedValue<'a>,
) -> bool {
    let prepared = match schema.representation(datatype) {
        Representation::List(item) => prepare_list(schema, *item, text, scratch),
        _ => prepare_atomic(schema, datatype, text, scratch),
    };
    prepared.map(|prepared| *to = prepared).is_some()
}

/// Prepares a value that is not a list.
fn prepare_atomic<'a>(
    schema: &impl Representations,
    datatype: u32,
    text: &'a str,
    scratch: &mut Scratch,
) -> Option<PreparedValue<'a>> {
    match schema.representation(datatype) {
        Representation::String => Some(PreparedValue::Text(text)),
        Representation::Restricted(set) => Some(PreparedValue::Restricted(*set, text)),
        Representation::Boolean => {
            boolean(text).map(|value| PreparedValue::Bits(u32::from(value), 1))
        }
        Representation::PatternBoolean => {
            pattern_boolean(text).map(|value| PreparedValue::Bits(value, 2))
        }
        Representation::Integer => integer(text, scratch),
        Representation::Unsigned => unsigned(text, scratch),
        Representation::Bounded { least, count } => {
            let value = collapse(text);
            let value = value.strip_prefix('+').unwrap_or(value);
            let offset = value
                .parse::<i128>()
                .ok()
                .and_then(|v| v.checked_sub(*least));
            let offset = offset.and_then(|offset| u32::try_from(offset).ok());
            let offset = offset.filter(|offset| offset < count);
            offset.map(|offset| PreparedValue::Bits(offset, width(u64::from(*count))))
        }
        Representation::Decimal => match Decimal::parse(text) {
            Some(value) => Some(PreparedValue::Decimal(value)),
            None => large_decimal(text, scratch),
        },
        Representation::Float => {
            Float::parse(text).map(|value| PreparedValue::Float(value.normalized()))
        }
        Representation::DateTime(kind) => match DateTime::parse(*kind, text) {
            Some(value) => Some(PreparedValue::DateTime(value)),
            None => precise_date_time(*kind, text, scratch),
        },
        Representation::Base64 => binary(text, scratch, parse_base64),
        Representation::Hex => binary(text, scratch, parse_hex),
        Representation::List(_) => None,
        Representation::Enumeration { values, base } => {
            enumerated(schema, values, *base, text, scratch)
        }
    }
}

/// Splits a list into its items.
pub(crate) fn list_items(text: &str) -> impl Iterator<Item = &str> {
    let list_items = text.split([' ', '\t', '\n', '\r']);
    list_items.filter(|item_text| !item_text.is_empty())
}

/// Prepares a list; none if an item cannot be represented.
fn prepare_list<'a>(
    schema: &impl Representations,
    item: u32,
    text: &'a str,
    scratch: &mut Scratch,
) -> Option<PreparedValue<'a>> {
    let mut count = 0;
    for item_text in list_items(text) {
        let start = scratch.octets.len();
        prepare_atomic(schema, item, item_text, scratch)?;
        scratch.octets.truncate(start);
        count += 1;
    }
    Some(PreparedValue::List(item, text, count))
}

/// Prepares strings, and typed values without their lexical form. Returns false if the lexical form
/// is needed.
#[inline(always)]
pub(crate) fn prepare_typed<'a>(
    representation: &Representation,
    value: &Value<'a>,
    to: &mut PreparedValue<'a>,
) -> bool {
    #[inline(always)]
    fn set<'a>(to: &mut PreparedValue<'a>, ready: PreparedValue<'a>) -> bool {
        *to = ready;
        true
    }
    match (representation, value) {
        (Representation::String, Value::Text(text) | Value::Lexical(text)) => {
            set(to, PreparedValue::Text(text))
        }
        (Representation::Integer, Value::Integer(value)) => set(to, PreparedValue::Integer(*value)),
        (Representation::Float, Value::Float(value)) => set(to, PreparedValue::Float(*value)),
        (Representation::Boolean, Value::Boolean(value)) => {
            set(to, PreparedValue::Bits(u32::from(*value), 1))
        }
        (Representation::Unsigned, Value::Integer(value)) => match u64::try_from(*value) {
            Ok(value) => set(to, PreparedValue::Unsigned(value)),
            Err(_) => false,
        },
        (Representation::Bounded { least, count }, Value::Integer(value)) => {
            let offset = i128::from(*value).checked_sub(*least);
            let offset = offset.and_then(|offset| u32::try_from(offset).ok());
            match offset.filter(|offset| offset < count) {
                Some(offset) => set(to, PreparedValue::Bits(offset, width(u64::from(*count)))),
                None => false,
            }
        }
        (Representation::DateTime(kind), Value::DateTime(value)) if *kind == value.kind => {
            set(to, PreparedValue::DateTime(*value))
        }
        (Representation::PatternBoolean, Value::Boolean(value)) => {
            set(to, PreparedValue::Bits(u32::from(*value) * 2, 2))
        }
        (Representation::Unsigned, Value::Unsigned(value)) => {
            set(to, PreparedValue::Unsigned(*value))
        }
        (Representation::Decimal, Value::Decimal(value)) => set(to, PreparedValue::Decimal(*value)),
        (Representation::Decimal, Value::Integer(value)) => {
            let decimal = Decimal {
                negative: *value < 0,
                integral: value.unsigned_abs(),
                fraction: 0,
                fraction_digits: 0,
            };
            set(to, PreparedValue::Decimal(decimal))
        }
        (Representation::Float, Value::Integer(mantissa)) => {
            let float = Float::Finite {
                mantissa: *mantissa,
                exponent: 0,
            };
            set(to, PreparedValue::Float(float))
        }
        (Representation::Base64, Value::Base64(octets) | Value::Hex(octets))
        | (Representation::Hex, Value::Hex(octets) | Value::Base64(octets)) => {
            set(to, PreparedValue::Octets(octets))
        }
        _ => false,
    }
}

fn boolean(text: &str) -> Option<bool> {
    match collapse(text) {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

fn pattern_boolean(text: &str) -> Option<u32> {
    match collapse(text) {
        "false" => Some(0),
        "0" => Some(1),
        "true" => Some(2),
        "1" => Some(3),
        _ => None,
    }
}

fn binary<'a>(
    text: &str,
    scratch: &mut Scratch,
    parse: fn(&str, &mut Vec<u8>) -> bool,
) -> Option<PreparedValue<'a>> {
    let start = scratch.octets.len();
    let whole = parse(text, &mut scratch.octets);
    whole.then_some(PreparedValue::ScratchOctets(start, scratch.octets.len()))
}

/// Splits a whole number into its sign (true for negative) and its digits without leading zeros.
fn whole_digits(text: &str) -> Option<(bool, &str)> {
    let text = collapse(text);
    let negative = text.starts_with('-');
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| (negative, digits.trim_start_matches('0')))
}

fn integer<'a>(text: &str, scratch: &mut Scratch) -> Option<PreparedValue<'a>> {
    let (negative, digits) = whole_digits(text)?;
    if digits.len() <= 18 {
        let magnitude = digits.bytes().fold(0, |n, b| n * 10 + i64::from(b - b'0'));
        return Some(PreparedValue::Integer(if negative {
            -magnitude
        } else {
            magnitude
        }));
    }
    // A negative number is stored as its magnitude minus one.
    let (start, end) = large_groups(digits, negative, scratch)?;
    Some(PreparedValue::Large(Some(negative), start, end))
}

fn unsigned<'a>(text: &str, scratch: &mut Scratch) -> Option<PreparedValue<'a>> {
    let (negative, digits) = whole_digits(text)?;
    if negative && !digits.is_empty() {
        return None;
    }
    if digits.len() <= 19 {
        let value = digits.bytes().fold(0, |n, b| n * 10 + u64::from(b - b'0'));
        return Some(PreparedValue::Unsigned(value));
    }
    let (start, end) = large_groups(digits, false, scratch)?;
    Some(PreparedValue::Large(None, start, end))
}

/// Converts decimal digits, minus one if requested, to groups of seven bits; returns their range in
/// the scratch buffer.
fn large_groups(digits: &str, less_one: bool, scratch: &mut Scratch) -> Option<(usize, usize)> {
    if digits.len() > DIGITS_MAX {
        return None;
    }
    scratch.digits.clear();
    scratch.digits.extend(digits.bytes().map(|b| b - b'0'));
    let digits = &mut scratch.digits;
    if less_one {
        for digit in digits.iter_mut().rev() {
            if *digit > 0 {
                *digit -= 1;
                break;
            }
            *digit = 9;
        }
    }
    let start = scratch.octets.len();
    let mut from = 0;
    while from < digits.len() {
        let mut rest = 0u32;
        for digit in &mut digits[from..] {
            let value = rest * 10 + u32::from(*digit);
            *digit = (value / 128) as u8;
            rest = value % 128;
            // The rest is below 128, so a digit of the quotient is below ten.
        }
        scratch.octets.push(rest as u8);
        while from < digits.len() && digits[from] == 0 {
            from += 1;
        }
    }
    Some((start, scratch.octets.len()))
}

fn large_decimal<'a>(text: &str, scratch: &mut Scratch) -> Option<PreparedValue<'a>> {
    let text = collapse(text);
    let negative = text.starts_with('-');
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (integral, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if (integral.is_empty() && fraction.is_empty()) || !plain(integral) || !plain(fraction) {
        return None;
    }
    let integral = large_groups(integral.trim_start_matches('0'), false, scratch)?;
    let fraction = reversed_groups(fraction, scratch)?;
    Some(PreparedValue::LargeDecimal(negative, integral, fraction))
}

fn reversed_groups(fraction: &str, scratch: &mut Scratch) -> Option<(usize, usize)> {
    let reversed: String = fraction.trim_end_matches('0').chars().rev().collect();
    large_groups(reversed.trim_start_matches('0'), false, scratch)
}

/// Prepares a time whose fraction has more digits than 64 bits hold.
fn precise_date_time<'a>(
    kind: DateTimeKind,
    text: &str,
    scratch: &mut Scratch,
) -> Option<PreparedValue<'a>> {
    let (before, after) = text.split_once('.')?;
    let count = after.bytes().take_while(u8::is_ascii_digit).count();
    let (fraction, zone) = after.split_at(count);
    let mut coarse = String::from(before);
    coarse.push_str(zone);
    let value = DateTime::parse(kind, &coarse)?;
    if count == 0 || !kind.has_time() {
        return None;
    }
    let (start, end) = reversed_groups(fraction, scratch)?;
    Some(PreparedValue::PreciseDateTime(value, start, end))
}

fn enumerated<'a>(
    schema: &impl Representations,
    values: &[String],
    base: u32,
    text: &'a str,
    scratch: &mut Scratch,
) -> Option<PreparedValue<'a>> {
    let bits = width(values.len() as u64);
    let found = |at: usize| PreparedValue::Bits(at as u32, bits);
    if let Some(at) = values.iter().position(|value| value == text) {
        return Some(found(at));
    }
    if matches!(schema.representation(base), Representation::String) {
        return None;
    }
    // Equal values may have different lexical forms.
    let start = scratch.octets.len();
    let wanted = in_utc(prepare_atomic(schema, base, text, scratch)?);
    let wanted_octets = scratch.octets.split_off(start);
    let same = values.iter().position(|value| {
        let other = prepare_atomic(schema, base, value, scratch);
        let octets = scratch.octets.split_off(start);
        other.map(in_utc) == Some(wanted) && octets == wanted_octets
    });
    same.map(found)
}

/// Normalizes times to UTC, so that equal points in time compare equal.
fn in_utc(item: PreparedValue<'_>) -> PreparedValue<'_> {
    match item {
        PreparedValue::DateTime(value) => PreparedValue::DateTime(value.to_utc()),
        item => item,
    }
}

/// Writes a prepared value, except those that use the string table, which are up to the caller.
pub(crate) fn write(writer: &mut BitWriter, item: &PreparedValue<'_>, scratch: &Scratch) {
    let octets = |range: &(usize, usize)| &scratch.octets[range.0..range.1];
    match item {
        PreparedValue::Bits(value, count) => writer.bits(*value, *count),
        PreparedValue::Integer(value) => writer.integer(*value),
        PreparedValue::Unsigned(value) => writer.unsigned(*value),
        PreparedValue::Large(negative, start, end) => {
            if let Some(negative) = negative {
                writer.boolean(*negative);
            }
            writer.unsigned_groups(octets(&(*start, *end)));
        }
        PreparedValue::Decimal(value) => {
            writer.boolean(value.negative);
            writer.unsigned(value.integral);
            writer.unsigned(reversed(value.fraction, value.fraction_digits));
        }
        PreparedValue::LargeDecimal(negative, integral, fraction) => {
            writer.boolean(*negative);
            writer.unsigned_groups(octets(integral));
            writer.unsigned_groups(octets(fraction));
        }
        PreparedValue::Float(value) => {
            let (mantissa, exponent) = match *value {
                Float::Finite { mantissa, exponent } => (mantissa, i64::from(exponent)),
                Float::Infinity => (1, -(1 << 14)),
                Float::NegativeInfinity => (-1, -(1 << 14)),
                Float::NaN => (0, -(1 << 14)),
            };
            writer.integer(mantissa);
            writer.integer(exponent);
        }
        PreparedValue::DateTime(value) => {
            let fraction = reversed(value.fraction, value.fraction_digits);
            write_date_time(writer, value, |writer| {
                writer.boolean(fraction != 0);
                if fraction != 0 {
                    writer.unsigned(fraction);
                }
            });
        }
        PreparedValue::PreciseDateTime(value, start, end) => {
            let fraction = octets(&(*start, *end));
            write_date_time(writer, value, |writer| {
                writer.boolean(!fraction.is_empty());
                if !fraction.is_empty() {
                    writer.unsigned_groups(fraction);
                }
            });
        }
        PreparedValue::Octets(octets) => {
            writer.unsigned(octets.len() as u64);
            writer.octets(octets);
        }
        PreparedValue::ScratchOctets(start, end) => {
            writer.unsigned((end - start) as u64);
            writer.octets(octets(&(*start, *end)));
        }
        PreparedValue::Text(_)
        | PreparedValue::Restricted(..)
        | PreparedValue::List(..)
        | PreparedValue::Lexical(_) => {}
    }
}

fn write_date_time(
    writer: &mut BitWriter,
    value: &DateTime,
    fraction: impl FnOnce(&mut BitWriter),
) {
    let kind = value.kind;
    if kind.has_year() {
        writer.integer(value.year - 2000);
    }
    if kind.has_month_day() {
        writer.bits(u32::from(value.month) * 32 + u32::from(value.day), 9);
    }
    if kind.has_time() {
        let (hour, minute) = (u32::from(value.hour), u32::from(value.minute));
        writer.bits((hour * 64 + minute) * 64 + u32::from(value.second), 17);
        fraction(writer);
    }
    writer.boolean(value.zone_minutes.is_some());
    if let Some(zone) = value.zone_minutes {
        let zone = i32::from(zone);
        writer.bits((zone / 60 * 64 + zone % 60 + 896) as u32, 11);
    }
}

/// Reused buffers for reading values.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Lexical forms.
    pub(crate) text: String,
    /// Octets of binary values.
    pub(crate) octets: Vec<u8>,
    /// Maximum number of octets.
    pub(crate) octets_max: usize,
    /// The list that is being read.
    pub(crate) list: String,
    groups: Vec<u8>,
}

/// A decoded value; its text or octets are in [`Buffers`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum DecodedValue {
    Boolean(bool),
    Integer(i64),
    Unsigned(u64),
    Decimal(Decimal),
    Float(Float),
    DateTime(DateTime),
    /// `Buffers::octets`.
    Base64,
    /// `Buffers::octets`.
    Hex,
    /// A string: `Buffers::text`.
    Text,
    /// The lexical form of another value: `Buffers::text`.
    Lexical,
    /// The string with this identifier in the global value partition.
    InTable(u32),
}

/// Reads a value that does not use the string table.
#[inline]
pub(crate) fn read(
    reader: &mut BitReader<'_>,
    representation: &Representation,
    buffers: &mut Buffers,
    found: &mut DecodedValue,
) -> Result<(), Cause> {
    *found = match representation {
        Representation::Boolean => DecodedValue::Boolean(reader.boolean()?),
        Representation::PatternBoolean => {
            buffers.text.clear();
            let text = ["false", "0", "true", "1"][reader.bits(2)? as usize & 3];
            buffers.text.push_str(text);
            DecodedValue::Lexical
        }
        Representation::Integer => {
            let negative = reader.boolean()?;
            match reader.short_unsigned() {
                // The value has at most 49 bits.
                Some(value) if negative => DecodedValue::Integer(!(value as i64)),
                Some(value) => DecodedValue::Integer(value as i64),
                None => read_large(reader, Some(negative), buffers)?,
            }
        }
        Representation::Unsigned => match reader.short_unsigned() {
            Some(value) => DecodedValue::Integer(value as i64),
            None => read_large(reader, None, buffers)?,
        },
        Representation::Bounded { least, count } => {
            let offset = reader.bits(width(u64::from(*count)))?;
            if offset >= *count {
                return Err(Cause::OutOfRange("an integer of the schema's range"));
            }
            let value = *least + i128::from(offset);
            match i64::try_from(value) {
                Ok(value) => DecodedValue::Integer(value),
                Err(_) => {
                    buffers.text.clear();
                    let _ = write!(buffers.text, "{value}");
                    DecodedValue::Lexical
                }
            }
        }
        Representation::Decimal => read_decimal(reader, buffers)?,
        Representation::Float => read_float(reader)?,
        Representation::DateTime(kind) => read_date_time(reader, *kind, buffers)?,
        Representation::Base64 | Representation::Hex => {
            let length = usize::try_from(reader.unsigned()?).unwrap_or(usize::MAX);
            if length > buffers.octets_max {
                let bound = buffers.octets_max as u64;
                return Err(Cause::limit("string_characters", bound));
            }
            buffers.octets.clear();
            reader.octets(length, &mut buffers.octets)?;
            match representation {
                Representation::Hex => DecodedValue::Hex,
                _ => DecodedValue::Base64,
            }
        }
        Representation::String
        | Representation::Restricted(_)
        | Representation::List(_)
        | Representation::Enumeration { .. } => {
            return Err(Cause::OutOfRange("a value of a plain datatype"));
        }
    };
    Ok(())
}

/// Reads an enumerated value (7.2).
pub(crate) fn read_enumerated(
    reader: &mut BitReader<'_>,
    values: &[String],
    text: &mut String,
) -> Result<(), Cause> {
    let at = reader.bits(width(values.len() as u64))? as usize;
    let value = values.get(at);
    let value = value.ok_or(Cause::OutOfRange("a value of the enumeration"))?;
    text.clear();
    text.push_str(value);
    Ok(())
}

/// Reads the length of a list.
pub(crate) fn read_count(reader: &mut BitReader<'_>) -> Result<u64, Cause> {
    let count = reader.unsigned()?;
    if count > LIST_MAX {
        return Err(Cause::limit("list values", LIST_MAX));
    }
    Ok(count)
}

/// Reads a whole number of any size. With a negative sign, the stored magnitude is one less.
fn read_large(
    reader: &mut BitReader<'_>,
    sign: Option<bool>,
    buffers: &mut Buffers,
) -> Result<DecodedValue, Cause> {
    let negative = sign == Some(true);
    read_groups(reader, &mut buffers.groups)?;
    if let Some(value) = as_u64(&buffers.groups) {
        return Ok(match i64::try_from(value) {
            Ok(value) => DecodedValue::Integer(if negative { !value } else { value }),
            Err(_) if !negative => DecodedValue::Unsigned(value),
            Err(_) => {
                buffers.text.clear();
                let _ = write!(buffers.text, "-{}", u128::from(value) + 1);
                DecodedValue::Lexical
            }
        });
    }
    buffers.text.clear();
    if negative {
        buffers.text.push('-');
    }
    decimal_digits(&mut buffers.groups, negative, &mut buffers.text);
    Ok(DecodedValue::Lexical)
}

fn read_groups(reader: &mut BitReader<'_>, groups: &mut Vec<u8>) -> Result<(), Cause> {
    groups.clear();
    Ok(reader.unsigned_groups(groups, GROUPS_MAX)?)
}

/// The number if it fits into 64 bits.
fn as_u64(groups: &[u8]) -> Option<u64> {
    let significant = groups
        .iter()
        .rposition(|group| *group != 0)
        .map_or(0, |at| at + 1);
    if significant > 10 || (significant == 10 && groups[9] > 1) {
        return None;
    }
    let groups = groups[..significant].iter().enumerate();
    Some(groups.fold(0, |value, (at, group)| {
        value | u64::from(*group) << (7 * at)
    }))
}

/// Appends a number, plus one if requested, in decimal digits; consumes the groups.
fn decimal_digits(groups: &mut Vec<u8>, plus_one: bool, text: &mut String) {
    if plus_one {
        let mut carry = true;
        for group in groups.iter_mut() {
            if carry {
                *group += 1;
                carry = *group == 128;
                *group &= 0x7f;
            }
        }
        if carry {
            groups.push(1);
        }
    }
    let start = text.len();
    let mut digits = Vec::new();
    while let Some(top) = groups.iter().rposition(|group| *group != 0) {
        groups.truncate(top + 1);
        let mut rest = 0u32;
        for group in groups.iter_mut().rev() {
            let value = rest * 128 + u32::from(*group);
            *group = (value / 10) as u8;
            rest = value % 10;
        }
        digits.push(b'0' + rest as u8);
    }
    text.extend(digits.iter().rev().map(|digit| char::from(*digit)));
    if text.len() == start {
        text.push('0');
    }
}

fn read_decimal(reader: &mut BitReader<'_>, buffers: &mut Buffers) -> Result<DecodedValue, Cause> {
    let negative = reader.boolean()?;
    read_groups(reader, &mut buffers.groups)?;
    let integral = as_u64(&buffers.groups);
    buffers.text.clear();
    if negative {
        buffers.text.push('-');
    }
    match integral {
        // Writing to a string does not fail.
        Some(integral) => _ = write!(buffers.text, "{integral}"),
        None => decimal_digits(&mut buffers.groups, false, &mut buffers.text),
    }
    read_groups(reader, &mut buffers.groups)?;
    let fraction = as_u64(&buffers.groups).and_then(unreversed);
    if let (Some(integral), Some((fraction, fraction_digits))) = (integral, fraction) {
        return Ok(DecodedValue::Decimal(Decimal {
            negative,
            integral,
            fraction,
            fraction_digits,
        }));
    }
    buffers.text.push('.');
    reversed_digits(buffers);
    Ok(DecodedValue::Lexical)
}

/// Appends the decimal digits of the groups in reverse order.
fn reversed_digits(buffers: &mut Buffers) {
    let mut digits = String::new();
    decimal_digits(&mut buffers.groups, false, &mut digits);
    buffers.text.extend(digits.chars().rev());
}

#[inline]
fn read_float(reader: &mut BitReader<'_>) -> Result<DecodedValue, Cause> {
    const RANGE: Cause = Cause::OutOfRange("a float: its mantissa has 64 bits, its exponent 15");
    let mut integer = || -> Result<i64, Cause> {
        let negative = reader.boolean()?;
        let magnitude = i64::try_from(reader.unsigned()?).map_err(|_| RANGE)?;
        Ok(if negative { !magnitude } else { magnitude })
    };
    let mantissa = integer()?;
    let exponent = integer()?;
    Ok(DecodedValue::Float(match (exponent, mantissa) {
        (-16384, 1) => Float::Infinity,
        (-16384, -1) => Float::NegativeInfinity,
        (-16384, _) => Float::NaN,
        (-16383..=16383, _) => Float::Finite {
            mantissa,
            exponent: exponent as i16,
        },
        _ => return Err(RANGE),
    }))
}

fn read_date_time(
    reader: &mut BitReader<'_>,
    kind: DateTimeKind,
    buffers: &mut Buffers,
) -> Result<DecodedValue, Cause> {
    const RANGE: Cause = Cause::OutOfRange("a date or time");
    let mut value = DateTime::empty(kind);
    if kind.has_year() {
        let negative = reader.boolean()?;
        let offset = i64::try_from(reader.unsigned()?).map_err(|_| RANGE)?;
        let offset = if negative { !offset } else { offset };
        value.year = offset.checked_add(2000).ok_or(RANGE)?;
    }
    if kind.has_month_day() {
        let both = reader.bits(9)?;
        (value.month, value.day) = ((both / 32) as u8, (both % 32) as u8);
        let fits = |has: bool, part: u8, most: u8| !has || (1..=most).contains(&part);
        if both >= 512
            || !fits(kind.has_month(), value.month, 12)
            || !fits(kind.has_day(), value.day, 31)
        {
            return Err(RANGE);
        }
    }
    let mut is_precise = false;
    if kind.has_time() {
        let time = reader.bits(17)?;
        let (hour, minute, second) = (time / 4096, time / 64 % 64, time % 64);
        if hour > 24 || minute > 59 || second > 60 {
            return Err(RANGE);
        }
        (value.hour, value.minute, value.second) = (hour as u8, minute as u8, second as u8);
        if reader.boolean()? {
            read_groups(reader, &mut buffers.groups)?;
            match as_u64(&buffers.groups).and_then(unreversed) {
                Some((fraction, digits)) => {
                    (value.fraction, value.fraction_digits) = (fraction, digits);
                }
                None => is_precise = true,
            }
        }
    }
    if reader.boolean()? {
        let zone = i32::try_from(reader.bits(11)?).map_err(|_| RANGE)? - 896;
        let (hours, minutes) = (zone / 64, zone % 64);
        let total = hours * 60 + minutes;
        if minutes.abs() > 59 || total.abs() > 14 * 60 {
            return Err(RANGE);
        }
        value.zone_minutes = Some(total as i16);
    }
    if !is_precise {
        return Ok(DecodedValue::DateTime(value));
    }
    // The time zone follows the fraction.
    buffers.text.clear();
    let zone = value.zone_minutes.take();
    let _ = write!(buffers.text, "{value}.");
    reversed_digits(buffers);
    value.zone_minutes = zone;
    let whole = alloc::format!("{value}");
    value.zone_minutes = None;
    let without = alloc::format!("{value}");
    buffers.text.push_str(&whole[without.len()..]);
    Ok(DecodedValue::Lexical)
}
