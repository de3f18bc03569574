//! SPARQL 1.1 SELECT and ASK, bounded, over the triples that the requester may see.
//!
//! SERVICE and update requests are excluded on purpose: a query never fetches or changes anything.
//! FROM, CONSTRUCT and DESCRIBE are not supported. Without ORDER BY, rows have no defined order.
//!
//! A query that exceeds a limit ends with an error that names the limit. This module has no clock:
//! the caller's [`Interrupt`] decides about time.

use std::collections::HashSet;
use std::sync::Arc;

use chappe_identity::Principal;
use oxrdf::{Literal, NamedNode, Term, Variable};
use spareval::{QueryEvaluator, QueryResults};
use spargebra::{Query, SparqlParser};

use crate::graphs::Dataset;
use crate::limits::{Interrupt, SparqlError, SparqlLimits};
use crate::plan::Planner;
use crate::state::State;
use crate::view::{Budget, QueryTraits, View};
use crate::{graph_patterns, guard, plan};

/// Stack of a deep query: the deepest that the guard admits needs about an eighth of it in a debug
/// build.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// The answer of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SparqlAnswer {
    /// Answer of a SELECT query.
    Solutions {
        /// The columns.
        variables: Vec<Variable>,
        /// The rows, each as long as `variables`.
        rows: Vec<Vec<Option<Term>>>,
    },
    /// Answer of an ASK query.
    Boolean(bool),
}

impl SparqlAnswer {
    /// The answer as `application/sparql-results+json`.
    ///
    /// # Errors
    /// [`SparqlError::Evaluation`] if writing fails, which does not happen in memory.
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

/// The cost of an answer, for tests, benchmarks and `explain`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Index entries visited.
    pub entries: u64,
    /// All steps: entries, rows made, terms read.
    pub steps: u64,
}

fn over(limit: &'static str, value: usize) -> SparqlError {
    SparqlError::Limit {
        limit,
        value: value as u64,
    }
}

/// Answers a query and returns its cost.
pub(crate) fn run(
    state: &Arc<State>,
    text: &str,
    (principal, owners): (&Principal, Option<&[String]>),
    limits: &SparqlLimits,
    interrupt: &Interrupt,
) -> Result<(SparqlAnswer, Cost), SparqlError> {
    if text.len() > limits.query_bytes {
        return Err(over("query bytes", limits.query_bytes));
    }
    let checked = guard::check(text)?;
    let asked = QueryRun {
        state,
        text: &checked.text,
        principal,
        owners,
        limits,
        interrupt,
    };
    if checked.small
        && let Some(answer) = asked.answer(true)
    {
        return answer;
    }
    let failed = |reason: String| Err(SparqlError::Evaluation(reason));
    match with_stack(|| asked.answer(false)) {
        Ok(Some(answer)) => answer,
        Ok(None) => failed(WITHOUT_ANSWER.to_owned()),
        Err(reason) => failed(reason),
    }
}

const WITHOUT_ANSWER: &str = "the thread of the query ended without an answer";

/// Runs on a large stack of its own; the pages that are not touched cost nothing.
fn with_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("sparql".to_owned())
            .stack_size(STACK_BYTES);
        match thread.spawn_scoped(scope, work) {
            Err(error) => Err(format!("cannot start a thread for the query: {error}")),
            Ok(thread) => thread.join().map_err(|_| WITHOUT_ANSWER.to_owned()),
        }
    })
}

/// A query with its limits and data.
#[derive(Clone, Copy)]
struct QueryRun<'a> {
    state: &'a Arc<State>,
    text: &'a str,
    principal: &'a Principal,
    /// Only what their entities bring, if that is asked for.
    owners: Option<&'a [String]>,
    limits: &'a SparqlLimits,
    interrupt: &'a Interrupt,
}

impl QueryRun<'_> {
    /// The answer; `None` if it may need more than a `little` stack.
    fn answer(self, little: bool) -> Option<Result<(SparqlAnswer, Cost), SparqlError>> {
        let (query, traits) = match parse(self.text) {
            Ok((_, traits)) if little && !traits.small => return None,
            Ok(parsed) => parsed,
            Err(error) => return Some(Err(error)),
        };
        let budget = Budget::new(self.limits, self.interrupt, traits);
        let dataset = Dataset {
            owners: self.owners.map(<[_]>::to_vec),
            ..Dataset::default()
        };
        let view = View::new(self.state, self.principal, &dataset, Arc::clone(&budget));
        let query = planned(query, &view);
        let answer = evaluate(&query, view, &budget, self.limits);
        let cost = Cost {
            entries: budget.entries(),
            steps: budget.steps(),
        };
        // A spent budget appears as various errors; the verdict is the true reason.
        Some(budget.verdict().and(answer).map(|answer| (answer, cost)))
    }
}

