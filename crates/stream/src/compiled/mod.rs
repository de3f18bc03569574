//! The compiled path: the common statements without SQLite, with SQLite's results to the letter.
//!
//! Most statements of virtual sensors project, test and compute over one source, or add it up. These
//! are parsed (`syntax.rs`), resolved against the source's fields (`resolve.rs`) and evaluated directly
//! on the elements of the window (`expression.rs`, `aggregate.rs`). The parser is our own, small and of
//! the subset only: SQLite's order of precedence is its own, and a general parser would have to be
//! checked against it at every operator.
//!
//! Rules that keep it exact:
//!
//! - SQLite prepares every statement first; statements that it rejects are not compiled.
//! - The kinds of value of each expression follow from the schema. Conversions with results
//!   specific to SQLite (texts as numbers, reals as texts, the affinity of casts) are refused.
//! - SQLite reads the numbers that the statement has.
//! - Possible errors of SQLite, and roundings at the edge, are not decided here: SQLite, which is
//!   opened for this, then evaluates the same window, and the evaluation is counted
//!   ([`CompiledQuery::sqlite_evaluations`]).
//! - A property test compares both paths (`tests/compiled_like_sqlite.rs`).
//!
//! Aggregates follow the window: an evaluation costs the change, not the length of the window. Sums are
//! exact on both paths, so a running one differs in no bit.

mod aggregate;
mod datum;
mod expression;
mod like;
mod resolve;
pub(crate) mod syntax;
mod token;

use std::collections::{BTreeSet, VecDeque};

use crate::sqlite::{SqliteQuery, Targets, limit, row_bytes};
use crate::{
    Arrival, Query, QueryError, QueryLimits, QuerySource, Row, StreamSchema, WindowChange,
};
use aggregate::{Accumulator, Aggregate, Cell, Cells};
use datum::{Datum, NotCompilable};
use expression::{Expression, Scope};
use resolve::Program;

/// Most steps of SQLite for one node of an expression and one row; reason: statements that might
/// reach the limit of steps are left to SQLite, which counts them.
const STEPS_A_NODE: u64 = 8;

/// Most bytes of an element in a table in addition to those that it counts itself; reason: elements
/// that might exceed SQLite's limit are left to SQLite.
const TABLE_ROW_BYTES: usize = 8 << 10;

/// Most aggregates that follow the window, with their inputs from each row; reason: 16 to 40 bytes each
/// in a row, at most 32 MB for a window of 100,000 elements. A statement with more is evaluated over the
/// whole window each time.
const CELLS_A_ROW_MAX: usize = 8;

/// A compiled statement over the window of one source.
pub struct CompiledQuery {
    program: Program,
    /// Parts that SQLite might fail to evaluate, anywhere in the statement.
    uncertain: Vec<Expression>,
    /// The same for expressions over aggregates.
    uncertain_totals: Vec<Expression>,
    targets: Targets,
    limits: QueryLimits,
    cost_a_row: u64,
    fields: usize,
    /// The window, by arrival.
    held: VecDeque<Arrival>,
    /// The inputs of the aggregates from the oldest of them, if kept.
    cells: Option<Cells>,
    sqlite: SqliteFallback,
}

/// SQLite as a fallback, for windows that the compiled path cannot evaluate.
struct SqliteFallback {
    sources: Vec<QuerySource>,
    statement: String,
    output: StreamSchema,
    query: Option<Box<SqliteQuery>>,
    /// Elements in its table that may be in the window, by number.
    fed: BTreeSet<u64>,
    /// Elements in its table that have left the window, by number.
    stale: BTreeSet<u64>,
    evaluations: u64,
}

