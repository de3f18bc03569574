//! SQL over stored streams.
//!
//! A stream is a table by its name: quoted (`"ward.bed1.ecg"`), or with `_` for every character
//! that a plain identifier cannot have (`ward_bed1_ecg`). Its samples are the table of this name with
//! `_samples` after it. A name that is exactly a stream's is that stream; a plain name that may be
//! several streams' is refused.
//!
//! Only the streams that the statement reads are loaded, and of these only the columns that it reads,
//! piece by piece into SQLite's tables. A stream that is larger than the limits is an error; a query
//! that allows a partial answer reads the newest elements within the limits, and the answer says so.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::function_table::FunctionTable;
#[cfg(doc)]
use super::function_table::table_calls;
use super::names::resolve;
use super::rows::{plain, row_bytes};
use super::sandbox::{Prepared, Sandbox, StopHandle};
use super::tables::SourceTable;
use crate::{
    Arrival, QueryError, QueryLimits, QuerySource, Row, Scan, StreamElement, StreamLog,
    StreamSchema, Timestamp, Value, WindowChange,
};

/// Elements from which is estimated how many fit into a partial answer.
const SAMPLE_ELEMENTS: u64 = 64;

/// Bounds of a query over stored streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Bounds of the evaluation; when the rows or bytes of the result are reached, the answer is
    /// cut, not refused.
    pub query: QueryLimits,
    /// Most elements loaded of each stream. 100,000.
    pub elements: u64,
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

/// Which elements of its streams a query reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    /// Those with a source time in this range; all when there is none.
    pub times: Option<Range<Timestamp>>,
    /// Where a stream has more than the limits allow, the newest within them; otherwise that is an
    /// error.
    pub allows_partial: bool,
}

/// What a query read of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The stream.
    pub stream: String,
    /// How many of its newest elements.
    pub elements: u64,
    /// How many elements it keeps, of whatever time.
    pub kept: u64,
    /// Whether all that were asked for were read.
    pub complete: bool,
    /// Damaged elements that may be missing among them.
    pub damaged: u64,
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

impl Answer {
    /// Whether elements that were asked for were not read.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        let mut loaded = self.loaded.iter();
        loaded.any(|loaded| !loaded.complete || loaded.damaged > 0)
    }
}

/// A prepared query over stored streams.
pub struct HistoryQuery<'s> {
    sandbox: Sandbox,
    statement: String,
    columns: Vec<String>,
    sources: Vec<Source<'s>>,
    limits: HistoryLimits,
}

/// A stream with the tables that the statement names.
struct Source<'s> {
    stream: &'s StreamLog,
    tables: Vec<SourceTable>,
    /// The schema that the tables have.
    schema: StreamSchema,
}

