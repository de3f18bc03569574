//! Queries by SQLite, in memory, over the rows of windows or of stored streams.
//!
//! Each source is a table by its alias, with the columns `source_time` and `receive_time`
//! (nanoseconds since 1970), `key`, `stream`, `sequence`, `quality` (`good`, `questionable`, `bad`)
//! and one for each field (with `_` after a name that is taken). Booleans are 0 and 1; a number that
//! is no number (NaN) is null; sample arrays are opaque blobs, which a field of type samples takes.
//!
//! A source with a field of type samples has a second table, `<alias>_samples`, one row a sample:
//! `sequence` of its element, `time` in nanoseconds, `value`, `field`, `stream`, `key`, in the order
//! of arrival. Neither table is filled when the statement does not read it.
//!
//! The result's columns are the output's fields by name; besides, `source_time`, `key` and
//! `quality` are taken when given, and `receive_time`, `stream` and `sequence` passed over, so that
//! `select *` works. A double takes whole numbers; an integer takes numbers without a fraction; a
//! boolean takes 0 and 1; every field takes null; nothing else is converted.
//!
//! `'now'` in a function of dates is the system's clock at the evaluation, not the time of an element:
//! what uses it does not give the same again from the same elements.
//!
//! A statement is one SELECT without recursion, over these tables and listed functions, of which those
//! of time are in `time.rs` (docs/reference/sql.md). What keeps
//! it within bounds is in [`crate::QueryLimits`] and in `sandbox.rs`.

mod aggregate;
mod bounds;
mod dialects;
mod function_table;
mod functions;
mod history;
mod in_unit;
mod names;
pub mod reference;
mod rows;
mod sandbox;
mod sums;
mod tables;
mod time;
mod view;

use std::collections::BTreeSet;

pub use rusqlite::InterruptHandle;

pub use function_table::{FunctionTable, table_calls};
pub(crate) use functions::{MATHEMATICS, MATHEMATICS_OF_TWO};
pub use history::{Answer, HistoryLimits, HistoryQuery, Loaded, Scope, query_streams};
pub use names::table_name;
pub(crate) use rows::{Targets, row_bytes};
pub use sandbox::{HEAP_BYTES_MAX, StopHandle, is_function};
pub use tables::SAMPLES_MAX;

use crate::{Query, QueryError, QueryLimits, QuerySource, Row, StreamSchema, Value, WindowChange};
use sandbox::Sandbox;
use tables::SourceTable;

/// A statement over windows.
pub struct SqliteQuery {
    sandbox: Sandbox,
    statement: String,
    tables: Vec<SourceTable>,
    targets: Targets,
    limits: QueryLimits,
}

impl std::fmt::Debug for SqliteQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteQuery")
            .field("statement", &self.statement)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl SqliteQuery {
    /// Prepares `statement` over `sources`, for results that look like `output`.
    ///
    /// # Errors
    /// A statement that is no SQL, not allowed, names what is not there, or gives other columns.
    pub fn new(
        sources: &[QuerySource],
        statement: &str,
        output: &StreamSchema,
        limits: QueryLimits,
    ) -> Result<Self, QueryError> {
        let mut sandbox = Sandbox::open(&limits)?;
        let mut tables = Vec::new();
        for source in sources {
            tables.push(SourceTable::create(&mut sandbox, source)?);
        }
        let schema_of = |name: &str| {
            let source = sources.iter().find(|source| source.alias == name);
            source.map(|source| source.schema.clone())
        };
        let statement = &*in_unit::complete(statement, &mut { schema_of })?;
        let prepared = sandbox.prepare(statement)?;
        for table in &mut tables {
            table.drop_unread_columns(prepared.reads.as_ref());
        }
        let targets = Targets::new(&prepared.columns, output)?;
        Ok(Self {
            sandbox,
            statement: statement.to_owned(),
            tables,
            targets,
            limits,
        })
    }

    /// What becomes of the columns of its result.
    pub(crate) fn targets(&self) -> &Targets {
        &self.targets
    }

    /// The value that SQLite reads from the text of a number.
    pub(crate) fn constant(&mut self, text: &str) -> Result<Value, QueryError> {
        let mut value = Value::Null;
        let statement = format!("select {text}");
        self.sandbox.run(&statement, self.limits.steps, |row| {
            value = rows::plain(row.get_ref(0).map_err(sandbox::engine)?);
            Ok(false)
        })?;
        Ok(value)
    }

    /// Lets another thread stop a running evaluation, which then fails as interrupted: the bound
    /// on time belongs to whoever has a clock. A single step is at most some hundred milliseconds.
    #[must_use]
    pub fn interrupt_handle(&self) -> InterruptHandle {
        self.sandbox.interrupt_handle()
    }
}

