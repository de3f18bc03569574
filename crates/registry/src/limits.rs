//! The bounds of a SPARQL query: its limits, its interrupt, and its errors.

use std::fmt;
use std::sync::Arc;

/// The limits of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparqlLimits {
    /// Maximum length of a query in bytes; default 16 KiB, far above what people and programs
    /// write.
    pub query_bytes: usize,
    /// Maximum number of rows or triples of an answer; default 10,000. More is an error; use LIMIT.
    pub rows: usize,
    /// Maximum size of all terms of an answer in bytes; default 16 MiB.
    pub result_bytes: usize,
    /// Maximum number of steps: index entries visited, rows made and terms read; default 20
    /// million, some seconds of one core.
    pub steps: u64,
    /// Maximum memory of a query for joins, sorting and grouping in bytes, as estimated; default 64
    /// MiB.
    pub memory_bytes: u64,
}

impl Default for SparqlLimits {
    fn default() -> Self {
        Self {
            query_bytes: 16 * 1024,
            rows: 10_000,
            result_bytes: 16 * 1024 * 1024,
            steps: 20_000_000,
            memory_bytes: 64 * 1024 * 1024,
        }
    }
}

/// The room for entities, in bytes as [`crate::Entity::counted_bytes`] counts them. What a change publishes counts
/// for the owners of its entities, whoever makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Of all entities.
    pub total_bytes: usize,
    /// Of those of the entity's owner.
    pub owner_bytes: usize,
    /// Maximum number of entities of the entity's owner.
    pub owner_entities: usize,
}

impl Default for Room {
    /// No limit.
    fn default() -> Self {
        Self {
            total_bytes: usize::MAX,
            owner_bytes: usize::MAX,
            owner_entities: usize::MAX,
        }
    }
}

/// Decides when a query must end: at a deadline, when its client disconnects, at shutdown.
/// Evaluated every few hundred steps.
#[derive(Clone)]
pub struct Interrupt(Arc<dyn Fn() -> bool + Send + Sync>);

impl Interrupt {
    /// Never interrupts; only the limits end the query.
    #[must_use]
    pub fn never() -> Self {
        Self(Arc::new(|| false))
    }

    /// Interrupts as soon as `ended` returns true, such as `move || Instant::now() >= deadline`.
    pub fn when(ended: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(ended))
    }

    pub(crate) fn ended(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}

/// The reason why a query has no answer. The caller can fix all except [`SparqlError::Evaluation`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SparqlError {
    /// The query is not SPARQL 1.1.
    #[error("cannot parse the query: {0}")]
    Syntax(String),
    /// The query uses a part of SPARQL that is not supported.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The query, its work or its answer exceeds a limit.
    #[error("the query exceeds the limit of {limit}: {value}")]
    Limit {
        /// Name of the limit.
        limit: &'static str,
        /// Its value.
        value: u64,
    },
    /// The caller's [`Interrupt`] ended the query.
    #[error("the query exceeded its time limit")]
    Interrupted,
    /// The format cannot hold the answer.
    #[error("the answer cannot be written as {media_type}: {reason}")]
    Unwritable {
        /// The format.
        media_type: &'static str,
        /// Why not.
        reason: String,
    },
    /// The evaluator failed.
    #[error("the query failed: {0}")]
    Evaluation(String),
}