impl std::fmt::Debug for CompiledQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompiledQuery")
            .field("statement", &self.sqlite.statement)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl CompiledQuery {
    /// Compiles `statement`, which `sqlite` has prepared over `sources` for `output`.
    ///
    /// # Errors
    /// The part that is not compiled, in words.
    pub(crate) fn new(
        sources: &[QuerySource],
        statement: &str,
        output: &StreamSchema,
        limits: QueryLimits,
        sqlite: &mut SqliteQuery,
    ) -> Result<Self, String> {
        let [source] = sources else {
            return Err("it has several sources".into());
        };
        let select = syntax::parse(statement)?;
        let mut read_number = |text: &str| sqlite.constant(text).map_err(|error| error.to_string());
        let program = resolve::resolve(&select, source, &mut read_number)?;
        let targets = sqlite.targets().clone();
        if targets.len() != program.columns.len() {
            return Err("its columns are not as SQLite counts them".into());
        }
        let (mut nodes, mut uncertain) = (0_u64, Vec::new());
        program.visit(&mut |expression| {
            nodes += 1;
            if expression.may_fail() {
                uncertain.push(expression.clone());
            }
        });
        if uncertain.iter().any(is_constant) {
            return Err("it has a computation with constants that may fail".into());
        }
        let keeps_cells = |aggregates: &&Vec<Aggregate>| {
            aggregates.len() <= CELLS_A_ROW_MAX && aggregates.iter().all(|one| one.fits_cells)
        };
        let cells = program.aggregates.as_ref().filter(keeps_cells);
        let cells = cells.map(|aggregates| Cells::new(aggregates));
        let (uncertain_totals, uncertain) = uncertain.into_iter().partition(has_aggregate);
        Ok(Self {
            program,
            uncertain,
            uncertain_totals,
            targets,
            limits,
            cost_a_row: nodes + 4,
            fields: source.schema.fields.len(),
            held: VecDeque::new(),
            cells,
            sqlite: SqliteFallback {
                sources: sources.to_vec(),
                statement: statement.to_owned(),
                output: output.clone(),
                query: None,
                fed: BTreeSet::new(),
                stale: BTreeSet::new(),
                evaluations: 0,
            },
        })
    }

    /// The same statement over no elements.
    pub(crate) fn fresh(&self) -> Self {
        let aggregates = self.program.aggregates.as_deref();
        Self {
            program: self.program.clone(),
            uncertain: self.uncertain.clone(),
            uncertain_totals: self.uncertain_totals.clone(),
            targets: self.targets.clone(),
            limits: self.limits,
            cost_a_row: self.cost_a_row,
            fields: self.fields,
            held: VecDeque::new(),
            cells: aggregates.filter(|_| self.cells.is_some()).map(Cells::new),
            sqlite: SqliteFallback {
                sources: self.sqlite.sources.clone(),
                statement: self.sqlite.statement.clone(),
                output: self.sqlite.output.clone(),
                query: None,
                fed: BTreeSet::new(),
                stale: BTreeSet::new(),
                evaluations: 0,
            },
        }
    }

    /// The number of evaluations that SQLite made, because the compiled path could not.
    #[must_use]
    pub fn sqlite_evaluations(&self) -> u64 {
        self.sqlite.evaluations
    }

    /// Approximate operations of an evaluation of the current window, of some ten nanoseconds each:
    /// aggregates that follow the window cost the rows that are new.
    #[must_use]
    pub fn cost(&self) -> u64 {
        let known = self.cells.as_ref().map_or(0, Cells::rows);
        self.cost_of(self.held.len().saturating_sub(known))
    }

    fn cost_of(&self, rows: usize) -> u64 {
        let rows = u64::try_from(rows).unwrap_or(u64::MAX);
        rows.saturating_add(1).saturating_mul(self.cost_a_row)
    }

    /// Whether an element might exceed SQLite's limit, or does not belong to the source.
    fn is_odd(&self, arrival: &Arrival) -> bool {
        let bytes = arrival.element.size_bytes() + arrival.stream.len() + TABLE_ROW_BYTES;
        let most = usize::try_from(self.limits.length).unwrap_or(0);
        arrival.element.values.len() != self.fields || bytes > most
    }

    fn apply(&mut self, change: &WindowChange) {
        self.sqlite.forget(&change.removed);
        for number in &change.removed {
            match self.held.front() {
                Some(first) if first.number == *number => {
                    self.held.pop_front();
                    self.forget(0);
                }
                _ => {
                    if let Ok(at) = self.held.binary_search_by_key(number, |a| a.number) {
                        self.held.remove(at);
                        self.forget(at);
                    }
                }
            }
        }
        for arrival in &change.added {
            if self
                .held
                .back()
                .is_none_or(|last| last.number < arrival.number)
            {
                self.held.push_back(arrival.clone());
                continue;
            }
            self.cells.iter_mut().for_each(Cells::clear);
            let at = self.held.partition_point(|a| a.number < arrival.number);
            match self.held.get_mut(at) {
                // A window that is passed completely.
                Some(known) if known.number == arrival.number => *known = arrival.clone(),
                _ => self.held.insert(at, arrival.clone()),
            }
        }
    }

    /// Takes a removed row out of the aggregates.
    fn forget(&mut self, at: usize) {
        if let Some(cells) = &mut self.cells
            && cells.remove(at).is_err()
        {
            cells.clear();
        }
    }

    /// The result rows for the current window.
    fn rows(&mut self) -> Result<Result<Vec<Row>, QueryError>, NotCompilable> {
        let steps = self.cost_of(self.held.len());
        if steps.saturating_mul(STEPS_A_NODE) > self.limits.steps {
            return Err(NotCompilable);
        }
        match &self.program.aggregates {
            None => self.plain_rows(),
            Some(_) => {
                let mut cells = self.cells.take();
                let row = self.aggregated_row(cells.as_mut());
                self.cells = cells;
                row
            }
        }
    }

    fn plain_rows(&self) -> Result<Result<Vec<Row>, QueryError>, NotCompilable> {
        let mut rows = Vec::new();
        let mut bytes = 0_usize;
        for arrival in &self.held {
            let scope = self.scope(Some(arrival), &[]);
            if !self.counts(scope)? {
                continue;
            }
            if rows.len() >= self.limits.rows {
                return Ok(Err(limit("rows", self.limits.rows)));
            }
            let row = match self.row(scope)? {
                Ok(row) => row,
                Err(error) => return Ok(Err(error)),
            };
            bytes = bytes.saturating_add(row_bytes(&row));
            if bytes > self.limits.result_bytes {
                return Ok(Err(limit("result_bytes", self.limits.result_bytes)));
            }
            rows.push(row);
        }
        Ok(Ok(rows))
    }

    fn aggregated_row(
        &self,
        cells: Option<&mut Cells>,
    ) -> Result<Result<Vec<Row>, QueryError>, NotCompilable> {
        let aggregates = self.program.aggregates.as_deref().unwrap_or_default();
        let results = match cells {
            Some(cells) => {
                let followed = self.follow(aggregates, cells);
                if followed.is_err() {
                    // A row may have been added in part.
                    cells.clear();
                }
                followed?
            }
            None => self.aggregate(aggregates)?,
        };
        let scope = self.scope(None, &results);
        for expression in &self.uncertain_totals {
            expression.evaluate(scope)?;
        }
        let row = match self.row(scope)? {
            Ok(row) => row,
            Err(error) => return Ok(Err(error)),
        };
        if row_bytes(&row) > self.limits.result_bytes {
            return Ok(Err(limit("result_bytes", self.limits.result_bytes)));
        }
        if self.limits.rows == 0 {
            return Ok(Err(limit("rows", 0)));
        }
        Ok(Ok(vec![row]))
    }

    /// Adds the rows that are not yet in `cells`; returns the aggregates.
    fn follow(
        &self,
        aggregates: &[Aggregate],
        cells: &mut Cells,
    ) -> Result<Vec<Datum<'static>>, NotCompilable> {
        for arrival in self.held.range(cells.rows()..) {
            let scope = self.scope(Some(arrival), &[]);
            let mut row = [Cell::Nothing; CELLS_A_ROW_MAX];
            if self.counts(scope)? {
                for (cell, aggregate) in row.iter_mut().zip(aggregates) {
                    *cell = aggregate.cell(scope)?;
                }
            }
            cells.push(arrival.number, row)?;
        }
        cells.results()
    }

    /// The aggregates over all rows.
    fn aggregate<'s>(
        &'s self,
        aggregates: &'s [Aggregate],
    ) -> Result<Vec<Datum<'s>>, NotCompilable> {
        let made = aggregates.iter().map(|one| Accumulator::new(one.kind));
        let mut accumulators: Vec<Accumulator<'_>> = made.collect();
        for arrival in &self.held {
            let scope = self.scope(Some(arrival), &[]);
            if !self.counts(scope)? {
                continue;
            }
            for (accumulator, aggregate) in accumulators.iter_mut().zip(aggregates) {
                match &aggregate.argument {
                    None => accumulator.row(),
                    Some(argument) => accumulator.add(argument.evaluate(scope)?)?,
                }
            }
        }
        accumulators.into_iter().map(Accumulator::finish).collect()
    }

    fn scope<'s>(&self, row: Option<&'s Arrival>, aggregates: &'s [Datum<'s>]) -> Scope<'s> {
        Scope {
            row,
            aggregates,
            length: usize::try_from(self.limits.length).unwrap_or(0),
        }
    }

    /// Whether a row meets the condition.
    fn counts(&self, scope: Scope<'_>) -> Result<bool, NotCompilable> {
        // SQLite may evaluate them before a condition that would skip them.
        for expression in &self.uncertain {
            expression.evaluate(scope)?;
        }
        match &self.program.condition {
            None => Ok(true),
            Some(condition) => Ok(condition.truth(scope)? == Some(true)),
        }
    }

    fn row(&self, scope: Scope<'_>) -> Result<Result<Row, QueryError>, NotCompilable> {
        let mut row = self.targets.empty_row();
        for (index, expression) in self.program.columns.iter().enumerate() {
            let set = match expression.evaluate(scope)? {
                Datum::Samples(samples) => self.targets.set_samples(&mut row, index, samples),
                other => self
                    .targets
                    .set(&mut row, index, other.value_ref().ok_or(NotCompilable)?),
            };
            if let Err(error) = set {
                return Ok(Err(error));
            }
        }
        Ok(Ok(row))
    }
}