impl Query for SqliteQuery {
    fn evaluate(&mut self, changes: &[WindowChange]) -> Result<Vec<Row>, QueryError> {
        let changed = self.tables.iter().zip(changes);
        self.sandbox.write(|connection| {
            changed
                .into_iter()
                .try_for_each(|(t, c)| t.apply(connection, c))
        })?;
        let (targets, limits) = (&self.targets, &self.limits);
        let mut rows = Vec::new();
        let mut bytes = 0_usize;
        self.sandbox.run(&self.statement, limits.steps, |row| {
            if rows.len() >= limits.rows {
                return Err(limit("rows", limits.rows));
            }
            let row = targets.row(row)?;
            bytes = bytes.saturating_add(rows::row_bytes(&row));
            if bytes > limits.result_bytes {
                return Err(limit("result_bytes", limits.result_bytes));
            }
            rows.push(row);
            Ok(true)
        })?;
        Ok(rows)
    }
}

/// Checks what can be checked of `statement` before the sources' fields are known: that it is one
/// allowed SELECT, and that its tables are those of `aliases`.
///
/// # Errors
/// The first thing that is wrong. [`QueryError::Statement`] with `no such table` for an unknown
/// alias.
pub fn check_statement(
    statement: &str,
    aliases: &[&str],
    limits: &QueryLimits,
) -> Result<(), QueryError> {
    let mut sandbox = Sandbox::open(limits)?;
    let mut made = BTreeSet::new();
    loop {
        let error = match sandbox.prepare(statement) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let QueryError::Statement { message, .. } = &error else {
            return Err(error);
        };
        // The tables of a statement are resolved before its columns.
        if message.starts_with("no such column") && !made.is_empty() {
            return check_single(&mut sandbox, statement);
        }
        let Some(missing) = message.strip_prefix("no such table: ") else {
            return Err(error);
        };
        let missing = missing.to_ascii_lowercase();
        let plain = missing.strip_suffix("_samples").unwrap_or(&missing);
        let Some(alias) = aliases.iter().find(|a| **a == plain || **a == missing) else {
            return Err(error);
        };
        if !made.insert((*alias).to_owned()) {
            return Err(error);
        }
        SourceTable::create_unknown(&mut sandbox, alias)?;
    }
}

/// Checks that nothing but the statement's own end follows its first semicolon: SQLite looks at what
/// follows only once the columns of the first statement are resolved.
fn check_single(sandbox: &mut Sandbox, statement: &str) -> Result<(), QueryError> {
    let statement = statement.trim_end_matches(|c: char| c == ';' || c.is_ascii_whitespace());
    let enclosed = format!("with it as (\n{statement}\n) select 1");
    match sandbox.prepare(&enclosed) {
        Err(QueryError::Statement { message, .. }) if message.contains("syntax error") => {
            Err(QueryError::Refused("be more than one statement".into()))
        }
        _ => Ok(()),
    }
}

pub(crate) fn limit(limit: &'static str, bound: usize) -> QueryError {
    QueryError::Limit {
        limit,
        bound: bound as u64,
    }
}