/// Parses the query and rejects unsupported parts.
fn parse(text: &str) -> Result<(Query, QueryTraits), SparqlError> {
    let mut query = SparqlParser::new()
        .parse_query(text)
        .map_err(|error| SparqlError::Syntax(error.to_string()))?;
    if query.dataset().is_some() {
        return Err(SparqlError::Unsupported("FROM"));
    }
    let traits = match &mut query {
        Query::Select { pattern, .. } | Query::Ask { pattern, .. } => {
            *pattern = graph_patterns::push(std::mem::take(pattern))?;
            plan::examine(pattern)?
        }
        Query::Construct { .. } => return Err(SparqlError::Unsupported("CONSTRUCT")),
        Query::Describe { .. } => return Err(SparqlError::Unsupported("DESCRIBE")),
    };
    Ok((query, traits))
}

/// The query of a subscription, which is not evaluated yet.
pub(crate) fn parsed(text: &str) -> Result<Query, SparqlError> {
    let limits = SparqlLimits::default();
    if text.len() > limits.query_bytes {
        return Err(over("query bytes", limits.query_bytes));
    }
    let checked = guard::check(text)?;
    let on_large_stack = || parse(&checked.text).map(|(query, _)| query);
    if checked.small {
        return on_large_stack();
    }
    with_stack(on_large_stack).unwrap_or_else(|reason| Err(SparqlError::Evaluation(reason)))
}

fn planned(query: Query, view: &View) -> Query {
    let mut planner = Planner::new(view);
    let nothing = HashSet::new();
    match query {
        Query::Select {
            dataset,
            pattern,
            base_iri,
        } => Query::Select {
            dataset,
            pattern: planner.plan(pattern, &nothing),
            base_iri,
        },
        Query::Ask {
            dataset,
            pattern,
            base_iri,
        } => Query::Ask {
            dataset,
            pattern: planner.plan(pattern, &nothing),
            base_iri,
        },
        other => other,
    }
}

fn evaluator(budget: &Arc<Budget>) -> QueryEvaluator {
    let count = |argument: &[Term]| match argument {
        [Term::Literal(literal)] => literal.value().parse().unwrap_or(0_usize),
        _ => 0,
    };
    let answer = |counted: bool| Some(Term::from(Literal::from(counted)));
    let [step, row, build, probe] = [(); 4].map(|()| Arc::clone(budget));
    let name = NamedNode::new_unchecked;
    QueryEvaluator::new()
        .without_optimizations()
        .with_cancellation_token(budget.token.clone())
        .with_custom_function(name(plan::STEP), move |_| answer(step.step().is_ok()))
        .with_custom_function(name(plan::ROW), move |a| answer(row.row(count(a) as u64)))
        .with_custom_function(name(plan::BUILD), move |a| answer(build.build(count(a))))
        .with_custom_function(name(plan::PROBE), move |a| answer(probe.probe(count(a))))
}

fn evaluate(
    query: &Query,
    view: View,
    budget: &Arc<Budget>,
    limits: &SparqlLimits,
) -> Result<SparqlAnswer, SparqlError> {
    let failed = |error: spareval::QueryEvaluationError| {
        budget
            .verdict()
            .err()
            .unwrap_or_else(|| SparqlError::Evaluation(error.to_string()))
    };
    let evaluator = evaluator(budget);
    match evaluator.prepare(query).execute(view).map_err(failed)? {
        QueryResults::Boolean(value) => Ok(SparqlAnswer::Boolean(value)),
        QueryResults::Graph(_) => Err(SparqlError::Unsupported("an answer that is a graph")),
        QueryResults::Solutions(solutions) => {
            let variables = solutions.variables().to_vec();
            let mut rows = Vec::new();
            let mut bytes = 0_usize;
            for solution in solutions {
                let solution = solution.map_err(failed)?;
                budget.verdict()?;
                if rows.len() >= limits.rows {
                    return Err(over("rows", limits.rows));
                }
                let row: Vec<Option<Term>> = variables
                    .iter()
                    .map(|name| solution.get(name).cloned())
                    .collect();
                let terms = row.iter().flatten().map(crate::entity::term_bytes);
                bytes = bytes.saturating_add(terms.sum());
                if bytes > limits.result_bytes {
                    return Err(over("result bytes", limits.result_bytes));
                }
                rows.push(row);
            }
            Ok(SparqlAnswer::Solutions { variables, rows })
        }
    }
}
