//! A SQLite connection in which a stranger's statement can do no harm.
//!
//! In memory, never a file: temporary tables too. While a stranger's statement is prepared or runs,
//! an authorizer allows SELECT, reading the tables and views made here, and the functions listed here;
//! no recursion, no attaching, no pragma, no writing, no transaction, no table-valued function except
//! within those views. Steps
//! are counted by a progress handler, lengths bounded by SQLite's own limits. SQLite's heap has one
//! bound for the whole process ([`HEAP_BYTES_MAX`]): a statement that reaches it fails, and so may
//! another one at that moment; there is no bound of memory for each connection.
//!
//! It deliberately has no clock: who has one uses the interrupt handle. A single step is bounded by
//! the limit of length; the built-in functions that take more than linear time are replaced
//! (`functions.rs`).

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::config::DbConfig;
use rusqlite::functions::{Context, SqlFnOutput};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, InterruptHandle, OpenFlags};

use crate::{QueryError, QueryLimits, Value};

/// Most bytes that SQLite may take in this process. 192 MiB: a window at its own limit takes about
/// 64 MiB in tables, and a sort of it as much again.
pub const HEAP_BYTES_MAX: u64 = 192 << 20;

/// Steps between two looks at the budget; reason: the look costs as much as some ten steps.
const STEPS_A_LOOK: i32 = 500;

/// Functions that a statement may call: without effect, at most linear in their input, and repeatable
/// but for those of dates: `date('now')`, and `date()` and `current_date` alike, take the system's
/// clock. A history is asked for by it; a virtual sensor has `source_time`.
pub(super) const FUNCTIONS: &[&str] = &[
    "->",
    "->>",
    "abs",
    "acos",
    "asin",
    "atan",
    "atan2",
    "avg",
    "ceil",
    "char",
    "coalesce",
    "concat",
    "concat_ws",
    "cos",
    "count",
    "cume_dist",
    "current_date",
    "current_time",
    "current_timestamp",
    "date",
    "datediff",
    "datetime",
    "degrees",
    "delta",
    "dense_rank",
    "exp",
    "first",
    "first_value",
    "floor",
    "format",
    "glob",
    "group_concat",
    "hex",
    "if",
    "ifnull",
    "iif",
    "in_unit",
    "instr",
    "interpolate",
    "json_array",
    "json_array_length",
    "json_extract",
    "json_group_array",
    "json_object",
    "json_type",
    "json_valid",
    "julianday",
    "lag",
    "last",
    "last_value",
    "lead",
    "length",
    "like",
    "likelihood",
    "likely",
    "ln",
    "locate",
    "log10",
    "lower",
    "ltrim",
    "lttb",
    "max",
    "min",
    "mod",
    "nmea",
    "nth_value",
    "ntile",
    "nullif",
    "octet_length",
    "percent_rank",
    "pi",
    "pow",
    "power",
    "printf",
    "quote",
    "radians",
    "rank",
    "rate",
    "replace",
    "round",
    "row_number",
    "rtrim",
    "sign",
    "sin",
    "sqrt",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "strftime",
    "string_agg",
    "substr",
    "substring",
    "sum",
    "tan",
    "time",
    "time_bucket",
    "timestampdiff",
    "total",
    "trim",
    "typeof",
    "unicode",
    "unix_timestamp",
    "unixepoch",
    "unlikely",
    "upper",
    "var_pop",
    "var_samp",
    "variance",
];

/// Whether a statement may call the function of this name, in lower case.
#[must_use]
pub fn is_function(name: &str) -> bool {
    FUNCTIONS.binary_search(&name).is_ok()
}

/// The table-valued function of consecutive numbers, over which views are made.
const NUMBERS_MODULE: &str = "generate_series";

/// The name of [`NUMBERS_MODULE`] in a view where its numbers are those of elements.
pub(super) const ELEMENTS_ALIAS: &str = "chappe_elements";

/// Most steps of a constant expression.
const CONSTANT_STEPS: u64 = 100_000;

