//! Values of expressions.

use std::cmp::Ordering;

use chappe_stream::Timestamp;
use serde_json::Value as Json;

/// A value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// True or false.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Double(f64),
    /// A text; also a date (`2026-11-21`) and a time of day (`10:00:00`), which are in the order of their texts.
    Text(String),
    /// A moment, or a period by its start and end.
    Time(Timestamp, Timestamp),
    /// Nanoseconds.
    Duration(i64),
    /// An array or an object.
    Other(Json),
    /// The values at the end of a path through sets: a comparison holds if it holds for one of them.
    Many(Vec<Value>),
}

impl Value {
    /// A moment.
    #[must_use]
    pub fn instant(time: Timestamp) -> Self {
        Self::Time(time, time)
    }

    /// A value of JSON.
    #[must_use]
    pub fn of_json(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Boolean(*value),
            Json::Number(number) => match number.as_i64() {
                Some(whole) => Self::Integer(whole),
                None => number.as_f64().map_or(Self::Null, Self::Double),
            },
            Json::String(text) => Self::Text(text.clone()),
            other => Self::Other(other.clone()),
        }
    }

    /// A time of JSON: a moment, or a period with a slash.
    #[must_use]
    pub fn time_of_json(json: &Json) -> Self {
        let text = json.as_str();
        text.and_then(parse_time).unwrap_or(Self::Null)
    }

    /// As a number.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(whole) => Some(*whole as f64),
            Self::Double(number) => Some(*number),
            _ => None,
        }
    }

    /// The order of two values of the same type; `None` if they have none.
    #[must_use]
    pub fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Boolean(one), Self::Boolean(other)) => Some(one.cmp(other)),
            (Self::Integer(one), Self::Integer(other))
            | (Self::Duration(one), Self::Duration(other)) => Some(one.cmp(other)),
            (Self::Integer(one), Self::Double(other)) => compare_mixed(*one, *other),
            (Self::Double(one), Self::Integer(other)) => {
                compare_mixed(*other, *one).map(Ordering::reverse)
            }
            (Self::Double(one), Self::Double(other)) => one.partial_cmp(other),
            (Self::Text(one), Self::Text(other)) => Some(one.cmp(other)),
            (Self::Text(text), Self::Time(..)) => parse_time(text)?.order(other),
            (Self::Time(..), Self::Text(text)) => self.order(&parse_time(text)?),
            (Self::Time(from, to), Self::Time(other_from, other_to)) => {
                period_order((*from, *to), (*other_from, *other_to))
            }
            _ => None,
        }
    }

    /// Whether two values are the same.
    #[must_use]
    pub fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Other(one), Self::Other(other)) => one == other,
            (Self::Time(from, to), Self::Time(other_from, other_to)) => {
                (from, to) == (other_from, other_to)
            }
            _ => self.order(other) == Some(Ordering::Equal),
        }
    }
}

/// Periods are in order if one ends before the other starts; equal ones and moments have the usual order.
fn period_order(one: (Timestamp, Timestamp), other: (Timestamp, Timestamp)) -> Option<Ordering> {
    if one == other {
        Some(Ordering::Equal)
    } else if one.1 <= other.0 {
        Some(Ordering::Less)
    } else if other.1 <= one.0 {
        Some(Ordering::Greater)
    } else {
        None
    }
}

/// Compares a whole number exactly with a real one: not every whole number is a double.
fn compare_mixed(whole: i64, real: f64) -> Option<Ordering> {
    /// 2 to the power of 63.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if real.is_nan() {
        return None;
    }
    if real >= BEYOND {
        return Some(Ordering::Less);
    }
    if real < -BEYOND {
        return Some(Ordering::Greater);
    }
    let floor = real.floor();
    // In the range of 64 bits, checked above.
    let order = whole.cmp(&(floor as i64));
    Some(order.then(if real > floor {
        Ordering::Less
    } else {
        Ordering::Equal
    }))
}

/// A moment, or a period `START/END`.
pub(crate) fn parse_time(text: &str) -> Option<Value> {
    match text.split_once('/') {
        None => Timestamp::parse(text).map(Value::instant),
        Some((from, to)) => {
            let (from, to) = (Timestamp::parse(from)?, Timestamp::parse(to)?);
            (from <= to).then_some(Value::Time(from, to))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_compared_exactly_with_real_ones() {
        for (whole, real, order) in [
            (1, 1.5, Ordering::Less),
            (2, 1.5, Ordering::Greater),
            (-1, -1.5, Ordering::Greater),
            (
                9_007_199_254_740_993,
                9_007_199_254_740_992.0,
                Ordering::Greater,
            ),
            (i64::MAX, 9.3e18, Ordering::Less),
            (i64::MIN, -9.3e18, Ordering::Greater),
            (i64::MAX, f64::INFINITY, Ordering::Less),
        ] {
            assert_eq!(compare_mixed(whole, real), Some(order), "{whole} {real}");
        }
        assert_eq!(compare_mixed(1, f64::NAN), None);
    }

    #[test]
    fn periods_that_overlap_have_no_order() {
        let time = |text: &str| parse_time(text).unwrap();
        let early = time("2026-01-01T00:00:00Z/2026-01-01T01:00:00Z");
        let late = time("2026-01-01T01:00:00Z/2026-01-01T02:00:00Z");
        let between = time("2026-01-01T00:30:00Z/2026-01-01T01:30:00Z");
        assert_eq!(early.order(&late), Some(Ordering::Less));
        assert_eq!(late.order(&early), Some(Ordering::Greater));
        assert_eq!(early.order(&between), None);
        assert!(parse_time("2026-01-02T00:00:00Z/2026-01-01T00:00:00Z").is_none());
    }
}
