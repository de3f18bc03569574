//! Values during the evaluation of a statement, with SQLite's semantics.

use std::borrow::Cow;
use std::cmp::Ordering;

use rusqlite::types::ValueRef;

use crate::{Samples, Value};

/// A value: SQLite's five, and samples, which to SQLite are a blob.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Datum<'v> {
    Null,
    Integer(i64),
    Real(f64),
    Text(Cow<'v, str>),
    Bytes(Cow<'v, [u8]>),
    Samples(&'v Samples),
}

/// The compiled path cannot evaluate this; SQLite does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotCompilable;

pub(super) type Evaluated<'v> = Result<Datum<'v>, NotCompilable>;

impl<'v> Datum<'v> {
    /// A value of an element, as in a table.
    pub(super) fn of(value: &'v Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Boolean(value) => Self::Integer(i64::from(*value)),
            Value::Integer(value) => Self::Integer(*value),
            Value::Double(value) => Self::real(*value),
            Value::Text(text) => Self::Text(Cow::Borrowed(text)),
            Value::Bytes(bytes) => Self::Bytes(Cow::Borrowed(bytes)),
            Value::Samples(samples) => Self::Samples(samples),
        }
    }

    /// A number, or null for NaN.
    pub(super) fn real(number: f64) -> Self {
        match number.is_nan() {
            true => Self::Null,
            false => Self::Real(number),
        }
    }

    pub(super) fn text(text: &'v str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// Three-valued truth: `None` for null.
    pub(super) fn truth(&self) -> Result<Option<bool>, NotCompilable> {
        match self {
            Self::Null => Ok(None),
            Self::Integer(number) => Ok(Some(*number != 0)),
            Self::Real(number) => Ok(Some(*number != 0.0)),
            _ => Err(NotCompilable),
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The number as a double; `None` for null.
    pub(super) fn double(&self) -> Result<Option<f64>, NotCompilable> {
        match self {
            Self::Null => Ok(None),
            Self::Integer(number) => Ok(Some(*number as f64)),
            Self::Real(number) => Ok(Some(*number)),
            _ => Err(NotCompilable),
        }
    }

    /// As text, where that is exact; not for null.
    pub(super) fn as_text(&self) -> Result<Cow<'_, str>, NotCompilable> {
        match self {
            Self::Text(text) => Ok(Cow::Borrowed(text)),
            Self::Integer(number) => Ok(Cow::Owned(number.to_string())),
            _ => Err(NotCompilable),
        }
    }

    /// SQLite's order: null, numbers, texts, blobs.
    pub(super) fn order(&self, other: &Self) -> Result<Ordering, NotCompilable> {
        Ok(match (self, other) {
            (Self::Integer(one), Self::Integer(two)) => one.cmp(two),
            (Self::Real(one), Self::Real(two)) => one.partial_cmp(two).ok_or(NotCompilable)?,
            (Self::Integer(one), Self::Real(two)) => integer_to_real(*one, *two),
            (Self::Real(one), Self::Integer(two)) => integer_to_real(*two, *one).reverse(),
            (Self::Text(one), Self::Text(two)) => one.as_bytes().cmp(two.as_bytes()),
            (Self::Bytes(one), Self::Bytes(two)) => one.cmp(two),
            (Self::Samples(_), _) | (_, Self::Samples(_)) => return Err(NotCompilable),
            _ => self.rank().cmp(&other.rank()),
        })
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Integer(_) | Self::Real(_) => 1,
            Self::Text(_) => 2,
            Self::Bytes(_) | Self::Samples(_) => 3,
        }
    }

    /// As SQLite would return it; `None` for samples.
    pub(super) fn value_ref(&self) -> Option<ValueRef<'_>> {
        Some(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Real(number) => ValueRef::Real(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
            Self::Samples(_) => return None,
        })
    }
}

/// Compares without rounding the integer.
fn integer_to_real(integer: i64, real: f64) -> Ordering {
    // 2^63; a double below it and not below its negative has a whole part of 64 bits.
    const END: f64 = 9_223_372_036_854_775_808.0;
    if real >= END {
        return Ordering::Less;
    }
    if real < -END {
        return Ordering::Greater;
    }
    let whole = real as i64;
    let order = integer.cmp(&whole);
    order.then_with(|| 0.0.partial_cmp(&real.fract()).unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_reals_compare_without_rounding() {
        assert_eq!(integer_to_real(1, 1.5), Ordering::Less);
        assert_eq!(integer_to_real(-1, -1.5), Ordering::Greater);
        assert_eq!(integer_to_real(0, -0.0), Ordering::Equal);
        assert_eq!(
            integer_to_real(i64::MAX, 9_223_372_036_854_775_808.0),
            Ordering::Less
        );
        assert_eq!(
            integer_to_real(i64::MIN, -9_223_372_036_854_775_808.0),
            Ordering::Equal
        );
        let exact = (1_i64 << 53) + 1;
        assert_eq!(
            integer_to_real(exact, 9_007_199_254_740_992.0),
            Ordering::Greater
        );
        assert_eq!(integer_to_real(5, f64::INFINITY), Ordering::Less);
    }
}
