//! SPARQL 1.1 queries, bounded, over the triples that the requester may see.
//!
//! SERVICE and update requests are excluded on purpose: a query never fetches or changes anything.
//! FROM chooses among the visible graphs. DESCRIBE answers with the concise bounded description of
//! each node: its triples, and those of the blank nodes that they lead to. Without ORDER BY, rows
//! have no defined order.
//!
//! A query that exceeds a limit ends with an error that names the limit. This module has no clock:
//! the caller's [`Interrupt`] decides about time.

use std::collections::HashSet;
use std::sync::Arc;

use chappe_identity::Principal;
use oxrdf::{Literal, NamedNode, Term};
use spareval::{QueryEvaluator, QueryResults};
use spargebra::algebra::QueryDataset;
use spargebra::{Query, SparqlParser};

use crate::budget::{Budget, QueryTraits};
use crate::graphs::Dataset;
use crate::limits::{Interrupt, SparqlError, SparqlLimits};
use crate::plan::Planner;
use crate::results::SparqlAnswer;
use crate::source::Source;
use crate::state::State;
use crate::view::View;
use crate::{graph_patterns, guard, plan};

/// Stack of a deep query: the deepest that the guard admits needs about an eighth of it in a debug
/// build.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// A query with the choices of its request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparqlRequest {
    /// The query.
    pub query: String,
    /// Keys of entities whose triples are the default graph, `default-graph-uri` of the SPARQL 1.1
    /// Protocol. One that is not visible is empty. If this or `named_graphs` has any, FROM and FROM
    /// NAMED of the query do not count.
    pub default_graphs: Vec<String>,
    /// Keys of entities that are the named graphs, `named-graph-uri` of the protocol.
    pub named_graphs: Vec<String>,
    /// Follow subclasses and subproperties as the ontologies of these owners state them. One that ends in `*` is a
    /// prefix of owners.
    pub inferred_by: Option<Vec<String>>,
    /// Read only what entities of these owners bring; `None`: of all owners.
    pub owners: Option<Vec<String>>,
}

impl From<&str> for SparqlRequest {
    fn from(query: &str) -> Self {
        Self {
            query: query.to_owned(),
            ..Self::default()
        }
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
    request: &SparqlRequest,
    principal: &Principal,
    limits: &SparqlLimits,
    interrupt: &Interrupt,
) -> Result<(SparqlAnswer, Cost), SparqlError> {
    let graphs = request.default_graphs.iter().chain(&request.named_graphs);
    let bytes = graphs.map(String::len).sum::<usize>() + request.query.len();
    if bytes > limits.query_bytes {
        return Err(over("query bytes", limits.query_bytes));
    }
    let checked = guard::check(&request.query)?;
    let asked = QueryRun {
        state,
        text: &checked.text,
        request,
        principal,
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
    request: &'a SparqlRequest,
    principal: &'a Principal,
    limits: &'a SparqlLimits,
    interrupt: &'a Interrupt,
}

impl QueryRun<'_> {
    /// The graphs that the request or the query names.
    fn dataset(self, named: Option<QueryDataset>) -> Dataset {
        let request = self.request;
        let iris = |nodes: Vec<NamedNode>| nodes.into_iter().map(NamedNode::into_string).collect();
        let of_request = !(request.default_graphs.is_empty() && request.named_graphs.is_empty());
        let (default, named) = match named {
            _ if of_request => (
                Some(request.default_graphs.clone()),
                Some(request.named_graphs.clone()),
            ),
            None => (None, None),
            Some(QueryDataset { default, named }) => {
                (Some(iris(default)), Some(iris(named.unwrap_or_default())))
            }
        };
        Dataset {
            default,
            named,
            inferred_by: request.inferred_by.clone(),
            owners: request.owners.clone(),
        }
    }

    /// The answer; `None` if it may need more than a `little` stack.
    fn answer(self, little: bool) -> Option<Result<(SparqlAnswer, Cost), SparqlError>> {
        let parsed = match parse(self.text) {
            Ok(parsed) if little && !parsed.traits.small => return None,
            Ok(parsed) => parsed,
            Err(error) => return Some(Err(error)),
        };
        let budget = Budget::new(self.limits, self.interrupt, parsed.traits);
        let dataset = self.dataset(parsed.dataset);
        let source = Source::new(self.state, self.principal, &dataset, Arc::clone(&budget));
        let view = View::new(source, &dataset);
        let query = planned(parsed.query, &view);
        let answer = evaluate(&query, view, &budget, self.limits);
        let cost = Cost {
            entries: budget.entries(),
            steps: budget.steps(),
        };
        // A spent budget appears as various errors; the verdict is the true reason.
        Some(budget.verdict().and(answer).map(|answer| (answer, cost)))
    }
}

/// A query whose graphs are apart.
struct Parsed {
    query: Query,
    dataset: Option<QueryDataset>,
    traits: QueryTraits,
}

/// Parses the query and rejects unsupported parts.
fn parse(text: &str) -> Result<Parsed, SparqlError> {
    let mut query = SparqlParser::new()
        .parse_query(text)
        .map_err(|error| SparqlError::Syntax(error.to_string()))?;
    let (Query::Select {
        pattern, dataset, ..
    }
    | Query::Ask {
        pattern, dataset, ..
    }
    | Query::Construct {
        pattern, dataset, ..
    }
    | Query::Describe {
        pattern, dataset, ..
    }) = &mut query;
    let dataset = dataset.take();
    *pattern = graph_patterns::push(std::mem::take(pattern))?;
    let traits = plan::examine(pattern)?;
    Ok(Parsed {
        query,
        dataset,
        traits,
    })
}

/// The query of a subscription, which is not evaluated yet, without its choice of graphs.
///
/// # Errors
/// Also if its answer is a graph.
pub(crate) fn parsed(text: &str) -> Result<Query, SparqlError> {
    let limits = SparqlLimits::default();
    if text.len() > limits.query_bytes {
        return Err(over("query bytes", limits.query_bytes));
    }
    let checked = guard::check(text)?;
    let on_large_stack = || match parse(&checked.text)?.query {
        Query::Construct { .. } | Query::Describe { .. } => {
            Err(SparqlError::Unsupported("a subscription to a graph"))
        }
        query => Ok(query),
    };
    if checked.small {
        return on_large_stack();
    }
    with_stack(on_large_stack).unwrap_or_else(|reason| Err(SparqlError::Evaluation(reason)))
}

fn planned(mut query: Query, view: &View) -> Query {
    let mut planner = Planner::new(view);
    let is_description = matches!(query, Query::Describe { .. });
    let (Query::Select { pattern, .. }
    | Query::Ask { pattern, .. }
    | Query::Construct { pattern, .. }
    | Query::Describe { pattern, .. }) = &mut query;
    let plan = planner.plan(std::mem::take(pattern), &HashSet::new());
    // The evaluator remembers each node that it describes.
    *pattern = match is_description {
        true => plan::held(plan),
        false => plan,
    };
    if planner.has_open_path {
        view.hold_pairs();
    }
    query
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
        QueryResults::Graph(triples) => {
            let mut graph = Vec::new();
            let mut bytes = 0_usize;
            for triple in triples {
                let triple = triple.map_err(failed)?;
                budget.verdict()?;
                if graph.len() >= limits.rows {
                    return Err(over("triples", limits.rows));
                }
                bytes = bytes.saturating_add(crate::entity::triple_bytes(&triple));
                if bytes > limits.result_bytes {
                    return Err(over("result bytes", limits.result_bytes));
                }
                graph.push(triple);
            }
            Ok(SparqlAnswer::Graph(graph))
        }
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
