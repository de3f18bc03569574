//! `sum`, `total`, `avg`, and variances, with exact sums.
//!
//! They replace SQLite's own, whose sums of reals depend on the order of the rows: a running sum of the
//! compiled path, a pass over stored records and SQLite give the same result to the bit. They work as
//! window functions too. Values are converted as SQLite's own functions convert them: a text counts
//! as the number that it starts with. The variances pass over texts and blobs.

use rusqlite::functions::{Aggregate, Context, WindowAggregate};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error, Result};

use super::functions::FLAGS;
use crate::exact::{Deviation, Moments, Sum};

/// Registers them.
pub(super) fn register(connection: &Connection) -> Result<()> {
    connection.create_window_function("sum", 1, FLAGS, Sums::Sum)?;
    connection.create_window_function("total", 1, FLAGS, Sums::Total)?;
    connection.create_window_function("avg", 1, FLAGS, Sums::Average)?;
    for (name, which) in Deviation::ALL {
        connection.create_window_function(name, 1, FLAGS, Spread(which))?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sums {
    Sum,
    Total,
    Average,
}

enum Number {
    Integer(i64),
    Real(f64),
}

impl Sums {
    fn result(self, sum: &Sum) -> Result<Option<Value>> {
        let real = |number: f64| Some(Value::Real(number)).filter(|_| !number.is_nan());
        Ok(match self {
            Self::Total => real(sum.total()),
            _ if sum.count() == 0 => None,
            Self::Average => real(sum.total() / sum.count() as f64),
            Self::Sum if sum.has_reals() => real(sum.total()),
            Self::Sum => match sum.integer() {
                Some(integer) => Some(Value::Integer(integer)),
                None => return Err(Error::UserFunctionError("integer overflow".into())),
            },
        })
    }
}

impl Aggregate<Sum, Option<Value>> for Sums {
    fn init(&self, _: &mut Context<'_>) -> Result<Sum> {
        Ok(Sum::default())
    }

    fn step(&self, context: &mut Context<'_>, sum: &mut Sum) -> Result<()> {
        match number(context.get_raw(0)) {
            None => {}
            Some(Number::Integer(number)) => sum.add_integer(number),
            Some(Number::Real(number)) => sum.add_real(number),
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, sum: Option<Sum>) -> Result<Option<Value>> {
        self.result(&sum.unwrap_or_default())
    }
}

impl WindowAggregate<Sum, Option<Value>> for Sums {
    fn value(&self, sum: Option<&mut Sum>) -> Result<Option<Value>> {
        self.result(sum.map_or(&Sum::default(), |sum| sum))
    }

    fn inverse(&self, context: &mut Context<'_>, sum: &mut Sum) -> Result<()> {
        match number(context.get_raw(0)) {
            None => {}
            Some(Number::Integer(number)) => sum.remove_integer(number),
            Some(Number::Real(number)) => sum.remove_real(number),
        }
        Ok(())
    }
}

/// A variance or a standard deviation.
struct Spread(Deviation);

/// The value as a double; `None` for null, text and blob.
fn double(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Integer(number) => Some(number as f64),
        ValueRef::Real(number) => Some(number),
        _ => None,
    }
}

impl Aggregate<Moments, Option<f64>> for Spread {
    fn init(&self, _: &mut Context<'_>) -> Result<Moments> {
        Ok(Moments::default())
    }

    fn step(&self, context: &mut Context<'_>, moments: &mut Moments) -> Result<()> {
        if let Some(number) = double(context.get_raw(0)) {
            moments.add(number);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, moments: Option<Moments>) -> Result<Option<f64>> {
        Ok(moments.and_then(|moments| moments.finish(self.0)))
    }
}

impl WindowAggregate<Moments, Option<f64>> for Spread {
    fn value(&self, moments: Option<&mut Moments>) -> Result<Option<f64>> {
        Ok(moments.and_then(|moments| moments.finish(self.0)))
    }

    fn inverse(&self, context: &mut Context<'_>, moments: &mut Moments) -> Result<()> {
        if let Some(number) = double(context.get_raw(0)) {
            moments.remove(number);
        }
        Ok(())
    }
}

/// A value as SQLite's sums take it; `None` for null.
fn number(value: ValueRef<'_>) -> Option<Number> {
    Some(match value {
        ValueRef::Null => return None,
        ValueRef::Integer(number) => Number::Integer(number),
        ValueRef::Real(number) => Number::Real(number),
        ValueRef::Text(bytes) => {
            let (start, is_whole) = leading_number(bytes);
            match start.parse().ok().filter(|_| is_whole) {
                Some(integer) => Number::Integer(integer),
                None => Number::Real(start.parse().unwrap_or(0.0)),
            }
        }
        ValueRef::Blob(bytes) => Number::Real(leading_number(bytes).0.parse().unwrap_or(0.0)),
    })
}

/// The decimal number that a text starts with, and whether nothing but space surrounds it.
fn leading_number(text: &[u8]) -> (&str, bool) {
    let is_space = |byte: &u8| matches!(byte, b' ' | 9..=13);
    let begin = text.iter().take_while(|byte| is_space(byte)).count();
    let text = &text[begin..];
    let digits = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let sign = |at: usize| usize::from(matches!(text.get(at), Some(b'+' | b'-')));
    let whole = sign(0);
    let mut end = whole + digits(whole);
    let mut count = end - whole;
    if text.get(end) == Some(&b'.') {
        count += digits(end + 1);
        end += 1 + digits(end + 1);
    }
    if count == 0 {
        return ("", false);
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let exponent = end + 1 + sign(end + 1);
        if digits(exponent) > 0 {
            end = exponent + digits(exponent);
        }
    }
    let is_whole = text[end..].iter().all(is_space);
    (std::str::from_utf8(&text[..end]).unwrap_or(""), is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        register(&connection).unwrap();
        connection
    }

    fn ask(connection: &Connection, sql: &str) -> Result<Value> {
        connection.query_row(sql, [], |row| row.get(0))
    }

    #[test]
    fn values_are_converted_as_by_sqlite() {
        let (exact, own) = (connection(), Connection::open_in_memory().unwrap());
        for values in [
            "(1), (2), (null)",
            "(null)",
            "('12'), (3)",
            "(' 7 '), (1)",
            "('12abc'), (1)",
            "('abc')",
            "(' -1.5e2x'), ('+.5'), ('.'), ('-'), ('1e'), ('5.')",
            "(x'3132'), (x'ff')",
            "(9e999), (1)",
            "(9e999), (-9e999)",
            "(true), (0.25)",
        ] {
            for function in ["sum", "total", "avg"] {
                let sql = format!("select {function}(column1) from (values {values})");
                assert_eq!(ask(&exact, &sql), ask(&own, &sql), "{sql}");
            }
        }
        let overflow = "select sum(column1) from (values (9223372036854775807), (1))";
        let error = |connection| ask(connection, overflow).unwrap_err().to_string();
        assert_eq!(error(&exact), error(&own));
        // The sum fits, whatever the order.
        let fits = "select sum(column1) from (values (9223372036854775807), (1), (-5))";
        assert_eq!(ask(&exact, fits), Ok(Value::Integer(i64::MAX - 4)));
    }

    #[test]
    fn they_are_window_functions_too() {
        let connection = connection();
        let sql = "select group_concat(s, ' ') from (select sum(column1) over \
             (rows between 1 preceding and current row) as s from (values (1e100), (1), (2), (0.5)))";
        let found = ask(&connection, sql);
        assert_eq!(found, Ok(Value::Text("1.0e+100 1.0e+100 3 2.5".into())));
        let sql = "select group_concat(round(s, 3), ' ') from (select stddev_pop(column1) over \
             (rows between 1 preceding and current row) as s from (values (1), (3), (7)))";
        assert_eq!(ask(&connection, sql), Ok(Value::Text("0.0 1.0 2.0".into())));
    }
}
