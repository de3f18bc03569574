//! Evaluates expressions: the logic of OData 4, in which null is neither true nor false.

use std::cmp::Ordering;

use chappe_stream::Timestamp;

use crate::expression::{Arithmetic, Comparison, Expression};
use crate::functions::call;
use crate::{Fault, Value};

/// Pairs of a comparison of two paths through sets; reason: the clock is not looked at between them, and with the longest
/// texts so many take less than a second.
const PAIRS_MAX: usize = 10_000;

/// The entity that an expression is evaluated for.
pub trait Scope {
    /// The value of a property, by its path.
    ///
    /// # Errors
    /// The entities on the path are too many, or cannot be read.
    fn value(&self, path: &[String]) -> Result<Value, Fault>;
}

/// Whether a filter holds.
///
/// # Errors
/// Those of [`evaluate`].
pub fn is_true(filter: &Expression, scope: &dyn Scope, now: Timestamp) -> Result<bool, Fault> {
    Ok(truth(&evaluate(filter, scope, now)?) == Some(true))
}

/// The value of an expression.
///
/// # Errors
/// Those of the scope; an operation on several sets, or a comparison of large ones.
pub fn evaluate(
    expression: &Expression,
    scope: &dyn Scope,
    now: Timestamp,
) -> Result<Value, Fault> {
    Ok(match expression {
        Expression::Literal(value) => value.clone(),
        Expression::Path(path) => scope.value(path)?,
        Expression::Not(inner) => boolean(truth(&evaluate(inner, scope, now)?).map(|value| !value)),
        Expression::Negate(inner) => negative(&evaluate(inner, scope, now)?),
        Expression::And(one, other) => {
            let one = truth(&evaluate(one, scope, now)?);
            if one == Some(false) {
                return Ok(Value::Boolean(false));
            }
            match truth(&evaluate(other, scope, now)?) {
                Some(false) => Value::Boolean(false),
                other => boolean(one.zip(other).map(|_| true)),
            }
        }
        Expression::Or(one, other) => {
            let one = truth(&evaluate(one, scope, now)?);
            if one == Some(true) {
                return Ok(Value::Boolean(true));
            }
            match truth(&evaluate(other, scope, now)?) {
                Some(true) => Value::Boolean(true),
                other => boolean(one.zip(other).map(|_| false)),
            }
        }
        Expression::Compare(comparison, one, other) => {
            let one = evaluate(one, scope, now)?;
            let other = evaluate(other, scope, now)?;
            check_pairs(&one, &other)?;
            Value::Boolean(compare(*comparison, &one, &other))
        }
        Expression::Arithmetic(operation, one, other) => {
            let one = evaluate(one, scope, now)?;
            let other = evaluate(other, scope, now)?;
            arithmetic(*operation, &one, &other)?
        }
        Expression::Call(function, arguments) => {
            let values = arguments
                .iter()
                .map(|argument| evaluate(argument, scope, now));
            call(*function, &values.collect::<Result<Vec<_>, _>>()?, now)?
        }
    })
}

fn boolean(truth: Option<bool>) -> Value {
    truth.map_or(Value::Null, Value::Boolean)
}

fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Boolean(value) => Some(*value),
        Value::Many(values) => {
            let mut truths = values.iter().map(truth);
            Some(truths.any(|truth| truth == Some(true)))
        }
        _ => None,
    }
}

fn check_pairs(one: &Value, other: &Value) -> Result<(), Fault> {
    match (one, other) {
        (Value::Many(one), Value::Many(other))
            if one.len().saturating_mul(other.len()) > PAIRS_MAX =>
        {
            let (one, other) = (one.len(), other.len());
            Err(Fault::Invalid(format!(
                "a comparison of two paths through sets is of at most {PAIRS_MAX} pairs, not of {one} entities \
                 with {other}"
            )))
        }
        _ => Ok(()),
    }
}

fn compare(comparison: Comparison, one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Many(values), other) => {
            return values.iter().any(|one| compare(comparison, one, other));
        }
        (one, Value::Many(values)) => {
            return values.iter().any(|other| compare(comparison, one, other));
        }
        _ => {}
    }
    let order = || one.order(other);
    match comparison {
        Comparison::Equal => one.equals(other),
        Comparison::NotEqual => !one.equals(other),
        Comparison::Greater => order() == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => order().is_some_and(Ordering::is_ge),
        Comparison::Less => order() == Some(Ordering::Less),
        Comparison::LessOrEqual => order().is_some_and(Ordering::is_le),
    }
}