impl Query for CompiledQuery {
    fn evaluate(&mut self, changes: &[WindowChange]) -> Result<Vec<Row>, QueryError> {
        let [change] = changes else {
            let why = "the statement has one source".to_owned();
            return Err(QueryError::Engine(why));
        };
        if change.added.iter().any(|arrival| self.is_odd(arrival)) {
            let result = self.sqlite.ask(&self.held, change, self.limits);
            if !matches!(
                result,
                Err(QueryError::Element { .. } | QueryError::Engine(_))
            ) {
                self.apply(change);
            }
            return result;
        }
        self.apply(change);
        match self.rows() {
            Ok(rows) => rows,
            Err(NotCompilable) => {
                self.sqlite
                    .ask(&self.held, &WindowChange::default(), self.limits)
            }
        }
    }
}

impl SqliteFallback {
    /// Removes elements that have left the window.
    fn forget(&mut self, numbers: &[u64]) {
        for number in numbers {
            if self.fed.remove(number) {
                self.stale.insert(*number);
            }
        }
    }

    /// Evaluates `held` with a change that is not yet applied to it.
    fn ask(
        &mut self,
        held: &VecDeque<Arrival>,
        change: &WindowChange,
        limits: QueryLimits,
    ) -> Result<Vec<Row>, QueryError> {
        self.evaluations += 1;
        self.forget(&change.removed);
        let query = match &mut self.query {
            Some(query) => query,
            none => {
                let made = SqliteQuery::new(&self.sources, &self.statement, &self.output, limits)?;
                none.insert(Box::new(made))
            }
        };
        let removed = |number: &u64| change.removed.binary_search(number).is_ok();
        let wanted = held.iter().filter(|arrival| !removed(&arrival.number));
        let wanted: Vec<&Arrival> = wanted.chain(&change.added).collect();
        let numbers: BTreeSet<u64> = wanted.iter().map(|arrival| arrival.number).collect();
        let step = WindowChange {
            added: wanted
                .into_iter()
                .filter(|arrival| !self.fed.contains(&arrival.number))
                .cloned()
                .collect(),
            removed: {
                let mut removed = std::mem::take(&mut self.stale);
                removed.extend(self.fed.difference(&numbers));
                removed.into_iter().collect()
            },
        };
        let result = query.evaluate(&[step]);
        match &result {
            Err(QueryError::Element { .. } | QueryError::Engine(_)) => {
                // The contents of its table are uncertain now.
                self.query = None;
                self.fed.clear();
                self.stale.clear();
            }
            _ => self.fed = numbers,
        }
        result
    }
}

impl Program {
    /// Calls `visit` with every expression and its parts.
    fn visit(&self, visit: &mut dyn FnMut(&Expression)) {
        let arguments = self.aggregates.iter().flatten();
        let arguments = arguments.filter_map(|aggregate| aggregate.argument.as_ref());
        let all = self.columns.iter().chain(&self.condition);
        all.chain(arguments).for_each(|one| one.visit(visit));
    }
}

fn is_constant(expression: &Expression) -> bool {
    let mut constant = true;
    expression.visit(&mut |part| {
        constant &= !matches!(part, Expression::Column(_) | Expression::Aggregate(_));
    });
    constant
}

fn has_aggregate(expression: &Expression) -> bool {
    let mut found = false;
    expression.visit(&mut |part| found |= matches!(part, Expression::Aggregate(_)));
    found
}