/// How the names of SQLite's own tables and table-valued functions begin, beyond those that are
/// registered from the start.
const OWN_TABLES: [&str; 5] = ["sqlite_", "pragma_", "json_", "jsonb_", "fts"];

/// A table and a column that a statement reads; the column is empty when only rows are counted.
pub(super) type Reads = BTreeSet<(String, String)>;

/// What is known of a prepared statement.
pub(super) struct Prepared {
    /// Names of the result's columns.
    pub(super) columns: Vec<String>,
    /// What it reads, in lower case; `None` when that is not known.
    pub(super) reads: Option<Reads>,
}

/// The connection.
pub(super) struct Sandbox {
    connection: Connection,
    state: Arc<State>,
    length: u64,
    steps: u64,
}

#[derive(Default)]
struct State {
    /// Whether a stranger's statement is at work, rather than this module's own.
    strict: AtomicBool,
    steps_left: AtomicU64,
    exhausted: AtomicBool,
    /// How often another thread wanted it to end.
    stops: Arc<AtomicU32>,
    /// Stops that were obeyed already.
    stops_obeyed: AtomicU32,
    /// Functions that only the views made here may call.
    own_functions: Mutex<HashSet<String>>,
    tables: Mutex<HashSet<String>>,
    modules: HashSet<String>,
    reads: Mutex<Reads>,
    refused: Mutex<Option<String>>,
}

impl Sandbox {
    /// An empty database under `limits`.
    pub(super) fn open(limits: &QueryLimits) -> Result<Self, QueryError> {
        Self::open_with(limits, Arc::default())
    }

    /// As [`Self::open`], stopped by the same handles as `self` was, when they are used once more.
    pub(super) fn open_another(&self, limits: &QueryLimits) -> Result<Self, QueryError> {
        let other = Self::open_with(limits, self.state.stops.clone())?;
        let obeyed = self.state.stops_obeyed.load(Ordering::Relaxed);
        other.state.stops_obeyed.store(obeyed, Ordering::Relaxed);
        Ok(other)
    }

