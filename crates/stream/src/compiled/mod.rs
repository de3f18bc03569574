//! The compiled path: the common statements without SQLite, with SQLite's results.

use crate::{Query, QueryError, QueryLimits, QuerySource, Row, StreamSchema, WindowChange};

/// A compiled statement over the window of one source.
#[derive(Debug)]
pub struct CompiledQuery {}

impl CompiledQuery {
    /// Compiles `statement`, which SQLite has accepted.
    ///
    /// # Errors
    /// In words, what of it is not compiled.
    pub fn new(
        _sources: &[QuerySource],
        _statement: &str,
        _output: &StreamSchema,
        _limits: QueryLimits,
    ) -> Result<Self, String> {
        Err("nothing is compiled yet".to_owned())
    }
}

impl Query for CompiledQuery {
    fn evaluate(&mut self, _changes: &[WindowChange]) -> Result<Vec<Row>, QueryError> {
        Ok(Vec::new())
    }
}
