//! SQL over stored streams.
//!
//! A stream is a table by its name: quoted (`"ward.bed1.ecg"`), or with `_` for every character
//! that a plain identifier cannot have (`ward_bed1_ecg`). Its samples are the table of this name with
//! `_samples` after it. A name that is exactly a stream's is that stream; a plain name that may be
//! several streams' is refused. A former name of a stream refers to it as well, and the answer says so.
//!
//! All that is kept is asked for, in one of three ways:
//!
//! 1. Aggregates over one stream, also of buckets of time, are evaluated in one pass (`aggregate.rs`).
//! 2. A statement that reads streams several times, as a join does, has them loaded into tables where
//!    they fit into [`HistoryLimits`], so that SQLite can make indexes.
//! 3. Otherwise a stream is a view, whose rows SQLite reads from the log as it goes (`view.rs`). Memory
//!    does not depend on the length of the stream. Conditions on time and number, and an order with a
//!    limit, are passed to the log's index when the statement reads one stream once (`bounds.rs`).
//!
//! A query that is stopped at a limit (time, steps, memory) is an error. One that allows a partial
//! answer is then answered from the newest elements within the limits, and the answer says so.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::aggregate::{AggregatePlan, Failure};
use super::bounds::{self, Bounds, column};
use super::function_table::FunctionTable;
#[cfg(doc)]
use super::function_table::table_calls;
use super::names::{former_name, resolve};
use super::rows::{plain, row_bytes};
use super::sandbox::{Prepared, Sandbox, StopHandle};
use super::tables::{Part, SourceTable};
use super::view::{Cursor, Seen};
use crate::compiled::syntax::parse_restriction;
use crate::store::records::Records;
use crate::{
    Arrival, QueryError, QueryLimits, QuerySource, Row, Scan, StoreError, StreamElement, StreamLog,
    StreamSchema, Timestamp, Value, WindowChange,
};

/// Elements from which is estimated how many fit into a partial answer.
const SAMPLE_ELEMENTS: u64 = 64;

/// Bounds of a query over stored streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Bounds of the evaluation. When the rows of the result are reached, the answer is cut, not
    /// refused; when its bytes are, only an answer that may be partial is. 20,000 million steps:
    /// minutes of a core, for whoever has a clock uses the [`StopHandle`].
    pub query: QueryLimits,
    /// Most elements of a stream in a table. 100,000. A stream with more is read from the log while
    /// the statement runs.
    pub elements: u64,
    /// Most bytes in tables, of all streams together. 64 MiB, a third of SQLite's heap.
    pub bytes: usize,
    /// Most streams that one statement reads. 16.
    pub streams: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            query: QueryLimits {
                steps: 20_000_000_000,
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
    /// Where the query is stopped at a limit, an answer from the newest elements; otherwise that is an
    /// error.
    pub allows_partial: bool,
}

/// What a query read of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The stream.
    pub stream: String,
    /// The former name by which the statement names it.
    pub former_name: Option<String>,
    /// How many elements: its newest when not all were read. Rows that the statement did not need
    /// may not have been read.
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
    prepared: Prepared,
    sources: Vec<Source<'s>>,
    /// How often the statement reads elements, in loops of its own each.
    scans: usize,
    limits: HistoryLimits,
}

