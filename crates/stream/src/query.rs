//! The seam of queries: what a virtual sensor asks to turn windows into rows.
//!
//! A query is told what changed in each window and gives the rows of its result, typed by the
//! output's schema. [`crate::sqlite::SqliteQuery`] is one; a path that compiles the common shapes
//! may stand beside it, and must agree with it.

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
    /// What its elements look like.
    pub schema: StreamSchema,
    /// The field that the source is about, if it is about one: when it is of type samples, the table
    /// of samples holds its samples alone.
    pub value: Option<String>,
}

/// One row of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// One value for each field of the output's schema, in its order.
    pub values: Vec<Value>,
    /// The source time, when the result says one.
    pub source_time: Option<Timestamp>,
    /// The key, when the result says one.
    pub key: Option<String>,
    /// The quality, when the result says one.
    pub quality: Option<Quality>,
}

/// A query that failed. What the statement did wrong is kept apart from what stopped it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The statement is no SQL, or names what is not there.
    #[error("{message}")]
    Statement {
        /// What SQLite says.
        message: String,
        /// Where in the statement, in bytes, if known.
        offset: Option<usize>,
    },
    /// The statement does what a query may not.
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
    /// A stream has more than one query reads, and the answer was not to be a partial one.
    #[error("{stream} has more than the {bound} {limit} that one query reads")]
    Incomplete {
        /// The stream.
        stream: String,
        /// `elements`, or `bytes` of the columns that the statement reads.
        limit: &'static str,
        /// Its bound.
        bound: u64,
    },
    /// A table's name may be read as several streams'.
    #[error("{table} may be one of {}", candidates.join(", "))]
    Ambiguous {
        /// The name in the statement.
        table: String,
        /// How each of them is written so that it is meant.
        candidates: Vec<String>,
    },
    /// Somebody interrupted it.
    #[error("the query was interrupted")]
    Interrupted,
    /// A declared field that the statement does not give.
    #[error("the query gives no column {0:?}, which the output declares")]
    Missing(String),
    /// A column that the output does not declare.
    #[error("the query gives a column {0:?}, which the output does not declare")]
    Undeclared(String),
    /// A value that does not fit its field.
    #[error("column {column:?} gives {found}, its field takes {wanted:?}")]
    Type {
        /// The column.
        column: String,
        /// The type of the field.
        wanted: FieldType,
        /// What was found.
        found: &'static str,
    },
    /// An element that cannot stand in a table.
    #[error("an element of {alias:?} does not fit: {why}")]
    Element {
        /// The source.
        alias: String,
        /// What does not fit.
        why: String,
    },
    /// The data could not be read.
    #[error("the stream could not be read: {0}")]
    Read(String),
    /// SQLite itself failed.
    #[error("SQLite failed: {0}")]
    Engine(String),
}

/// Bounds of one evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryLimits {
    /// Most steps of SQLite's virtual machine. 20 million: 0.1 to 0.3 s of one core (measured on
    /// joins of small tables); steps on texts near the limit of length take longer.
    pub steps: u64,
    /// Most rows of a result. 10,000: what one slide of a window may honestly bring forth.
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

/// Columns that every source has besides its fields, and that a result may set.
pub const RESERVED_COLUMNS: [&str; 6] = [
    "source_time",
    "receive_time",
    "key",
    "stream",
    "sequence",
    "quality",
];

/// The column of a field: its name, with `_` after it when every source has a column of that name.
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

    /// The worse of two.
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
    /// The schema of several streams together: the fields of all by name, in the order of their
    /// first appearance.
    ///
    /// # Errors
    /// The first field that has one type here and another there.
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
