//! How a statement is evaluated: compiled, or by SQLite.
//!
//! SQLite checks every statement first, so errors read the same on either path, and names the columns of
//! the result. A statement in the compiled subset is then compiled, and its SQLite instance is dropped;
//! any other statement stays with SQLite, and the plan gives the reason.

use std::fmt;

use crate::compiled::CompiledQuery;
use crate::sqlite::{InterruptHandle, SqliteQuery};
use crate::{Query, QueryError, QueryLimits, QuerySource, Row, StreamSchema, WindowChange};

/// How a statement is evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryPlan {
    /// By a compiled path: about a microsecond for a window of one element.
    Compiled,
    /// By SQLite, for this reason.
    Sqlite {
        /// The part of the statement that is not compiled, as text.
        reason: String,
    },
}

impl fmt::Display for QueryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compiled => f.write_str("compiled"),
            Self::Sqlite { reason } => write!(f, "SQLite: {reason}"),
        }
    }
}

/// Most operations of an evaluation that is short: some 0.2 ms.
const SHORT_COST_MAX: u64 = 20_000;

/// A statement, prepared for the path of its plan.
#[derive(Debug)]
pub struct PlannedQuery {
    plan: QueryPlan,
    path: Path,
}

#[derive(Debug)]
enum Path {
    Compiled(Box<CompiledQuery>),
    Sqlite(Box<SqliteQuery>),
}

impl PlannedQuery {
    /// Prepares `statement` over `sources`, for results that look like `output`.
    ///
    /// # Errors
    /// As [`SqliteQuery::new`], on either path.
    pub fn new(
        sources: &[QuerySource],
        statement: &str,
        output: &StreamSchema,
        limits: QueryLimits,
    ) -> Result<Self, QueryError> {
        let mut sqlite = SqliteQuery::new(sources, statement, output, limits)?;
        match CompiledQuery::new(sources, statement, output, limits, &mut sqlite) {
            Ok(compiled) => Ok(Self {
                plan: QueryPlan::Compiled,
                path: Path::Compiled(Box::new(compiled)),
            }),
            Err(reason) => Ok(Self {
                plan: QueryPlan::Sqlite { reason },
                path: Path::Sqlite(Box::new(sqlite)),
            }),
        }
    }

    /// The same compiled statement over no elements. Only for a compiled statement.
    pub(crate) fn fresh(&self) -> Option<Self> {
        match &self.path {
            Path::Compiled(query) => Some(Self {
                plan: QueryPlan::Compiled,
                path: Path::Compiled(Box::new(query.fresh())),
            }),
            Path::Sqlite(_) => None,
        }
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &QueryPlan {
        &self.plan
    }

    /// Whether the next evaluation is short: compiled, and the window small at the last one.
    #[must_use]
    pub fn is_short(&self) -> bool {
        match &self.path {
            Path::Compiled(query) => query.cost() <= SHORT_COST_MAX,
            Path::Sqlite(_) => false,
        }
    }

    /// The number of evaluations of a compiled statement that SQLite made.
    #[must_use]
    pub fn sqlite_evaluations(&self) -> u64 {
        match &self.path {
            Path::Compiled(query) => query.sqlite_evaluations(),
            Path::Sqlite(_) => 0,
        }
    }

    /// A handle by which another thread stops a running evaluation of SQLite; `None` for a compiled
    /// statement, which is short.
    #[must_use]
    pub fn interrupt_handle(&self) -> Option<InterruptHandle> {
        match &self.path {
            Path::Compiled(_) => None,
            Path::Sqlite(query) => Some(query.interrupt_handle()),
        }
    }
}

impl Query for PlannedQuery {
    fn evaluate(&mut self, changes: &[WindowChange]) -> Result<Vec<Row>, QueryError> {
        match &mut self.path {
            Path::Compiled(query) => query.evaluate(changes),
            Path::Sqlite(query) => query.evaluate(changes),
        }
    }
}
