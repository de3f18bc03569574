//! What a filter says about times and ids, so that the log's index finds the elements.

use chappe_stream::Timestamp;

use crate::evaluate::{Scope, evaluate};
use crate::expression::{Comparison, Expression};
use crate::{Fault, Value};

struct Nothing;

impl Scope for Nothing {
    fn value(&self, _: &[String]) -> Result<Value, Fault> {
        Ok(Value::Null)
    }
}

/// The value of an expression without paths.
#[must_use]
pub fn constant(expression: &Expression, now: Timestamp) -> Option<Value> {
    let mut is_constant = true;
    expression.each_path(&mut |_| is_constant = false);
    match is_constant {
        true => evaluate(expression, &Nothing, now).ok(),
        false => None,
    }
}

/// The property and the value of a comparison between a path and a constant.
fn of_property(part: &Expression, now: Timestamp) -> Option<(&[String], Comparison, Value)> {
    let Expression::Compare(comparison, one, other) = part else {
        return None;
    };
    match (&**one, &**other) {
        (Expression::Path(path), value) => Some((path, *comparison, constant(value, now)?)),
        (value, Expression::Path(path)) => {
            Some((path, comparison.mirrored(), constant(value, now)?))
        }
        _ => None,
    }
}

/// The least and the greatest time that the start of a property of `names` can have where a filter holds.
/// A filter may also be false within the range.
#[must_use]
pub fn time_bounds(filter: &Expression, names: &[&str], now: Timestamp) -> (i64, i64) {
    let mut range = (i64::MIN, i64::MAX);
    for part in filter.conjuncts() {
        let Some(([name], comparison, value)) = of_property(part, now) else {
            continue;
        };
        if !names.contains(&name.as_str()) {
            continue;
        }
        let (from, to) = match value {
            Value::Time(from, to) => (from.0, to.0),
            Value::Text(text) => match Timestamp::parse(&text) {
                Some(time) => (time.0, time.0),
                None => continue,
            },
            _ => continue,
        };
        match comparison {
            Comparison::Equal => range = (range.0.max(from), range.1.min(from)),
            Comparison::Greater | Comparison::GreaterOrEqual => range.0 = range.0.max(from),
            Comparison::Less | Comparison::LessOrEqual => range.1 = range.1.min(to),
            Comparison::NotEqual => {}
        }
    }
    range
}

/// The text that a property must have where a filter holds, if it names one.
#[must_use]
pub fn equal_text(filter: &Expression, path: &[&str], now: Timestamp) -> Option<String> {
    filter.conjuncts().into_iter().find_map(|part| {
        let (named, comparison, value) = of_property(part, now)?;
        match (comparison, value) {
            (Comparison::Equal, Value::Text(text)) if named == path => Some(text),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EntityType, parse_filter};

    #[test]
    fn comparisons_that_must_hold_bound_the_time() {
        let now = Timestamp::parse("2026-01-02T00:00:00Z").unwrap();
        let bounds = |text: &str| {
            let filter = parse_filter(text, EntityType::Observation).unwrap();
            let (from, to) = time_bounds(&filter, &["phenomenonTime"], now);
            (Timestamp(from).to_string(), Timestamp(to).to_string())
        };
        let (least, greatest) = (
            Timestamp(i64::MIN).to_string(),
            Timestamp(i64::MAX).to_string(),
        );
        let day = "2026-01-01T00:00:00Z";
        for (text, from, to) in [
            (
                "phenomenonTime ge 2026-01-01T00:00:00Z",
                day,
                greatest.as_str(),
            ),
            ("2026-01-01T00:00:00Z gt phenomenonTime", &least, day),
            (
                "phenomenonTime eq 2026-01-01T00:00:00Z and result gt 5",
                day,
                day,
            ),
            ("phenomenonTime ge now() sub duration'P1D'", day, &greatest),
            (
                "phenomenonTime ge 2026-01-01T00:00:00Z or result gt 5",
                &least,
                &greatest,
            ),
            (
                "not (phenomenonTime ge 2026-01-01T00:00:00Z)",
                &least,
                &greatest,
            ),
            ("resultTime ge 2026-01-01T00:00:00Z", &least, &greatest),
        ] {
            assert_eq!(bounds(text), (from.to_owned(), to.to_owned()), "{text}");
        }
    }
}
