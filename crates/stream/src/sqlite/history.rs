//! SQL over stored streams.
//!
//! A stream is a table by its name: quoted (`"ward.bed1.ecg"`), or with `_` for every character
//! that a plain identifier cannot have (`ward_bed1_ecg`). Only the streams that the statement reads
//! are loaded, the newest rows of each, within limits; what was left out is said.

use std::sync::Arc;

use rusqlite::InterruptHandle;

use super::rows::{plain, row_bytes};
use super::sandbox::Sandbox;
use super::tables::SourceTable;
use crate::{
    Arrival, QueryError, QueryLimits, QuerySource, Row, StreamElement, StreamSchema, Value,
    WindowChange,
};

/// Bounds of a query over stored streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Bounds of the evaluation; when the rows or bytes of the result are reached, the answer is
    /// cut, not refused.
    pub query: QueryLimits,
    /// Newest elements loaded of each stream. 100,000.
    pub elements: usize,
    /// Most bytes loaded of all streams together. 64 MiB, a third of SQLite's heap.
    pub bytes: usize,
    /// Most streams that one statement reads. 16.
    pub streams: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            query: QueryLimits {
                steps: 200_000_000,
                ..QueryLimits::default()
            },
            elements: 100_000,
            bytes: 64 << 20,
            streams: 16,
        }
    }
}

/// A stream that a query can read.
pub trait History {
    /// Its name.
    fn name(&self) -> &str;
    /// What its elements look like.
    fn schema(&self) -> StreamSchema;
    /// The newest elements, at most `count`, oldest first, and whether there are older ones.
    ///
    /// # Errors
    /// Why they cannot be read, in words.
    fn newest(&self, count: usize) -> Result<(Vec<StreamElement>, bool), String>;
}

/// What a query read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The stream.
    pub stream: String,
    /// How many of its newest elements.
    pub elements: usize,
    /// Whether these were all.
    pub complete: bool,
}

/// What a query gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Value>>,
    /// Whether rows were left out at a limit.
    pub truncated: bool,
    /// What was read.
    pub loaded: Vec<Loaded>,
}

/// A prepared query over stored streams.
pub struct HistoryQuery<'s> {
    sandbox: Sandbox,
    statement: String,
    columns: Vec<String>,
    tables: Vec<(SourceTable, &'s dyn History)>,
    limits: HistoryLimits,
}

impl std::fmt::Debug for HistoryQuery<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HistoryQuery")
            .field("statement", &self.statement)
            .finish_non_exhaustive()
    }
}

impl<'s> HistoryQuery<'s> {
    /// Prepares `statement`; of `streams`, those that it reads become tables.
    ///
    /// # Errors
    /// A statement that is no SQL, not allowed, names what is not there, or reads too many streams.
    pub fn new(
        statement: &str,
        streams: &[&'s dyn History],
        limits: HistoryLimits,
    ) -> Result<Self, QueryError> {
        let mut sandbox = Sandbox::open(&limits.query)?;
        let text = statement.to_ascii_lowercase();
        let mut tables: Vec<(SourceTable, &'s dyn History)> = Vec::new();
        let mut taken: Vec<String> = Vec::new();
        for stream in streams {
            for alias in [stream.name().to_owned(), table_name(stream.name())] {
                // A table for each of thousands of streams would cost more than the query.
                if !text.contains(&alias) || taken.contains(&alias) {
                    continue;
                }
                let source = QuerySource {
                    alias: alias.clone(),
                    schema: stream.schema(),
                    value: None,
                };
                let samples = format!("{alias}_samples");
                if taken.contains(&samples) {
                    continue;
                }
                tables.push((SourceTable::create(&mut sandbox, &source)?, *stream));
                taken.extend([alias, samples]);
            }
        }
        let prepared = sandbox.prepare(statement)?;
        for (table, _) in &mut tables {
            table.keep_only_read(&prepared.reads);
        }
        tables.retain(|(table, _)| table.is_read());
        if tables.len() > limits.streams {
            return Err(super::limit("streams", limits.streams));
        }
        Ok(Self {
            sandbox,
            statement: statement.to_owned(),
            columns: prepared.columns,
            tables,
            limits,
        })
    }

    /// Lets another thread stop the query, which then fails as interrupted.
    #[must_use]
    pub fn interrupt_handle(&self) -> InterruptHandle {
        self.sandbox.interrupt_handle()
    }

    /// Loads and evaluates; takes as long as it takes, on the caller's thread.
    ///
    /// # Errors
    /// A stream that cannot be read, a statement that fails or is stopped at a limit.
    pub fn run(mut self) -> Result<Answer, QueryError> {
        let mut loaded = Vec::new();
        let mut bytes_left = self.limits.bytes;
        for (table, stream) in &self.tables {
            let (change, what) = load(*stream, self.limits.elements, &mut bytes_left)?;
            self.sandbox
                .write(|connection| table.apply(connection, &change))?;
            loaded.push(what);
        }
        let limits = self.limits.query;
        let width = self.columns.len();
        let mut answer = Answer {
            columns: self.columns,
            rows: Vec::new(),
            truncated: false,
            loaded,
        };
        let mut bytes = 0_usize;
        self.sandbox.run(&self.statement, limits.steps, |row| {
            if answer.rows.len() >= limits.rows || bytes > limits.result_bytes {
                answer.truncated = true;
                return Ok(false);
            }
            let mut values = Vec::with_capacity(width);
            for index in 0..width {
                values.push(plain(row.get_ref(index).map_err(super::sandbox::engine)?));
            }
            let row = Row {
                values,
                source_time: None,
                key: None,
                quality: None,
            };
            bytes = bytes.saturating_add(row_bytes(&row));
            answer.rows.push(row.values);
            Ok(true)
        })?;
        Ok(answer)
    }
}

/// Prepares and runs `statement` over `streams`, on the caller's thread.
///
/// # Errors
/// As [`HistoryQuery::new`] and [`HistoryQuery::run`].
pub fn query_streams(
    statement: &str,
    streams: &[&dyn History],
    limits: HistoryLimits,
) -> Result<Answer, QueryError> {
    HistoryQuery::new(statement, streams, limits)?.run()
}

/// The name of a stream as a plain identifier.
#[must_use]
pub fn table_name(stream: &str) -> String {
    stream.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

fn load(
    stream: &dyn History,
    count: usize,
    bytes_left: &mut usize,
) -> Result<(WindowChange, Loaded), QueryError> {
    let (elements, older) = stream.newest(count).map_err(QueryError::Read)?;
    let name: Arc<str> = stream.name().into();
    let mut complete = !older;
    let mut added = Vec::with_capacity(elements.len());
    for (number, element) in elements.into_iter().enumerate().rev() {
        let bytes = element.size_bytes();
        if bytes > *bytes_left {
            complete = false;
            break;
        }
        *bytes_left -= bytes;
        added.push(Arrival {
            number: number as u64,
            stream: name.clone(),
            element: Arc::new(element),
        });
    }
    added.reverse();
    let loaded = Loaded {
        stream: stream.name().to_owned(),
        elements: added.len(),
        complete,
    };
    let removed = Vec::new();
    Ok((WindowChange { added, removed }, loaded))
}
