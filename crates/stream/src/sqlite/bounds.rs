//! What the condition of a statement says about times, numbers and keys, so that the log's index is
//! asked for these alone.
//!
//! Bounds are never narrower than the condition. They are exact when the condition says nothing else.

use super::time::duration_ns;
use crate::compiled::syntax::Syntax;
use crate::{Quality, Value};

/// Which elements of a stream are wanted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bounds {
    /// The least and the greatest source time.
    pub(super) times: (i64, i64),
    /// The least and the greatest number.
    pub(super) numbers: (i64, i64),
    pub(super) key: Option<String>,
    pub(super) quality: Option<Quality>,
    /// Whether no element satisfies the condition.
    pub(super) is_empty: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            times: (i64::MIN, i64::MAX),
            numbers: (i64::MIN, i64::MAX),
            key: None,
            quality: None,
            is_empty: false,
        }
    }
}

/// Evaluates a constant expression of SQL.
pub(super) type Constant<'a> = dyn FnMut(&str) -> Option<Value> + 'a;

impl Bounds {
    /// Narrows the bounds to those of `condition`; whether it says nothing else.
    pub(super) fn narrow(&mut self, condition: &Syntax, constant: &mut Constant<'_>) -> bool {
        match condition {
            Syntax::Binary("and", left, right) => {
                let left = self.narrow(left, constant);
                self.narrow(right, constant) && left
            }
            Syntax::Between(operand, low, high) => {
                let Some(column) = column(operand) else {
                    return false;
                };
                let low = evaluate(low, constant);
                let high = evaluate(high, constant);
                let (Some(low), Some(high)) = (low, high) else {
                    return false;
                };
                let low = self.compare(&column, ">=", &low);
                self.compare(&column, "<=", &high) && low
            }
            Syntax::Binary(operator, left, right) => {
                let (column, operator, other) = match (column(left), column(right)) {
                    (Some(column), None) => (column, *operator, right),
                    (None, Some(column)) => (column, mirrored(operator), left),
                    _ => return false,
                };
                match evaluate(other, constant) {
                    Some(value) => self.compare(&column, operator, &value),
                    None => false,
                }
            }
            _ => false,
        }
    }

    /// Narrows them to `column operator value`; whether that was possible.
    fn compare(&mut self, column: &str, operator: &str, value: &Value) -> bool {
        match (column, value) {
            ("key", Value::Text(key)) if operator == "=" => {
                self.is_empty |= self.key.as_ref().is_some_and(|known| known != key);
                self.key = Some(key.clone());
                true
            }
            ("quality", Value::Text(name)) if operator == "=" => {
                let all = [Quality::Good, Quality::Questionable, Quality::Bad];
                let quality = all.into_iter().find(|quality| quality.name() == name);
                self.is_empty |=
                    quality.is_none() || self.quality.is_some_and(|q| Some(q) != quality);
                self.quality = quality;
                true
            }
            ("source_time" | "sequence", Value::Integer(_) | Value::Double(_)) => {
                let Some((low, high)) = interval(operator, value) else {
                    return false;
                };
                let bounds = match column {
                    "sequence" => &mut self.numbers,
                    _ => &mut self.times,
                };
                *bounds = (bounds.0.max(low), bounds.1.min(high));
                self.is_empty |= bounds.0 > bounds.1;
                true
            }
            _ => false,
        }
    }
}

/// The whole numbers that are `operator value`; none when this is no interval.
fn interval(operator: &str, value: &Value) -> Option<(i64, i64)> {
    const NOTHING: (i64, i64) = (1, 0);
    let (floor, is_whole) = match value {
        Value::Integer(number) => (*number, true),
        Value::Double(number) => whole_below(*number)?,
        _ => return None,
    };
    let below = |number: i64| {
        number
            .checked_sub(1)
            .map_or(NOTHING, |high| (i64::MIN, high))
    };
    let above = |number: i64| number.checked_add(1).map_or(NOTHING, |low| (low, i64::MAX));
    Some(match operator {
        "=" if is_whole => (floor, floor),
        "=" => NOTHING,
        "<" if is_whole => below(floor),
        "<" | "<=" => (i64::MIN, floor),
        ">=" if is_whole => (floor, i64::MAX),
        ">" | ">=" => above(floor),
        _ => return None,
    })
}