/// A stream with the tables that the statement names.
struct Source<'s> {
    stream: &'s StreamLog,
    /// Its name in the answer.
    name: Arc<str>,
    /// The former name by which the statement names it.
    former_name: Option<String>,
    /// The names in the statement and which tables they are.
    names: Vec<(String, Part)>,
    /// The schema that the tables have.
    schema: StreamSchema,
    /// What its views read from.
    cursor: Cursor,
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
        let schema_of = |name: &str| Some(resolve(name, streams).ok()??.0.schema());
        let statement = &*super::in_unit::complete(statement, &mut { schema_of })?;
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
            let schema = stream.schema();
            let same = |it: &Source<'_>| it.stream.name() == stream.name();
            let index = match sources.iter().position(same) {
                Some(known) if sources[known].schema.fields != schema.fields => {
                    return Err(changed(stream));
                }
                Some(known) => known,
                None if sources.len() >= limits.streams => {
                    return Err(super::limit("streams", limits.streams));
                }
                None => {
                    let cursor = Cursor::new();
                    cursor.create_functions(sandbox, sources.len(), &schema)?;
                    sources.push(Source {
                        stream,
                        name: stream.current_name().into(),
                        former_name: None,
                        names: Vec::new(),
                        schema,
                        cursor,
                    });
                    sources.len() - 1
                }
            };
            let source = &mut sources[index];
            let alias = part.source_of(name).to_owned();
            if source.former_name.is_none() {
                source.former_name = former_name(stream, &alias);
            }
            let (cursor, schema) = (&source.cursor, &source.schema);
            cursor.create_view(sandbox, index, &alias, &source.name, schema, part)?;
            source.names.push((alias, part));
            Ok(true)
        })?;
        Ok(Self {
            scans: sandbox.scans(statement)?,
            sandbox,
            statement: statement.to_owned(),
            prepared,
            sources,
            limits,
        })
    }

    /// Lets another thread stop the query, which then fails as interrupted.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        self.sandbox.stop_handle()
    }

    /// Evaluates the statement; takes as long as it takes, on the caller's thread.
    ///
    /// # Errors
    /// A stream that cannot be read, a statement that fails or is stopped at a limit.
    pub fn run(mut self, scope: &Scope) -> Result<Answer, QueryError> {
        let is_limit = |error: &QueryError| {
            matches!(error, QueryError::Limit { .. } | QueryError::Interrupted)
        };
        match self.whole(scope) {
            Err(error) if scope.allows_partial && is_limit(&error) => {
                self.sandbox.obey_stops();
                let newest = self.loaded(scope, true)?;
                newest.ok_or(error)
            }
            answer => answer,
        }
    }

    /// Answers from all elements that are asked for.
    fn whole(&mut self, scope: &Scope) -> Result<Answer, QueryError> {
        if self.sandbox.is_stopped() {
            return Err(QueryError::Interrupted);
        }
        for source in &self.sources {
            if source.stream.schema().fields != source.schema.fields {
                return Err(changed(source.stream));
            }
        }
        if let Some(answer) = self.aggregated(scope)? {
            return Ok(answer);
        }
        if self.scans > 1
            && let Some(answer) = self.loaded(scope, false)?
        {
            return Ok(answer);
        }
        self.streamed(scope)
    }

    /// Answers in one pass without SQLite, if the statement is of that kind.
    fn aggregated(&mut self, scope: &Scope) -> Result<Option<Answer>, QueryError> {
        let [source] = &self.sources[..] else {
            return Ok(None);
        };
        let [(_, Part::Rows)] = source.names[..] else {
            return Ok(None);
        };
        let Some(plan) = AggregatePlan::new(&self.statement, &source.schema) else {
            return Ok(None);
        };
        let records = Records::new(source.stream);
        if records.schema().fields != source.schema.fields {
            return Err(changed(source.stream));
        }
        let mut constants = Constants::new(&self.sandbox, &self.limits.query);
        let mut constant = |expression: &str| constants.evaluate(expression);
        let is_stopped = || self.sandbox.is_stopped();
        let aggregated = plan.run(&records, scope.bounds(), &mut constant, &is_stopped);
        let mut aggregated = match aggregated {
            Ok(aggregated) => aggregated,
            Err(Failure::NotHere) => return Ok(None),
            Err(Failure::Stopped) => return Err(QueryError::Interrupted),
            Err(Failure::Store(error)) => return Err(failed(source.stream, error)),
        };
        let truncated = aggregated.rows.len() > self.limits.query.rows;
        aggregated.rows.truncate(self.limits.query.rows);
        let seen = Seen {
            elements: aggregated.elements,
            numbers: aggregated.numbers,
        };
        Ok(Some(Answer {
            columns: self.prepared.columns.clone(),
            rows: aggregated.rows,
            truncated,
            loaded: vec![source.read(seen)],
        }))
    }

    /// Answers by SQLite, which reads the streams from the log as it goes.
    fn streamed(&mut self, scope: &Scope) -> Result<Answer, QueryError> {
        let bounds = self.restricted(scope);
        for source in &self.sources {
            source.cursor.start(source.stream, &bounds.within);
            if let Some((count, descending)) = bounds.newest {
                source.cursor.narrow(&bounds.within, count, descending);
            }
        }
        let evaluated = evaluate(
            &mut self.sandbox,
            &self.statement,
            &self.prepared.columns,
            &self.limits.query,
            scope.allows_partial,
        );
        let mut loaded = Vec::new();
        for source in &self.sources {
            match source.cursor.end() {
                Ok(seen) => loaded.push(source.read(seen)),
                Err(error) => return Err(failed(source.stream, error)),
            }
        }
        let mut answer = evaluated?;
        answer.loaded = loaded;
        Ok(answer)
    }

    /// The bounds of the statement's condition, when it reads one stream once.
    fn restricted(&self, scope: &Scope) -> Restricted {
        let mut restricted = Restricted {
            within: scope.bounds(),
            newest: None,
        };
        let is_one =
            matches!(&self.sources[..], [source] if matches!(source.names[..], [(_, Part::Rows)]));
        if !is_one || self.scans != 1 {
            return restricted;
        }
        let Some(restriction) = parse_restriction(&self.statement) else {
            return restricted;
        };
        let mut constants = Constants::new(&self.sandbox, &self.limits.query);
        let mut constant = |expression: &str| constants.evaluate(expression);
        let is_exact = match &restriction.condition {
            Some(condition) => restricted.within.narrow(condition, &mut constant),
            None => true,
        };
        if let Some((order, limit)) = restriction.newest
            && is_exact
            && let Some((term, descending)) = order.first()
            && column(term).as_deref() == Some("source_time")
            && let Some(Value::Integer(limit)) = bounds::evaluate(&limit, &mut constant)
            && let Ok(limit) = usize::try_from(limit)
        {
            restricted.newest = Some((limit, *descending));
        }
        restricted
    }

    /// Answers from tables that hold the elements, in which SQLite can make indexes; the newest
    /// elements within the limits when `allows_partial`, otherwise `None` when there are more.
    fn loaded(
        &mut self,
        scope: &Scope,
        allows_partial: bool,
    ) -> Result<Option<Answer>, QueryError> {
        let mut sandbox = self.sandbox.open_another(&self.limits.query)?;
        let mut bytes_left = self.limits.bytes;
        let mut loaded = Vec::new();
        for (index, source) in self.sources.iter().enumerate() {
            let tables = source.tables(&mut sandbox, &self.prepared)?;
            let mut load = Load {
                stream: source.stream,
                name: source.name.clone(),
                former_name: source.former_name.clone(),
                schema: &source.schema,
                tables,
                times: scope.times.clone(),
                allows_partial,
                elements_max: self.limits.elements,
                bytes_max: bytes_left,
                held: VecDeque::new(),
                bytes: 0,
                complete: true,
            };
            if allows_partial {
                // Each stream gets its share, so that the first one does not take it all.
                load.bytes_max /= self.sources.len() - index;
            }
            match load.run(&mut sandbox)? {
                Some(read) => loaded.push(read),
                None => return Ok(None),
            }
            bytes_left = bytes_left.saturating_sub(load.bytes);
        }
        if sandbox.is_stopped() {
            return Err(QueryError::Interrupted);
        }
        let mut answer = evaluate(
            &mut sandbox,
            &self.statement,
            &self.prepared.columns,
            &self.limits.query,
            allows_partial,
        )?;
        answer.loaded = loaded;
        Ok(Some(answer))
    }
}