    fn open_with(limits: &QueryLimits, stops: Arc<AtomicU32>) -> Result<Self, QueryError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_MEMORY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_in_memory_with_flags(flags).map_err(engine)?;
        let modules = configure(&connection, limits).map_err(engine)?;
        super::functions::register(&connection, limits.length).map_err(engine)?;
        let state = Arc::new(State {
            modules,
            stops,
            ..State::default()
        });
        let judge = state.clone();
        connection
            .authorizer(Some(move |context: AuthContext<'_>| judge.judge(&context)))
            .map_err(engine)?;
        let budget = state.clone();
        connection
            .progress_handler(STEPS_A_LOOK, Some(move || budget.is_exhausted()))
            .map_err(engine)?;
        Ok(Self {
            connection,
            state,
            length: u64::try_from(limits.length).unwrap_or(0),
            steps: limits.steps,
        })
    }

    /// Runs this module's own statement, and lets strangers read the table that it makes.
    pub(super) fn create_table(&mut self, name: &str, columns: &str) -> Result<(), QueryError> {
        let statement = format!("create table {}({columns})", quoted(name));
        self.connection.execute_batch(&statement).map_err(engine)?;
        lock(&self.state.tables).insert(name.to_ascii_lowercase());
        Ok(())
    }

    /// Makes a view of `columns` over this module's own functions and numbers, and lets strangers read
    /// it.
    pub(super) fn create_view(
        &mut self,
        name: &str,
        columns: &str,
        select: &str,
    ) -> Result<(), QueryError> {
        let statement = format!("create view {}({columns}) as {select}", quoted(name));
        self.connection.execute_batch(&statement).map_err(engine)?;
        lock(&self.state.tables).insert(name.to_ascii_lowercase());
        Ok(())
    }

    /// Registers a function that only views made here may call.
    pub(super) fn create_function<T: SqlFnOutput>(
        &mut self,
        name: &str,
        arguments: i32,
        function: impl Fn(&Context<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<(), QueryError> {
        let flags = super::functions::FLAGS;
        self.connection
            .create_scalar_function(name, arguments, flags, function)
            .map_err(engine)?;
        lock(&self.state.own_functions).insert(name.to_owned());
        Ok(())
    }

    /// How often a prepared statement reads elements of views made here, in loops of its own each.
    pub(super) fn scans(&mut self, sql: &str) -> Result<usize, QueryError> {
        // Blanks around a statement do not count for its limit of bytes.
        let plan = format!("explain query plan {}", sql.trim());
        let statement = self.connection.prepare(&plan);
        let mut statement = statement.map_err(|error| self.error(error))?;
        let mut rows = statement.query([]).map_err(engine)?;
        let scan = format!("SCAN {ELEMENTS_ALIAS} ");
        let mut scans = 0;
        while let Some(row) = rows.next().map_err(engine)? {
            let detail: String = row.get(3).map_err(engine)?;
            scans += usize::from(detail.starts_with(&scan));
        }
        Ok(scans)
    }

    /// The value of an expression of the stranger's; `None` when it has none.
    pub(super) fn constant(&mut self, expression: &str) -> Option<Value> {
        let mut value = None;
        let sql = format!("select {expression}");
        let take = |row: &rusqlite::Row<'_>| {
            value = row.get_ref(0).ok().map(super::rows::plain);
            Ok(false)
        };
        self.run(&sql, CONSTANT_STEPS, take).ok()?;
        value
    }

    /// Changes tables in one transaction.
    pub(super) fn write(
        &mut self,
        change: impl FnOnce(&Connection) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let execute = |sql: &str| {
            let mut statement = self.connection.prepare_cached(sql)?;
            statement.execute([])
        };
        execute("begin").map_err(engine)?;
        let changed = change(&self.connection);
        let end = if changed.is_ok() {
            "commit"
        } else {
            "rollback"
        };
        execute(end).map_err(engine)?;
        changed
    }

    /// Prepares a stranger's statement.
    pub(super) fn prepare(&mut self, sql: &str) -> Result<Prepared, QueryError> {
        lock(&self.state.reads).clear();
        let strict = Strict::new(&self.state, self.steps);
        let statement = self
            .connection
            .prepare_cached(sql)
            .map_err(|error| self.error(error))?;
        drop(strict);
        if statement.is_explain() != 0 {
            return Err(QueryError::Refused("explain".into()));
        }
        if !statement.readonly() {
            return Err(QueryError::Refused("write".into()));
        }
        if statement.column_count() == 0 {
            return Err(QueryError::Statement {
                message: "it is empty".into(),
                offset: None,
            });
        }
        if statement.parameter_count() != 0 {
            return Err(QueryError::Refused("have parameters".into()));
        }
        let columns = statement.column_names().map(str::to_owned);
        let columns = columns.collect();
        let reads = std::mem::take(&mut *lock(&self.state.reads));
        // The authorizer is not asked about the columns by which a join matches names.
        let words = sql.to_ascii_lowercase();
        let joins_by_name = words.contains("using") || words.contains("natural");
        let reads = (!joins_by_name).then_some(reads);
        Ok(Prepared { columns, reads })
    }

    /// Runs a stranger's statement and hands over its rows until `take` says no.
    pub(super) fn run(
        &mut self,
        sql: &str,
        steps: u64,
        mut take: impl FnMut(&rusqlite::Row<'_>) -> Result<bool, QueryError>,
    ) -> Result<(), QueryError> {
        let _strict = Strict::new(&self.state, steps);
        let mut statement = self
            .connection
            .prepare_cached(sql)
            .map_err(|error| self.error(error))?;
        let mut rows = statement.query([]).map_err(|error| self.error(error))?;
        while let Some(row) = rows.next().map_err(|error| self.error(error))? {
            if !take(row)? {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn interrupt_handle(&self) -> InterruptHandle {
        self.connection.get_interrupt_handle()
    }

    /// Ends the statement that runs, and every later one.
    pub(super) fn stop_handle(&self) -> StopHandle {
        StopHandle {
            stops: self.state.stops.clone(),
            running: self.interrupt_handle(),
        }
    }

    /// Whether a [`StopHandle`] was used.
    pub(super) fn is_stopped(&self) -> bool {
        self.state.is_stopped()
    }

    /// Goes on after it was stopped; the next stop is another one.
    pub(super) fn obey_stops(&self) {
        let stops = self.state.stops.load(Ordering::Relaxed);
        self.state.stops_obeyed.store(stops, Ordering::Relaxed);
    }

    fn error(&self, error: rusqlite::Error) -> QueryError {
        use rusqlite::Error::{MultipleStatement, NulError, SqlInputError, SqliteFailure};
        let (code, message, offset) = match error {
            SqliteFailure(code, message) => {
                let message = message.unwrap_or_else(|| code.to_string());
                (code.code, message, None)
            }
            SqlInputError {
                error, msg, offset, ..
            } => (error.code, msg, usize::try_from(offset).ok()),
            MultipleStatement => {
                return QueryError::Refused("be more than one statement".into());
            }
            NulError(_) => {
                return QueryError::Refused("contain a zero byte".into());
            }
            other => return QueryError::Engine(other.to_string()),
        };
        // SQLite tells a refused function from other errors by its words only.
        if let Some(refused) = lock(&self.state.refused).take() {
            return QueryError::Refused(refused);
        }
        match code {
            ErrorCode::AuthorizationForStatementDenied => QueryError::Refused(message),
            ErrorCode::OperationInterrupted if self.state.exhausted.load(Ordering::Relaxed) => {
                QueryError::Limit {
                    limit: "steps",
                    bound: self.steps,
                }
            }
            ErrorCode::OperationInterrupted => QueryError::Interrupted,
            ErrorCode::TooBig => QueryError::Limit {
                limit: "length",
                bound: self.length,
            },
            ErrorCode::OutOfMemory => heap_limit(),
            _ => QueryError::Statement { message, offset },
        }
    }
}

/// Lets another thread stop a query at any time, also before it runs and while it reads: SQLite's
/// own interrupt is forgotten when no statement is running.
pub struct StopHandle {
    stops: Arc<AtomicU32>,
    running: InterruptHandle,
}

impl StopHandle {
    /// The query fails as interrupted. One that may answer in part then answers from the newest
    /// elements, until it is stopped once more.
    pub fn stop(&self) {
        self.stops.fetch_add(1, Ordering::Relaxed);
        self.running.interrupt();
    }
}

/// While it lives, the authorizer and the budget take the statement for a stranger's.
struct Strict<'s>(&'s State);

impl<'s> Strict<'s> {
    fn new(state: &'s State, steps: u64) -> Self {
        *lock(&state.refused) = None;
        state.exhausted.store(false, Ordering::Relaxed);
        state.steps_left.store(steps, Ordering::Relaxed);
        state.strict.store(true, Ordering::Relaxed);
        Self(state)
    }
}

impl Drop for Strict<'_> {
    fn drop(&mut self) {
        self.0.strict.store(false, Ordering::Relaxed);
    }
}

impl State {
    fn is_exhausted(&self) -> bool {
        if !self.strict.load(Ordering::Relaxed) {
            return false;
        }
        let left = self.steps_left.load(Ordering::Relaxed);
        let left = left.saturating_sub(u64::from(STEPS_A_LOOK.unsigned_abs()));
        self.steps_left.store(left, Ordering::Relaxed);
        self.exhausted.store(left == 0, Ordering::Relaxed);
        left == 0 || self.is_stopped()
    }

    fn is_stopped(&self) -> bool {
        self.stops.load(Ordering::Relaxed) > self.stops_obeyed.load(Ordering::Relaxed)
    }

    fn judge(&self, context: &AuthContext<'_>) -> Authorization {
        if !self.strict.load(Ordering::Relaxed) {
            return Authorization::Allow;
        }
        if context
            .accessor
            .is_some_and(|view| self.is_own(view, &context.action))
        {
            return Authorization::Allow;
        }
        match self.refuse(&context.action) {
            None => Authorization::Allow,
            Some(what) => {
                *lock(&self.refused) = Some(what);
                Authorization::Deny
            }
        }
    }

    /// Whether `action` is one that a view made here, which is called `view`, consists of. A stranger
    /// may give something else the same name, and reads no more by it than by the view.
    fn is_own(&self, view: &str, action: &AuthAction<'_>) -> bool {
        if !lock(&self.tables).contains(&view.to_ascii_lowercase()) {
            return false;
        }
        match action {
            AuthAction::Read { table_name, .. } => *table_name == NUMBERS_MODULE,
            AuthAction::Function { function_name } => {
                lock(&self.own_functions).contains(*function_name)
            }
            _ => false,
        }
    }

    /// What is refused about `action`, in words; `None` when it is allowed.
    fn refuse(&self, action: &AuthAction<'_>) -> Option<String> {
        match action {
            AuthAction::Select => None,
            AuthAction::Read {
                table_name,
                column_name,
            } => {
                let table = table_name.to_ascii_lowercase();
                if lock(&self.tables).contains(&table) {
                    let column = column_name.to_ascii_lowercase();
                    lock(&self.reads).insert((table, column));
                    return None;
                }
                // A subquery or a common table expression of which no column is used comes with
                // its name and no column; SQLite's own tables and table-valued functions must not
                // pass for one.
                let own = OWN_TABLES.iter().any(|prefix| table.starts_with(prefix));
                let harmless = column_name.is_empty() && !own && !self.modules.contains(&table);
                (!harmless).then(|| format!("read {table:?}"))
            }
            AuthAction::Function { function_name } => {
                let name = function_name.to_ascii_lowercase();
                let known = FUNCTIONS.binary_search(&name.as_str()).is_ok();
                (!known).then(|| format!("call {name}()"))
            }
            AuthAction::Recursive => Some("be recursive".into()),
            AuthAction::Attach { .. } => Some("attach a database".into()),
            AuthAction::Pragma { pragma_name, .. } => Some(format!("use pragma {pragma_name}")),
            _ => Some("do anything but select".into()),
        }
    }
}

/// Sets what can be set once; gives the names of all table-valued functions and virtual tables.
fn configure(connection: &Connection, limits: &QueryLimits) -> rusqlite::Result<HashSet<String>> {
    connection.set_prepared_statement_cache_capacity(64);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    // Lowers the bound only, hence the same whoever comes first.
    connection.execute_batch(&format!(
        "pragma temp_store = memory; pragma hard_heap_limit = {HEAP_BYTES_MAX}"
    ))?;
    rusqlite::vtab::series::load_module(connection)?;
    let mut modules = HashSet::new();
    let mut list = connection.prepare("select name from pragma_module_list")?;
    let mut rows = list.query([])?;
    while let Some(row) = rows.next()? {
        modules.insert(row.get::<_, String>(0)?.to_ascii_lowercase());
    }
    for (limit, bound) in [
        (Limit::SQLITE_LIMIT_LENGTH, limits.length),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, limits.statement_bytes),
        (Limit::SQLITE_LIMIT_COLUMN, 512),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 100),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 32),
        (Limit::SQLITE_LIMIT_VDBE_OP, 100_000),
        (Limit::SQLITE_LIMIT_FUNCTION_ARG, 64),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 64),
        (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 0),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, bound)?;
    }
    Ok(modules)
}

/// `name` as an identifier.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(super) fn engine(error: rusqlite::Error) -> QueryError {
    match error.sqlite_error_code() {
        Some(ErrorCode::OutOfMemory) => heap_limit(),
        _ => QueryError::Engine(error.to_string()),
    }
}

fn heap_limit() -> QueryError {
    QueryError::Limit {
        limit: "heap_bytes",
        bound: HEAP_BYTES_MAX,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_functions_are_sorted_for_the_search() {
        assert!(super::FUNCTIONS.is_sorted());
    }
}
