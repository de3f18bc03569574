//! The functions of expressions.

use chappe_stream::Timestamp;

use crate::expression::Function;
use crate::{Fault, Value};

/// The value of a function; null where an argument is null or of another type.
pub(crate) fn call(
    function: Function,
    arguments: &[Value],
    now: Timestamp,
) -> Result<Value, Fault> {
    if let Some(at) = arguments
        .iter()
        .position(|argument| matches!(argument, Value::Many(_)))
    {
        return over_each(function, arguments, at, now);
    }
    let text = |at: usize| match arguments.get(at) {
        Some(Value::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    let value = match function {
        Function::Now => Some(Value::instant(now)),
        Function::MinDateTime => Some(Value::instant(Timestamp(i64::MIN))),
        Function::MaxDateTime => Some(Value::instant(Timestamp(i64::MAX))),
        Function::Round | Function::Floor | Function::Ceiling => {
            rounded(function, arguments.first())
        }
        Function::Year
        | Function::Month
        | Function::Day
        | Function::Hour
        | Function::Minute
        | Function::Second
        | Function::FractionalSeconds
        | Function::Date
        | Function::Time
        | Function::TotalOffsetMinutes => of_time(function, arguments.first()),
        Function::Length => text(0).map(|text| count(text.chars().count())),
        Function::ToLower => text(0).map(|text| Value::Text(text.to_lowercase())),
        Function::ToUpper => text(0).map(|text| Value::Text(text.to_uppercase())),
        Function::Trim => text(0).map(|text| Value::Text(text.trim().to_owned())),
        Function::Substring => text(0).and_then(|text| substring(text, &arguments[1..])),
        Function::SubstringOf
        | Function::Contains
        | Function::EndsWith
        | Function::StartsWith
        | Function::IndexOf
        | Function::Concat => text(0).zip(text(1)).map(|pair| of_texts(function, pair)),
    };
    Ok(value.unwrap_or(Value::Null))
}

/// The values of a function for each value of one argument.
fn over_each(
    function: Function,
    arguments: &[Value],
    at: usize,
    now: Timestamp,
) -> Result<Value, Fault> {
    let mut arguments = arguments.to_vec();
    let Value::Many(values) = std::mem::replace(&mut arguments[at], Value::Null) else {
        return Ok(Value::Null);
    };
    if arguments
        .iter()
        .any(|argument| matches!(argument, Value::Many(_)))
    {
        let detail = "a function of two paths through sets is not supported";
        return Err(Fault::unsupported(detail));
    }
    let each = values.into_iter().map(|value| {
        arguments[at] = value;
        call(function, &arguments, now)
    });
    each.collect::<Result<_, _>>().map(Value::Many)
}

fn count(characters: usize) -> Value {
    Value::Integer(i64::try_from(characters).unwrap_or(i64::MAX))
}

fn rounded(function: Function, argument: Option<&Value>) -> Option<Value> {
    match argument? {
        Value::Integer(whole) => Some(Value::Integer(*whole)),
        Value::Double(number) => Some(Value::Double(match function {
            Function::Floor => number.floor(),
            Function::Ceiling => number.ceil(),
            _ => number.round(),
        })),
        _ => None,
    }
}

fn of_texts(function: Function, (one, other): (&str, &str)) -> Value {
    match function {
        // The order of the arguments is that of OData 2.
        Function::SubstringOf => Value::Boolean(other.contains(one)),
        Function::Contains => Value::Boolean(one.contains(other)),
        Function::EndsWith => Value::Boolean(one.ends_with(other)),
        Function::StartsWith => Value::Boolean(one.starts_with(other)),
        Function::IndexOf => match one.find(other) {
            Some(at) => count(one[..at].chars().count()),
            None => Value::Integer(-1),
        },
        _ => Value::Text(format!("{one}{other}")),
    }
}

fn substring(text: &str, arguments: &[Value]) -> Option<Value> {
    let number = |value: &Value| match value {
        Value::Integer(number) => usize::try_from(*number).ok(),
        _ => None,
    };
    let from = number(arguments.first()?)?;
    let most = match arguments.get(1) {
        None => usize::MAX,
        Some(most) => number(most)?,
    };
    Some(Value::Text(text.chars().skip(from).take(most).collect()))
}

/// A part of a time, of a period's start.
fn of_time(function: Function, argument: Option<&Value>) -> Option<Value> {
    let time = match argument? {
        Value::Time(from, _) => *from,
        Value::Text(text) => Timestamp::parse(text)?,
        _ => return None,
    };
    let civil = time.civil();
    Some(match function {
        Function::Year => Value::Integer(civil.year),
        Function::Month => Value::Integer(civil.month),
        Function::Day => Value::Integer(civil.day),
        Function::Hour => Value::Integer(civil.hour),
        Function::Minute => Value::Integer(civil.minute),
        Function::Second => Value::Integer(civil.second),
        Function::FractionalSeconds => Value::Double(civil.nanosecond as f64 / 1e9),
        Function::TotalOffsetMinutes => Value::Integer(0),
        Function::Date => Value::Text(time.to_string().chars().take(10).collect()),
        // Without the date and the Z.
        _ => {
            let text = time.to_string();
            let (_, of_day) = text.split_once('T')?;
            Value::Text(of_day.trim_end_matches('Z').to_owned())
        }
    })
}