impl Source<'_> {
    /// About how many bytes an element takes in the tables.
    fn bytes_of(&self, element: &StreamElement) -> usize {
        self.tables
            .iter()
            .map(|table| table.bytes_of(element))
            .sum()
    }
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
    /// A statement that is no SQL, not allowed, names what is not there or may be several streams, or
    /// reads too many streams.
    pub fn new(
        statement: &str,
        streams: &[&'s StreamLog],
        limits: HistoryLimits,
    ) -> Result<Self, QueryError> {
        Self::with_tables(statement, streams, &[], limits)
    }

    /// As [`HistoryQuery::new`], with the tables of the calls that [`table_calls`] found.
    ///
    /// # Errors
    /// Those of [`HistoryQuery::new`].
    pub fn with_tables(
        statement: &str,
        streams: &[&'s StreamLog],
        tables: &[FunctionTable],
        limits: HistoryLimits,
    ) -> Result<Self, QueryError> {
        let mut sandbox = Sandbox::open(&limits.query)?;
        let mut sources: Vec<Source<'s>> = Vec::new();
        let prepared = prepare(&mut sandbox, statement, |sandbox, name| {
            if let Some(table) = tables.iter().find(|table| table.is_called(name)) {
                table.create(sandbox, name)?;
                return Ok(true);
            }
            let Some((stream, part)) = resolve(name, streams)? else {
                return Ok(false);
            };
            let source = QuerySource {
                alias: part.source_of(name).to_owned(),
                schema: stream.schema(),
                value: None,
            };
            let table = SourceTable::create_parts(sandbox, &source, &[part])?;
            let same = |it: &Source<'_>| it.stream.name() == stream.name();
            match sources.iter().position(same) {
                Some(known) if sources[known].schema.fields != source.schema.fields => {
                    return Err(changed(stream));
                }
                Some(known) => sources[known].tables.push(table),
                None if sources.len() >= limits.streams => {
                    return Err(super::limit("streams", limits.streams));
                }
                None => sources.push(Source {
                    stream,
                    tables: vec![table],
                    schema: source.schema,
                }),
            }
            Ok(true)
        })?;
        for table in sources.iter_mut().flat_map(|source| &mut source.tables) {
            table.drop_unread_columns(prepared.reads.as_ref());
        }
        Ok(Self {
            sandbox,
            statement: statement.to_owned(),
            columns: prepared.columns,
            sources,
            limits,
        })
    }

    /// Lets another thread stop the query, which then fails as interrupted.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        self.sandbox.stop_handle()
    }

    /// Loads and evaluates; takes as long as it takes, on the caller's thread.
    ///
    /// # Errors
    /// A stream that cannot be read or has more than the limits allow, a statement that fails or is
    /// stopped at a limit.
    pub fn run(mut self, scope: &Scope) -> Result<Answer, QueryError> {
        let mut loaded = Vec::new();
        let mut bytes_left = self.limits.bytes;
        for (index, source) in self.sources.iter().enumerate() {
            let mut load = Load {
                source,
                scope,
                elements_max: self.limits.elements,
                bytes_max: bytes_left,
                held: VecDeque::new(),
                bytes: 0,
                complete: true,
            };
            if scope.allows_partial {
                // Each stream gets its share, so that the first one does not take it all.
                load.bytes_max /= self.sources.len() - index;
            }
            loaded.push(load.run(&mut self.sandbox)?);
            bytes_left = bytes_left.saturating_sub(load.bytes);
        }
        if self.sandbox.is_stopped() {
            return Err(QueryError::Interrupted);
        }
        self.evaluate(loaded)
    }

    fn evaluate(mut self, loaded: Vec<Loaded>) -> Result<Answer, QueryError> {
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

/// Prepares and runs `statement` over all of `streams`, on the caller's thread.
///
/// # Errors
/// As [`HistoryQuery::new`] and [`HistoryQuery::run`].
pub fn query_streams(
    statement: &str,
    streams: &[&StreamLog],
    limits: HistoryLimits,
    scope: &Scope,
) -> Result<Answer, QueryError> {
    HistoryQuery::new(statement, streams, limits)?.run(scope)
}

/// Prepares a statement; each table that SQLite does not find is asked for by its name. `make` says
/// whether it made one.
fn prepare(
    sandbox: &mut Sandbox,
    statement: &str,
    mut make: impl FnMut(&mut Sandbox, &str) -> Result<bool, QueryError>,
) -> Result<Prepared, QueryError> {
    let mut last = String::new();
    loop {
        let error = match sandbox.prepare(statement) {
            Ok(prepared) => return Ok(prepared),
            Err(error) => error,
        };
        let QueryError::Statement { message, .. } = &error else {
            return Err(error);
        };
        let Some(missing) = message.strip_prefix("no such table: ") else {
            return Err(error);
        };
        let missing = missing.to_ascii_lowercase();
        let name = missing.strip_prefix("main.").unwrap_or(&missing);
        // One that is missing again belongs to a database that is not there.
        if missing == last || !make(sandbox, name)? {
            return Err(error);
        }
        last = missing;
    }
}

/// Fills the tables of one stream, within limits.
struct Load<'a, 's> {
    source: &'a Source<'s>,
    scope: &'a Scope,
    elements_max: u64,
    bytes_max: usize,
    /// Number and bytes of the elements in the tables, oldest first.
    held: VecDeque<(u64, usize)>,
    bytes: usize,
    complete: bool,
}

impl Load<'_, '_> {
    fn run(&mut self, sandbox: &mut Sandbox) -> Result<Loaded, QueryError> {
        let stream = self.source.stream;
        let begin = match &self.scope.times {
            Some(_) => 0,
            None => self.begin()?,
        };
        let mut scan = stream.scan(begin, self.scope.times.clone());
        while let Some(piece) = next_piece(&mut scan)? {
            if scan.schema().fields != self.source.schema.fields {
                return Err(changed(stream));
            }
            let added = self.add(sandbox, piece);
            if sandbox.is_stopped() {
                return Err(QueryError::Interrupted);
            }
            added?;
        }
        let numbers = self.held.front().zip(self.held.back());
        let numbers = numbers.map_or((0, u64::MAX), |(first, last)| (first.0, last.0));
        Ok(Loaded {
            stream: stream.name().to_owned(),
            elements: self.held.len() as u64,
            kept: stream.kept(),
            complete: self.complete,
            damaged: stream.damaged(numbers.0, numbers.1),
        })
    }

    /// The number to begin with: the first kept, or one from which on about as many elements follow as
    /// the limits allow.
    fn begin(&mut self) -> Result<u64, QueryError> {
        let stream = self.source.stream;
        let log = stream.log();
        let mut most = self.elements_max;
        if self.scope.allows_partial {
            let mut scan = stream.scan(log.newest_from(SAMPLE_ELEMENTS), None);
            let (mut count, mut bytes) = (0, 0);
            while let Some(piece) = next_piece(&mut scan)? {
                count += piece.len();
                let sizes = piece.iter().map(|element| self.source.bytes_of(element));
                bytes += sizes.sum::<usize>();
            }
            let fit = self.bytes_max.saturating_mul(count) / bytes.max(1);
            most = most.min(fit.max(1) as u64);
        }
        let begin = log.newest_from(most);
        if begin > log.first() {
            self.overflow("elements", self.elements_max)?;
        }
        Ok(begin)
    }

    /// Adds a piece to the tables; the oldest elements make room where the answer may be partial.
    fn add(&mut self, sandbox: &mut Sandbox, piece: Vec<StreamElement>) -> Result<(), QueryError> {
        let name: Arc<str> = self.source.stream.shared_name();
        let mut change = WindowChange::default();
        for element in piece {
            let (number, bytes) = (element.position.sequence, self.source.bytes_of(&element));
            self.held.push_back((number, bytes));
            self.bytes += bytes;
            change.added.push(Arrival {
                number,
                stream: name.clone(),
                element: Arc::new(element),
            });
        }
        loop {
            let elements = self.held.len() as u64 > self.elements_max;
            if elements {
                self.overflow("elements", self.elements_max)?;
            } else if self.bytes > self.bytes_max {
                self.overflow("bytes", self.bytes_max as u64)?;
            } else {
                break;
            }
            let Some((number, bytes)) = self.held.pop_front() else {
                break;
            };
            self.bytes -= bytes;
            change.removed.push(number);
        }
        let first = self.held.front().map_or(u64::MAX, |held| held.0);
        change.added.retain(|arrival| arrival.number >= first);
        let mut tables = self.source.tables.iter();
        sandbox.write(|connection| tables.try_for_each(|table| table.apply(connection, &change)))
    }

    /// The stream has more than `limit` allows.
    fn overflow(&mut self, limit: &'static str, bound: u64) -> Result<(), QueryError> {
        if !self.scope.allows_partial {
            return Err(QueryError::Incomplete {
                stream: self.source.stream.name().to_owned(),
                limit,
                bound,
            });
        }
        self.complete = false;
        Ok(())
    }
}

/// The tables of a stream do not have the columns that its elements have now.
fn changed(stream: &StreamLog) -> QueryError {
    let name = stream.name();
    QueryError::Read(format!(
        "the fields of {name} changed while it was read; ask again"
    ))
}

/// The next piece of a scan.
fn next_piece(scan: &mut Scan) -> Result<Option<Vec<StreamElement>>, QueryError> {
    let piece = scan.next_undamaged(usize::MAX);
    piece.map_err(|error| QueryError::Read(error.to_string()))
}
