//! Aggregates over the rows of a window.
//!
//! An aggregate's input from a row is computed once, when the row enters the window ([`Cells`]), and the
//! aggregate follows the window: a row that enters is added, one that leaves is taken away. So an
//! evaluation costs the change and not the length of the window. Sums are exact (`crate::exact`), so a
//! running sum is the sum of the window to the bit. The least and the greatest are the ends of a queue
//! of the rows that may still become it.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::datum::{Datum, Evaluated, NotCompilable};
use super::expression::{Expression, Scope};
use crate::exact::{Deviation, Moments, Sum};

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

/// The cells of a window by arrival, oldest first, with the aggregates over them.
#[derive(Debug, Default)]
pub(super) struct Cells {
    columns: Vec<Column>,
    /// The numbers of the rows, ascending.
    rows: VecDeque<u64>,
}

/// The cells of one aggregate, and the aggregate.
#[derive(Debug)]
struct Column {
    cells: VecDeque<Cell>,
    running: Running,
}

/// An aggregate that follows a window.
#[derive(Debug)]
enum Running {
    Count(i64),
    Sum(AggregateKind, Sum),
    Deviation(Deviation, Moments),
    /// Rows that are, or may become, the first of the extremes: none is better than the one before.
    Extreme(Ordering, VecDeque<(u64, Cell)>),
}

impl Cells {
    /// No rows, for these aggregates.
    pub(super) fn new(aggregates: &[Aggregate]) -> Self {
        let column = |aggregate: &Aggregate| Column {
            cells: VecDeque::new(),
            running: Running::new(aggregate.kind),
        };
        Self {
            columns: aggregates.iter().map(column).collect(),
            rows: VecDeque::new(),
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Adds the cells of the row `number`, which is newer than all others.
    pub(super) fn push(
        &mut self,
        number: u64,
        row: impl IntoIterator<Item = Cell>,
    ) -> Result<(), NotCompilable> {
        self.rows.push_back(number);
        for (column, cell) in self.columns.iter_mut().zip(row) {
            column.cells.push_back(cell);
            column.running.add(number, cell)?;
        }
        Ok(())
    }

    /// Removes the row at a place.
    pub(super) fn remove(&mut self, at: usize) -> Result<(), NotCompilable> {
        let Some(number) = self.rows.remove(at) else {
            return Ok(());
        };
        for column in &mut self.columns {
            if let Some(cell) = column.cells.remove(at)
                && !column.running.remove(number, cell, at == 0)
            {
                column.running.restart();
                for (number, cell) in self.rows.iter().zip(&column.cells) {
                    column.running.add(*number, *cell)?;
                }
            }
        }
        Ok(())
    }

    /// Removes all rows.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        for column in &mut self.columns {
            column.cells.clear();
            column.running.restart();
        }
    }

    /// The result of each aggregate.
    pub(super) fn results(&self) -> Result<Vec<Datum<'static>>, NotCompilable> {
        let columns = self.columns.iter();
        columns.map(|column| column.running.result()).collect()
    }
}

impl Running {
    fn new(kind: AggregateKind) -> Self {
        match kind {
            AggregateKind::Rows | AggregateKind::Count => Self::Count(0),
            AggregateKind::Extreme(wanted) => Self::Extreme(wanted, VecDeque::new()),
            AggregateKind::Deviation(which) => Self::Deviation(which, Moments::default()),
            kind => Self::Sum(kind, Sum::default()),
        }
    }

    fn restart(&mut self) {
        match self {
            Self::Count(count) => *count = 0,
            Self::Sum(_, sum) => *sum = Sum::default(),
            Self::Deviation(_, moments) => *moments = Moments::default(),
            Self::Extreme(_, queue) => queue.clear(),
        }
    }

    #[inline]
    fn add(&mut self, number: u64, cell: Cell) -> Result<(), NotCompilable> {
        match (self, cell) {
            (_, Cell::Nothing) => {}
            (Self::Count(count), _) => *count += 1,
            (Self::Sum(_, sum), Cell::Integer(value)) => sum.add_integer(value),
            (Self::Sum(_, sum), Cell::Real(value)) => sum.add_real(value),
            (Self::Deviation(_, moments), Cell::Integer(value)) => moments.add(value as f64),
            (Self::Deviation(_, moments), Cell::Real(value)) => moments.add(value),
            (Self::Extreme(wanted, queue), cell) => {
                while let Some((_, last)) = queue.back()
                    && cell.order(*last)? == *wanted
                {
                    queue.pop_back();
                }
                queue.push_back((number, cell));
            }
        }
        Ok(())
    }