fn negative(value: &Value) -> Value {
    match value {
        Value::Integer(whole) => whole
            .checked_neg()
            .map_or(Value::Double(-(*whole as f64)), Value::Integer),
        Value::Double(number) => Value::Double(-number),
        Value::Duration(nanoseconds) => Value::Duration(nanoseconds.saturating_neg()),
        Value::Many(values) => Value::Many(values.iter().map(negative).collect()),
        _ => Value::Null,
    }
}

fn arithmetic(operation: Arithmetic, one: &Value, other: &Value) -> Result<Value, Fault> {
    match (one, other) {
        (Value::Many(_), Value::Many(_)) => {
            let detail = "an operation on two paths through sets is not supported";
            Err(Fault::unsupported(detail))
        }
        (Value::Many(values), other) => {
            let each = values.iter().map(|one| arithmetic(operation, one, other));
            each.collect::<Result<_, _>>().map(Value::Many)
        }
        (one, Value::Many(values)) => {
            let each = values.iter().map(|other| arithmetic(operation, one, other));
            each.collect::<Result<_, _>>().map(Value::Many)
        }
        _ => Ok(of_pair(operation, one, other).unwrap_or(Value::Null)),
    }
}

/// The value of an operation; `None` where it has none: other types, a division by zero, beyond the range.
fn of_pair(operation: Arithmetic, one: &Value, other: &Value) -> Option<Value> {
    use Arithmetic::{Add, Divide, Modulo, Multiply, Subtract};
    match (operation, one, other) {
        (_, Value::Integer(one), Value::Integer(other)) => {
            let (one, other) = (*one, *other);
            let whole = match operation {
                Add => one.checked_add(other),
                Subtract => one.checked_sub(other),
                Multiply => one.checked_mul(other),
                // Of whole numbers the quotient is whole.
                Divide => return one.checked_div(other).map(Value::Integer),
                Modulo => return one.checked_rem(other).map(Value::Integer),
            };
            Some(match whole {
                Some(whole) => Value::Integer(whole),
                None => Value::Double(of_numbers(operation, one as f64, other as f64)),
            })
        }
        (Add, Value::Time(from, to), Value::Duration(duration))
        | (Add, Value::Duration(duration), Value::Time(from, to)) => moved(*from, *to, *duration),
        (Subtract, Value::Time(from, to), Value::Duration(duration)) => {
            moved(*from, *to, duration.checked_neg()?)
        }
        (Subtract, Value::Time(one, _), Value::Time(other, _)) => {
            one.0.checked_sub(other.0).map(Value::Duration)
        }
        (Add, Value::Duration(one), Value::Duration(other)) => {
            one.checked_add(*other).map(Value::Duration)
        }
        (Subtract, Value::Duration(one), Value::Duration(other)) => {
            one.checked_sub(*other).map(Value::Duration)
        }
        _ => {
            let value = of_numbers(operation, one.number()?, other.number()?);
            value.is_finite().then_some(Value::Double(value))
        }
    }
}

fn moved(from: Timestamp, to: Timestamp, duration: i64) -> Option<Value> {
    let from = from.0.checked_add(duration)?;
    let to = to.0.checked_add(duration)?;
    Some(Value::Time(Timestamp(from), Timestamp(to)))
}

fn of_numbers(operation: Arithmetic, one: f64, other: f64) -> f64 {
    match operation {
        Arithmetic::Add => one + other,
        Arithmetic::Subtract => one - other,
        Arithmetic::Multiply => one * other,
        Arithmetic::Divide => one / other,
        Arithmetic::Modulo => one % other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EntityType, parse_filter};

    /// Each path leads to so many entities.
    struct Sets(usize);

    impl Scope for Sets {
        fn value(&self, _: &[String]) -> Result<Value, Fault> {
            Ok(Value::Many(vec![Value::Text("x".to_owned()); self.0]))
        }
    }

    #[test]
    fn a_comparison_of_large_sets_is_refused() {
        let text = "Datastreams/name eq Locations/name";
        let filter = parse_filter(text, EntityType::Thing).unwrap();
        let holds = |entities| is_true(&filter, &Sets(entities), Timestamp(0));
        assert_eq!(holds(100), Ok(true));
        assert!(holds(101).unwrap_err().to_string().contains("pairs"));
        let filter = parse_filter("Datastreams/name eq 'y'", EntityType::Thing).unwrap();
        assert_eq!(is_true(&filter, &Sets(100_000), Timestamp(0)), Ok(false));
    }
}