/// Evaluates constant expressions of a statement, on a connection of their own: a handle may stop the
/// statement's in between. It is opened when there is such an expression.
struct Constants<'q> {
    query: &'q Sandbox,
    limits: &'q QueryLimits,
    own: Option<Sandbox>,
}

impl<'q> Constants<'q> {
    fn new(query: &'q Sandbox, limits: &'q QueryLimits) -> Self {
        Self {
            query,
            limits,
            own: None,
        }
    }

    fn evaluate(&mut self, expression: &str) -> Option<Value> {
        if self.own.is_none() {
            self.own = self.query.open_another(self.limits).ok();
        }
        self.own.as_mut()?.constant(expression)
    }
}

/// What a statement reads of its one stream.
struct Restricted {
    within: Bounds,
    /// How many elements of the order of times are wanted, and whether the greatest come first.
    newest: Option<(usize, bool)>,
}

impl Scope {
    fn bounds(&self) -> Bounds {
        let mut bounds = Bounds::default();
        if let Some(times) = &self.times {
            // The greatest time stands for no bound.
            let last = match times.end.0 {
                i64::MAX => i64::MAX,
                end => end.saturating_sub(1),
            };
            bounds.times = (times.start.0, last);
            bounds.is_empty = times.start >= times.end;
        }
        bounds
    }
}

