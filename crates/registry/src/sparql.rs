//! SPARQL 1.1 SELECT and ASK, bounded, over what the asker may see.
//!
//! Left out on purpose: SERVICE, FROM and update requests (nothing is ever fetched or changed),
//! CONSTRUCT and DESCRIBE. Rows of a query without ORDER BY come in no promised order.
//!
//! A query ends with an error that names the limit it went over. The clock is the caller's:
//! [`Interrupt`] asks it.

use std::fmt;
use std::sync::Arc;

use chappe_identity::Principal;
use oxrdf::{Term, Variable};

use crate::state::State;

/// How much a query may cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SparqlLimits {
    /// Longest query in bytes; default 16 KiB, far above what people and programs write.
    pub query_bytes: usize,
    /// Most rows of an answer; default 10,000. More is an error, LIMIT is the remedy.
    pub rows: usize,
    /// Most bytes of all terms of an answer; default 16 MiB.
    pub result_bytes: usize,
    /// Most steps: index entries visited, rows made and terms looked at; default 20 million, some
    /// seconds of one core.
    pub steps: u64,
    /// Most bytes a query may hold for joins, sorting and grouping; default 64 MiB, by estimate.
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

/// Says when a query has to end: a deadline, a client that went away, a shutdown. Asked every few
/// hundred steps.
#[derive(Clone)]
pub struct Interrupt(Arc<dyn Fn() -> bool + Send + Sync>);

impl Interrupt {
    /// Never; the limits alone end the query.
    #[must_use]
    pub fn never() -> Self {
        Self(Arc::new(|| false))
    }

    /// As soon as `ended` answers true, such as `move || Instant::now() >= deadline`.
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

/// Why a query has no answer. All are the asker's to mend, except [`SparqlError::Evaluation`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SparqlError {
    /// The query is not SPARQL 1.1.
    #[error("the query is not understood: {0}")]
    Syntax(String),
    /// The query asks for something that is not offered.
    #[error("{0} is not offered")]
    NotOffered(&'static str),
    /// The query, its work or its answer went over a limit.
    #[error("the query went over the limit of {limit}: {value}")]
    Limit {
        /// Name of the limit.
        limit: &'static str,
        /// Its value.
        value: u64,
    },
    /// The caller's [`Interrupt`] ended the query.
    #[error("the query was ended by its time limit")]
    Interrupted,
    /// The evaluator failed.
    #[error("the query failed: {0}")]
    Evaluation(String),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SparqlAnswer {
    /// Of a SELECT query.
    Solutions {
        /// The columns.
        variables: Vec<Variable>,
        /// The rows, each as long as `variables`.
        rows: Vec<Vec<Option<Term>>>,
    },
    /// Of an ASK query.
    Boolean(bool),
}

impl SparqlAnswer {
    /// The answer as `application/sparql-results+json`.
    ///
    /// # Errors
    /// [`SparqlError::Evaluation`] when the writer fails, which memory does not.
    pub fn to_json(&self) -> Result<String, SparqlError> {
        use sparesults::{QueryResultsFormat, QueryResultsSerializer};
        let failed = |error: std::io::Error| SparqlError::Evaluation(error.to_string());
        let serializer = QueryResultsSerializer::from_format(QueryResultsFormat::Json);
        let bytes = match self {
            Self::Boolean(value) => serializer
                .serialize_boolean_to_writer(Vec::new(), *value)
                .map_err(failed)?,
            Self::Solutions { variables, rows } => {
                let mut writer = serializer
                    .serialize_solutions_to_writer(Vec::new(), variables.clone())
                    .map_err(failed)?;
                for row in rows {
                    let bound = variables.iter().zip(row);
                    let bound = bound.filter_map(|(name, term)| Some((name, term.as_ref()?)));
                    writer.serialize(bound).map_err(failed)?;
                }
                writer.finish().map_err(failed)?
            }
        };
        String::from_utf8(bytes).map_err(|error| SparqlError::Evaluation(error.to_string()))
    }
}

/// What answering cost, for tests, benchmarks and `explain`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Index entries visited.
    pub entries: u64,
    /// All steps: entries, rows made, terms looked at.
    pub steps: u64,
}

fn over(limit: &'static str, value: usize) -> SparqlError {
    SparqlError::Limit {
        limit,
        value: value as u64,
    }
}

pub(crate) fn run(
    state: &Arc<State>,
    query: &str,
    principal: &Principal,
    limits: &SparqlLimits,
    interrupt: &Interrupt,
) -> Result<SparqlAnswer, SparqlError> {
    if query.len() > limits.query_bytes {
        return Err(over("query bytes", limits.query_bytes));
    }
    let query = spargebra::SparqlParser::new()
        .parse_query(query)
        .map_err(|error| SparqlError::Syntax(error.to_string()))?;
    let dataset = state.dataset(principal);
    let failed = |error: spareval::QueryEvaluationError| SparqlError::Evaluation(error.to_string());
    let evaluator = spareval::QueryEvaluator::new();
    match evaluator
        .prepare(&query)
        .execute(&dataset)
        .map_err(failed)?
    {
        spareval::QueryResults::Boolean(value) => Ok(SparqlAnswer::Boolean(value)),
        spareval::QueryResults::Graph(_) => Err(SparqlError::NotOffered("CONSTRUCT")),
        spareval::QueryResults::Solutions(solutions) => {
            let variables = solutions.variables().to_vec();
            let mut rows = Vec::new();
            for solution in solutions {
                let solution = solution.map_err(failed)?;
                if interrupt.ended() {
                    return Err(SparqlError::Interrupted);
                }
                if rows.len() >= limits.rows {
                    return Err(over("rows", limits.rows));
                }
                rows.push(
                    variables
                        .iter()
                        .map(|name| solution.get(name).cloned())
                        .collect(),
                );
            }
            Ok(SparqlAnswer::Solutions { variables, rows })
        }
    }
}
