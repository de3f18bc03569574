//! The seam of queries, which turn the windows of a virtual sensor into rows.
//!
//! A query receives the changes of each window and returns the rows of its result, typed by the output's
//! schema. [`crate::sqlite::SqliteQuery`] is one implementation; the compiled one must agree with it.

use crate::{FieldType, Quality, StreamSchema, Timestamp, Value, WindowChange};

/// Turns windows into rows.
pub trait Query: Send {
    /// Applies `changes`, one for each source in the order of the sources, and evaluates.
    ///
    /// The changes are applied even when the evaluation fails: the next call continues from them.
    ///
    /// # Errors
    /// A statement that is not allowed, that failed, that was stopped at a limit, or a result that
    /// does not fit the output's schema.
    fn evaluate(&mut self, changes: &[WindowChange]) -> Result<Vec<Row>, QueryError>;
}

/// One source of a query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuerySource {
    /// The name it has in the query.
    pub alias: String,
    /// The schema of its elements.
    pub schema: StreamSchema,
    /// The field that the source selects, if it selects one: when it is of type samples, the table of
    /// samples holds only its samples.
    pub value: Option<String>,
}

/// One row of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// One value for each field of the output's schema, in its order.
    pub values: Vec<Value>,
    /// The source time, if the result has one.
    pub source_time: Option<Timestamp>,
    /// The key, if the result has one.
    pub key: Option<String>,
    /// The quality, if the result has one.
    pub quality: Option<Quality>,
}

/// A query that failed. Faults of the statement are kept apart from limits that stopped it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The statement is not SQL, or names a table or column that does not exist.
    #[error("{message}")]
    Statement {
        /// SQLite's message.
        message: String,
        /// The byte offset in the statement, if known.
        offset: Option<usize>,
    },
    /// The statement uses an operation that a query may not.
    #[error("a query may not {0}")]
    Refused(String),
    /// A limit was reached.
    #[error("the query was stopped at its limit {limit} of {bound}")]
    Limit {
        /// The limit's name.
        limit: &'static str,
        /// Its bound.
        bound: u64,
    },
    /// A table's name may be read as several streams'.
    #[error("{table} may be one of {}", candidates.join(", "))]
    Ambiguous {
        /// The name in the statement.
        table: String,
        /// The unambiguous spelling of each.
        candidates: Vec<String>,
    },
    /// It was interrupted.
    #[error("the query was interrupted")]
    Interrupted,
    /// A declared field is missing from the result.
    #[error("the query has no column {0:?}, which the output declares")]
    Missing(String),
    /// A column that the output does not declare.
    #[error("the query has a column {0:?}, which the output does not declare")]
    Undeclared(String),
    /// A value that does not fit its field.
    #[error("column {column:?} has {found}, but its field has type {}", wanted.name())]
    Type {
        /// The column.
        column: String,
        /// The type of the field.
        wanted: FieldType,
        /// The kind of value found.
        found: &'static str,
    },
    /// An element does not fit a table.
    #[error("an element of {alias:?} does not fit: {why}")]
    Element {
        /// The source.
        alias: String,
        /// The mismatch.
        why: String,
    },
    /// The data could not be read.
    #[error("the stream could not be read: {0}")]
    Read(String),
    /// An error of SQLite itself.
    #[error("SQLite failed: {0}")]
    Engine(String),
}

/// Bounds of one evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryLimits {
    /// Most steps of SQLite's virtual machine. 20 million: 0.1 to 0.3 s of one core (measured on
    /// joins of small tables); steps on texts near the limit of length take longer.
    pub steps: u64,
    /// Most rows of a result. 10,000: more than one slide of a window plausibly produces.
    pub rows: usize,
    /// Most bytes of a result. 16 MiB.
    pub result_bytes: usize,
    /// Longest text, blob or row in bytes. 1 MiB: a waveform stretch of 131,072 samples.
    pub length: i32,
    /// Longest statement in bytes. 32 KiB: it is written by a person.
    pub statement_bytes: i32,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self {
            steps: 20_000_000,
            rows: 10_000,
            result_bytes: 16 << 20,
            length: 1 << 20,
            statement_bytes: 32 << 10,
        }
    }
}

/// Columns of every source in addition to its fields, which a result may set.
pub const RESERVED_COLUMNS: [&str; 6] = [
    "source_time",
    "receive_time",
    "key",
    "stream",
    "sequence",
    "quality",
];

/// The column of a field: its name, with `_` appended if every source has a column of that name.
#[must_use]
pub fn column_name(field: &str) -> String {
    if RESERVED_COLUMNS.contains(&field) || field == "rowid" || field == "oid" || field == "_rowid_"
    {
        return format!("{field}_");
    }
    field.into()
}

impl Quality {
    /// Its name in queries.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Questionable => "questionable",
            Self::Bad => "bad",
        }
    }

    /// The worse of two qualities.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bad, _) | (_, Self::Bad) => Self::Bad,
            (Self::Questionable, _) | (_, Self::Questionable) => Self::Questionable,
            _ => Self::Good,
        }
    }
}

impl StreamSchema {
    /// The common schema of several streams: the fields of all by name, in the order of their first
    /// appearance.
    ///
    /// # Errors
    /// The first field that has different types in these schemas.
    pub fn union<'a>(
        schemas: impl IntoIterator<Item = &'a StreamSchema>,
    ) -> Result<StreamSchema, crate::SchemaError> {
        let mut union = StreamSchema::default();
        for schema in schemas {
            union.key = union.key.or_else(|| schema.key.clone());
            for field in &schema.fields {
                match union.fields.iter().find(|other| other.name == field.name) {
                    None => union.fields.push(field.clone()),
                    Some(other) if other.field_type == field.field_type => {}
                    Some(other) => {
                        return Err(crate::SchemaError::Type {
                            field: field.name.clone(),
                            wanted: other.field_type,
                        });
                    }
                }
            }
        }
        Ok(union)
    }
}