    /// Takes a row away, the first or another; returns whether that was possible without the others.
    #[inline]
    fn remove(&mut self, number: u64, cell: Cell, is_first: bool) -> bool {
        match (self, cell) {
            (_, Cell::Nothing) => {}
            (Self::Count(count), _) => *count -= 1,
            (Self::Sum(_, sum), Cell::Integer(value)) => sum.remove_integer(value),
            (Self::Sum(_, sum), Cell::Real(value)) => sum.remove_real(value),
            (Self::Deviation(_, moments), Cell::Integer(value)) => moments.remove(value as f64),
            (Self::Deviation(_, moments), Cell::Real(value)) => moments.remove(value),
            (Self::Extreme(_, queue), _) if is_first => {
                if queue.front().is_some_and(|(first, _)| *first == number) {
                    queue.pop_front();
                }
            }
            // In the queue, it may have kept earlier ones out.
            (Self::Extreme(_, queue), _) => {
                return queue.binary_search_by_key(&number, |(it, _)| *it).is_err();
            }
        }
        true
    }

    fn result(&self) -> Evaluated<'static> {
        Ok(match self {
            Self::Count(count) => Datum::Integer(*count),
            Self::Sum(kind, sum) => return result_of_sum(*kind, sum),
            Self::Deviation(which, moments) => result_of_moments(*which, moments),
            Self::Extreme(_, queue) => {
                let first = queue.front();
                first.map_or(Datum::Null, |(_, cell)| cell.datum())
            }
        })
    }
}

fn result_of_sum<'v>(kind: AggregateKind, sum: &Sum) -> Evaluated<'v> {
    Ok(match kind {
        AggregateKind::Total => Datum::real(sum.total()),
        _ if sum.count() == 0 => Datum::Null,
        AggregateKind::Average => Datum::real(sum.total() / sum.count() as f64),
        _ if sum.has_reals() => Datum::real(sum.total()),
        // Beyond 64 bits: SQLite says so.
        _ => Datum::Integer(sum.integer().ok_or(NotCompilable)?),
    })
}

fn result_of_moments<'v>(which: Deviation, moments: &Moments) -> Datum<'v> {
    moments.finish(which).map_or(Datum::Null, Datum::real)
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

    #[inline]
    fn order(self, other: Self) -> Result<Ordering, NotCompilable> {
        match (self, other) {
            (Self::Real(one), Self::Real(two)) => one.partial_cmp(&two).ok_or(NotCompilable),
            (Self::Integer(one), Self::Integer(two)) => Ok(one.cmp(&two)),
            (one, two) => one.datum().order(&two.datum()),
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
    /// A variance or a standard deviation.
    Deviation(Deviation),
    Extreme(Ordering),
}

/// An aggregate during one evaluation over all rows, where no cells are kept.
pub(super) enum Accumulator<'v> {
    Count(i64),
    Sum(AggregateKind, Sum),
    Deviation(Deviation, Moments),
    Extreme(Ordering, Datum<'v>),
}

impl<'v> Accumulator<'v> {
    pub(super) fn new(kind: AggregateKind) -> Self {
        match kind {
            AggregateKind::Rows | AggregateKind::Count => Self::Count(0),
            AggregateKind::Extreme(wanted) => Self::Extreme(wanted, Datum::Null),
            AggregateKind::Deviation(which) => Self::Deviation(which, Moments::default()),
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
                Datum::Integer(number) => sum.add_integer(number),
                Datum::Real(number) => sum.add_real(number),
                _ => return Err(NotCompilable),
            },
            Self::Deviation(_, moments) => match value {
                Datum::Integer(number) => moments.add(number as f64),
                Datum::Real(number) => moments.add(number),
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

    /// The result.
    pub(super) fn finish(self) -> Evaluated<'v> {
        Ok(match self {
            Self::Count(count) => Datum::Integer(count),
            Self::Extreme(_, best) => best,
            Self::Sum(kind, sum) => return result_of_sum(kind, &sum),
            Self::Deviation(which, moments) => result_of_moments(which, &moments),
        })
    }
}