/// The greatest whole number that is not above `number`, and whether it is the same.
fn whole_below(number: f64) -> Option<(i64, bool)> {
    // 2^63: doubles below it and not below its negative have a whole part of 64 bits.
    const END: f64 = 9_223_372_036_854_775_808.0;
    let floor = number.floor();
    (-END..END)
        .contains(&floor)
        .then_some((floor as i64, floor == number))
}

/// The column of the table that an expression is.
pub(super) fn column(syntax: &Syntax) -> Option<String> {
    match syntax {
        Syntax::Column(_, name, _) => Some(name.to_ascii_lowercase()),
        _ => None,
    }
}

/// The operator with its sides exchanged.
fn mirrored(operator: &'static str) -> &'static str {
    match operator {
        "<" => ">",
        "<=" => ">=",
        ">" => "<",
        ">=" => "<=",
        other => other,
    }
}

/// The value of an expression without columns.
pub(super) fn evaluate(syntax: &Syntax, constant: &mut Constant<'_>) -> Option<Value> {
    match syntax {
        Syntax::Text(text) => Some(Value::Text(text.clone())),
        Syntax::Number(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            match text.parse() {
                Ok(number) => Some(Value::Integer(number)),
                Err(_) => constant(text),
            }
        }
        _ => constant(&written(syntax)?),
    }
}

/// The width of a bucket in nanoseconds: a number, or a text such as `15 m`.
pub(super) fn width_ns(syntax: &Syntax, constant: &mut Constant<'_>) -> Option<i64> {
    match evaluate(syntax, constant)? {
        Value::Integer(width) if width > 0 => Some(width),
        Value::Text(text) => duration_ns(&text),
        _ => None,
    }
}

/// An expression without columns as SQL.
fn written(syntax: &Syntax) -> Option<String> {
    Some(match syntax {
        Syntax::Null => "null".into(),
        Syntax::Number(text) => text.clone(),
        Syntax::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Syntax::Negative(inner) => format!("(- {})", written(inner)?),
        Syntax::Plus(inner) => format!("(+ {})", written(inner)?),
        Syntax::Binary(operator, left, right) => {
            format!("({} {operator} {})", written(left)?, written(right)?)
        }
        Syntax::Cast(inner, name) => format!("cast({} as {name})", written(inner)?),
        Syntax::Call(name, Some(arguments)) => {
            let arguments: Option<Vec<_>> = arguments.iter().map(written).collect();
            format!("{name}({})", arguments?.join(","))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiled::syntax::parse_restriction;

    fn bounds(condition: &str) -> (Bounds, bool) {
        let statement = format!("select v from a where {condition}");
        let restriction = parse_restriction(&statement).expect("read");
        let mut bounds = Bounds::default();
        let mut constant = |text: &str| {
            text.trim_matches(['(', ')'])
                .parse()
                .ok()
                .map(Value::Double)
        };
        let exact = bounds.narrow(&restriction.condition.expect("there"), &mut constant);
        (bounds, exact)
    }

    #[test]
    fn bounds_are_those_of_the_condition() {
        const NONE: (i64, i64) = (i64::MIN, i64::MAX);
        for (condition, times, numbers, exact) in [
            ("source_time >= 5", (5, i64::MAX), NONE, true),
            ("5 > source_time", (i64::MIN, 4), NONE, true),
            (
                "source_time between 3 and 9 and sequence < 7",
                (3, 9),
                (i64::MIN, 6),
                true,
            ),
            (
                "a.SOURCE_TIME > 1.5 and source_time <= 2.5",
                (2, 2),
                NONE,
                true,
            ),
            ("source_time > 1 and v > 3", (2, i64::MAX), NONE, false),
            ("source_time > 1 or v > 3", NONE, NONE, false),
            ("not source_time > 1", NONE, NONE, false),
            ("source_time <> 1", NONE, NONE, false),
            ("source_time > 'x'", NONE, NONE, false),
        ] {
            let (found, is_exact) = bounds(condition);
            assert_eq!(
                (found.times, found.numbers),
                (times, numbers),
                "{condition}"
            );
            assert_eq!(is_exact, exact, "{condition}");
        }
        for empty in [
            "source_time = 1.5",
            "source_time > 3 and source_time < 2",
            "key = 'a' and key = 'b'",
            "quality = 'fine'",
            "source_time > 9223372036854775807",
        ] {
            assert!(bounds(empty).0.is_empty, "{empty}");
        }
        let (found, exact) = bounds("key = 'a' and quality = 'bad'");
        assert_eq!(
            (found.key.as_deref(), found.quality),
            (Some("a"), Some(Quality::Bad))
        );
        assert!(exact);
    }
}
