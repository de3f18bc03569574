//! Aggregates over the rows of a window, added up as SQLite adds: in the order of arrival, reals by
//! the summation of Kahan, Babuška and Neumaier.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::datum::{Datum, Evaluated, NotCompilable};
use super::expression::{Expression, Scope};

/// An aggregate.
#[derive(Debug, Clone)]
pub(super) struct Aggregate {
    pub(super) kind: AggregateKind,
    /// Its argument; none for rows.
    pub(super) argument: Option<Expression>,
    /// Whether a [`Cell`] has all that it needs of a row.
    pub(super) fits_cells: bool,
}

/// An aggregate's input from one row: computed once, while the row is in the window.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cell {
    /// Nothing: null, or a row that the condition excludes.
    Nothing,
    Integer(i64),
    Real(f64),
}

/// The cells of a window, oldest first.
#[derive(Debug, Default)]
pub(super) struct Cells {
    /// The cells of each aggregate.
    columns: Vec<VecDeque<Cell>>,
    /// The number of rows.
    rows: usize,
}

impl Cells {
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn column(&self, aggregate: usize) -> impl Iterator<Item = Cell> {
        self.columns.get(aggregate).into_iter().flatten().copied()
    }

    /// Adds the cells of a row.
    pub(super) fn push(&mut self, row: impl IntoIterator<Item = Cell>) {
        for (index, cell) in row.into_iter().enumerate() {
            if self.columns.len() == index {
                self.columns.push(VecDeque::new());
            }
            self.columns[index].push_back(cell);
        }
        self.rows += 1;
    }

    /// Removes the oldest row.
    pub(super) fn pop(&mut self) {
        self.rows = self.rows.saturating_sub(1);
        for column in &mut self.columns {
            column.pop_front();
        }
    }

    /// Removes all rows.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Aggregate {
    /// Its input from a row that counts.
    pub(super) fn cell(&self, scope: Scope<'_>) -> Result<Cell, NotCompilable> {
        let Some(argument) = &self.argument else {
            return Ok(Cell::Integer(1));
        };
        Ok(match argument.evaluate(scope)? {
            Datum::Null => Cell::Nothing,
            Datum::Integer(number) => Cell::Integer(number),
            Datum::Real(number) => Cell::Real(number),
            _ if self.kind == AggregateKind::Count => Cell::Integer(1),
            _ => return Err(NotCompilable),
        })
    }
}

impl Cell {
    fn datum<'v>(self) -> Datum<'v> {
        match self {
            Self::Nothing => Datum::Null,
            Self::Integer(number) => Datum::Integer(number),
            Self::Real(number) => Datum::Real(number),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AggregateKind {
    /// The number of rows.
    Rows,
    /// The number of values.
    Count,
    /// The sum; null without values.
    Sum,
    /// The sum; zero without values, always real.
    Total,
    Average,
    Extreme(Ordering),
}

/// An aggregate during its evaluation.
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
    pub(super) fn add(&mut self, value: Datum<'v>) -> Result<(), NotCompilable> {
        if value.is_null() {
            return Ok(());
        }
        match self {
            Self::Count(count) => *count += 1,
            Self::Sum(_, sum) => match value {
                Datum::Integer(number) => sum.add_integer(number)?,
                Datum::Real(number) => sum.add_real(number),
                _ => return Err(NotCompilable),
            },
            Self::Extreme(wanted, best) => {
                if best.is_null() || value.order(best)? == *wanted {
                    *best = value;
                }
            }
        }
        Ok(())
    }

    /// Adds cells, as [`Self::row`] and [`Self::add`] would.
    pub(super) fn add_cells(
        &mut self,
        cells: impl Iterator<Item = Cell>,
    ) -> Result<(), NotCompilable> {
        match self {
            Self::Count(count) => {
                let counted = cells.filter(|cell| !matches!(cell, Cell::Nothing)).count();
                *count += i64::try_from(counted).unwrap_or(i64::MAX);
                Ok(())
            }
            Self::Sum(_, sum) => {
                let mut whole = std::mem::take(sum);
                for cell in cells {
                    match cell {
                        Cell::Nothing => {}
                        Cell::Integer(number) => whole.add_integer(number)?,
                        Cell::Real(number) => whole.add_real(number),
                    }
                }
                *sum = whole;
                Ok(())
            }
            Self::Extreme(wanted, _) => {
                let best = extreme(*wanted, cells)?;
                self.add(best.datum())
            }
        }
    }

    /// The result.
    pub(super) fn finish(self) -> Evaluated<'v> {
        Ok(match self {
            Self::Count(count) => Datum::Integer(count),
            Self::Extreme(_, best) => best,
            Self::Sum(AggregateKind::Total, sum) => Datum::real(sum.total()),
            Self::Sum(_, sum) if sum.count == 0 => Datum::Null,
            Self::Sum(AggregateKind::Average, sum) => Datum::real(sum.total() / sum.count as f64),
            Self::Sum(_, sum) => match sum.real {
                None => Datum::Integer(sum.integer),
                Some(_) => Datum::real(sum.total()),
            },
        })
    }
}

/// The first of the least values, or the first of the greatest.
fn extreme(wanted: Ordering, cells: impl Iterator<Item = Cell>) -> Result<Cell, NotCompilable> {
    let mut best = Cell::Nothing;
    for cell in cells {
        let better = match (cell, best) {
            (Cell::Nothing, _) => false,
            (_, Cell::Nothing) => true,
            (Cell::Real(one), Cell::Real(best)) if wanted.is_lt() => one < best,
            (Cell::Real(one), Cell::Real(best)) => one > best,
            (Cell::Integer(one), Cell::Integer(best)) => one.cmp(&best) == wanted,
            (one, best) => one.datum().order(&best.datum())? == wanted,
        };
        if better {
            best = cell;
        }
    }
    Ok(best)
}

/// A sum: of integers until a real is added.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    count: i64,
    integer: i64,
    real: Option<Compensated>,
}

/// A sum of reals, with what was lost by rounding.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Compensated {
    sum: f64,
    error: f64,
}

/// Integers from here on are added in two parts, each exact as a double.
const LARGE: u64 = 1 << 52;

impl Sum {
    pub(crate) fn add_integer(&mut self, number: i64) -> Result<(), NotCompilable> {
        self.count += 1;
        match &mut self.real {
            // Whether a sum that is too large is an error depends on later values: SQLite decides.
            None => self.integer = self.integer.checked_add(number).ok_or(NotCompilable)?,
            Some(real) => real.add_integer(number),
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn add_real(&mut self, number: f64) {
        self.count += 1;
        let integer = self.integer;
        let real = self
            .real
            .get_or_insert_with(|| Compensated::from_integer(integer));
        real.add(number);
    }

    pub(crate) fn total(&self) -> f64 {
        match self.real {
            None => self.integer as f64,
            Some(real) => real.total(),
        }
    }
}

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

    pub(crate) fn total(&self) -> f64 {
        match self.error.is_finite() {
            true => self.sum + self.error,
            false => self.sum,
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, number: f64) {
        let sum = self.sum + number;
        self.error += match self.sum.abs() > number.abs() {
            true => (self.sum - sum) + number,
            false => (number - sum) + self.sum,
        };
        self.sum = sum;
    }
}
