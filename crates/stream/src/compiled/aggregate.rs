//! Aggregates over the rows of a window, added up as SQLite adds: in the order of arrival, reals by
//! the summation of Kahan, Babuška and Neumaier.

use std::cmp::Ordering;

use super::datum::{Beyond, Datum, Evaluated};
use super::expression::Expression;

/// An aggregate.
#[derive(Debug, Clone)]
pub(super) struct Aggregate {
    pub(super) kind: AggregateKind,
    /// What it is over; none for rows.
    pub(super) argument: Option<Expression>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AggregateKind {
    /// How many rows.
    Rows,
    /// How many values.
    Count,
    /// Null of none.
    Sum,
    /// Zero of none, always real.
    Total,
    Average,
    Extreme(Ordering),
}

/// An aggregate that is being added up.
pub(super) enum Accumulator<'v> {
    Count(i64),
    Sum(AggregateKind, Sum),
    Extreme(Ordering, Datum<'v>),
}

impl<'v> Accumulator<'v> {
    pub(super) fn new(kind: AggregateKind) -> Self {
        match kind {
            AggregateKind::Rows | AggregateKind::Count => Self::Count(0),
            AggregateKind::Extreme(wanted) => Self::Extreme(wanted, Datum::Null),
            kind => Self::Sum(kind, Sum::default()),
        }
    }

    /// Counts a row.
    pub(super) fn row(&mut self) {
        if let Self::Count(count) = self {
            *count += 1;
        }
    }

    /// Adds a value; null adds nothing.
    pub(super) fn add(&mut self, value: Datum<'v>) -> Result<(), Beyond> {
        if value.is_null() {
            return Ok(());
        }
        match self {
            Self::Count(count) => *count += 1,
            Self::Sum(_, sum) => match value {
                Datum::Integer(number) => sum.add_integer(number)?,
                Datum::Real(number) => sum.add_real(number),
                _ => return Err(Beyond),
            },
            Self::Extreme(wanted, best) => {
                if best.is_null() || value.order(best)? == *wanted {
                    *best = value;
                }
            }
        }
        Ok(())
    }

    /// The result.
    pub(super) fn finish(self) -> Evaluated<'v> {
        Ok(match self {
            Self::Count(count) => Datum::Integer(count),
            Self::Extreme(_, best) => best,
            Self::Sum(AggregateKind::Total, sum) => Datum::real(sum.total()),
            Self::Sum(_, sum) if sum.count == 0 => Datum::Null,
            #[allow(clippy::cast_precision_loss)]
            Self::Sum(AggregateKind::Average, sum) => Datum::real(sum.total() / sum.count as f64),
            Self::Sum(_, sum) => match sum.real {
                None => Datum::Integer(sum.integer),
                Some(_) => Datum::real(sum.total()),
            },
        })
    }
}

/// A sum: of integers as long as there is no real.
#[derive(Debug, Default)]
pub(super) struct Sum {
    count: i64,
    integer: i64,
    real: Option<Compensated>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Compensated {
    sum: f64,
    error: f64,
}

/// Integers from here on are added in two parts, each exact as a double.
const LARGE: u64 = 1 << 52;

impl Sum {
    fn add_integer(&mut self, number: i64) -> Result<(), Beyond> {
        self.count += 1;
        match &mut self.real {
            // A sum that is too large is an error or not by what follows: SQLite says so.
            None => self.integer = self.integer.checked_add(number).ok_or(Beyond)?,
            Some(real) => real.add_integer(number),
        }
        Ok(())
    }

    fn add_real(&mut self, number: f64) {
        self.count += 1;
        let integer = self.integer;
        let real = self
            .real
            .get_or_insert_with(|| Compensated::from_integer(integer));
        real.add(number);
    }

    #[allow(clippy::cast_precision_loss)]
    fn total(&self) -> f64 {
        match self.real {
            None => self.integer as f64,
            Some(real) if real.error.is_finite() => real.sum + real.error,
            Some(real) => real.sum,
        }
    }
}

#[allow(clippy::cast_precision_loss)]
impl Compensated {
    fn from_integer(number: i64) -> Self {
        let low = if number.unsigned_abs() >= LARGE {
            number % 16384
        } else {
            0
        };
        Self {
            sum: (number - low) as f64,
            error: low as f64,
        }
    }

    fn add_integer(&mut self, number: i64) {
        if number.unsigned_abs() >= LARGE {
            let low = number % 16384;
            self.add((number - low) as f64);
            self.add(low as f64);
        } else {
            self.add(number as f64);
        }
    }

    fn add(&mut self, number: f64) {
        let sum = self.sum + number;
        self.error += match self.sum.abs() > number.abs() {
            true => (self.sum - sum) + number,
            false => (number - sum) + self.sum,
        };
        self.sum = sum;
    }
}