impl Source<'_> {
    /// The tables that hold its elements.
    fn tables(
        &self,
        sandbox: &mut Sandbox,
        prepared: &Prepared,
    ) -> Result<Vec<SourceTable>, QueryError> {
        let table = |(alias, part): &(String, Part)| {
            let source = QuerySource {
                alias: alias.clone(),
                schema: self.schema.clone(),
                value: None,
            };
            let mut table = SourceTable::create_parts(sandbox, &source, &[*part])?;
            table.drop_unread_columns(prepared.reads.as_ref());
            Ok(table)
        };
        self.names.iter().map(table).collect()
    }

    /// What was read, when nothing that was asked for was left out.
    fn read(&self, seen: Seen) -> Loaded {
        let numbers = seen.numbers.unwrap_or((0, u64::MAX));
        Loaded {
            stream: self.name.to_string(),
            former_name: self.former_name.clone(),
            elements: seen.elements,
            kept: self.stream.kept(),
            complete: true,
            damaged: self.stream.damaged(numbers.0, numbers.1),
        }
    }
}

/// Evaluates `statement`, without what was read.
fn evaluate(
    sandbox: &mut Sandbox,
    statement: &str,
    columns: &[String],
    limits: &QueryLimits,
    allows_partial: bool,
) -> Result<Answer, QueryError> {
    let width = columns.len();
    let mut answer = Answer {
        columns: columns.to_vec(),
        rows: Vec::new(),
        truncated: false,
        loaded: Vec::new(),
    };
    let mut bytes = 0_usize;
    sandbox.run(statement, limits.steps, |row| {
        if bytes > limits.result_bytes && !allows_partial {
            return Err(super::limit("result_bytes", limits.result_bytes));
        }
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
struct Load<'a> {
    stream: &'a StreamLog,
    name: Arc<str>,
    former_name: Option<String>,
    schema: &'a StreamSchema,
    tables: Vec<SourceTable>,
    times: Option<Range<Timestamp>>,
    allows_partial: bool,
    elements_max: u64,
    bytes_max: usize,
    /// Number and bytes of the elements in the tables, oldest first.
    held: VecDeque<(u64, usize)>,
    bytes: usize,
    complete: bool,
}

impl Load<'_> {
    /// What it has loaded; `None` when there is more than the limits allow, and all is wanted.
    fn run(&mut self, sandbox: &mut Sandbox) -> Result<Option<Loaded>, QueryError> {
        let begin = match &self.times {
            Some(_) => 0,
            None => self.begin()?,
        };
        let mut scan = self.stream.scan(begin, self.times.clone());
        while (self.complete || self.allows_partial)
            && let Some(piece) = next_piece(&mut scan)?
        {
            if scan.schema().fields != self.schema.fields {
                return Err(changed(self.stream));
            }
            let added = self.add(sandbox, piece);
            if sandbox.is_stopped() {
                return Err(QueryError::Interrupted);
            }
            added?;
        }
        if !self.complete && !self.allows_partial {
            return Ok(None);
        }
        let numbers = self.held.front().zip(self.held.back());
        let numbers = numbers.map_or((0, u64::MAX), |(first, last)| (first.0, last.0));
        Ok(Some(Loaded {
            stream: self.name.to_string(),
            former_name: self.former_name.clone(),
            elements: self.held.len() as u64,
            kept: self.stream.kept(),
            complete: self.complete,
            damaged: self.stream.damaged(numbers.0, numbers.1),
        }))
    }

    /// About how many bytes an element takes in the tables.
    fn bytes_of(&self, element: &StreamElement) -> usize {
        self.tables
            .iter()
            .map(|table| table.bytes_of(element))
            .sum()
    }

    /// The number to begin with: the first kept, or one from which on about as many elements follow as
    /// the limits allow.
    fn begin(&mut self) -> Result<u64, QueryError> {
        let log = self.stream.log();
        let mut most = self.elements_max;
        if self.allows_partial {
            let mut scan = self.stream.scan(log.newest_from(SAMPLE_ELEMENTS), None);
            let (mut count, mut bytes) = (0, 0);
            while let Some(piece) = next_piece(&mut scan)? {
                count += piece.len();
                let sizes = piece.iter().map(|element| self.bytes_of(element));
                bytes += sizes.sum::<usize>();
            }
            let fit = self.bytes_max.saturating_mul(count) / bytes.max(1);
            most = most.min(fit.max(1) as u64);
        }
        let begin = log.newest_from(most);
        self.complete &= begin <= log.first();
        Ok(begin)
    }

    /// Adds a piece to the tables; the oldest elements make room.
    fn add(&mut self, sandbox: &mut Sandbox, piece: Vec<StreamElement>) -> Result<(), QueryError> {
        let name = &self.name;
        let mut change = WindowChange::default();
        for element in piece {
            let (number, bytes) = (element.position.sequence, self.bytes_of(&element));
            self.held.push_back((number, bytes));
            self.bytes += bytes;
            change.added.push(Arrival {
                number,
                stream: name.clone(),
                element: Arc::new(element),
            });
        }
        while self.held.len() as u64 > self.elements_max || self.bytes > self.bytes_max {
            self.complete = false;
            let Some((number, bytes)) = self.held.pop_front() else {
                break;
            };
            self.bytes -= bytes;
            change.removed.push(number);
        }
        let first = self.held.front().map_or(u64::MAX, |held| held.0);
        change.added.retain(|arrival| arrival.number >= first);
        let mut tables = self.tables.iter();
        sandbox.write(|connection| tables.try_for_each(|table| table.apply(connection, &change)))
    }
}

/// The tables of a stream do not have the columns that its elements have now.
fn changed(stream: &StreamLog) -> QueryError {
    let name = stream.current_name();
    QueryError::Read(format!(
        "the fields of {name} changed while it was read; ask again"
    ))
}

/// Reading a stream failed.
fn failed(stream: &StreamLog, error: StoreError) -> QueryError {
    match error {
        // The schema is newer than the reading.
        StoreError::UnknownVersion(_) => changed(stream),
        error => QueryError::Read(error.to_string()),
    }
}

/// The next piece of a scan.
fn next_piece(scan: &mut Scan) -> Result<Option<Vec<StreamElement>>, QueryError> {
    let piece = scan.next_undamaged(usize::MAX);
    piece.map_err(|error| QueryError::Read(error.to_string()))
}
