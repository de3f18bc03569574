//! Determines the join order of a query.
//!
//! The evaluator runs with its own optimizer off, on algebra that this module has rewritten. Every
//! join that can be is a chain of lateral steps: each is answered from an index with the values
//! bound by the steps before it, in the order of exact counts over the triples that the requester
//! may see. Filters run as soon as their variables are bound. Parts that are held in memory, or
//! make rows without touching an index, are wrapped in a filter that charges them to the query's
//! budget.
//!
//! docs/explanation/decisions/sparql-join-order.md has the reasons and the measurements.

use std::collections::HashSet;

use oxrdf::{Literal, NamedNode, Term, Variable};
use spargebra::algebra::{
    AggregateExpression, AggregateFunction, Expression, Function, GraphPattern,
    PropertyPathExpression,
};
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern};

use crate::budget::QueryTraits;
use crate::dictionary::Id;
use crate::expression;
use crate::limits::SparqlError;
use crate::view::View;

/// Maximum number of triple patterns, paths and tables of a query: each is a recursion in the
/// evaluator.
pub(crate) const MAX_PATTERNS: usize = 96;
/// With at most this many, the stack of an ordinary thread certainly suffices.
const SMALL_PATTERNS: usize = 16;

/// Maximum number of regular expressions of a query; reason: compiling one of the largest takes some hundredths of a second
/// and some MB, and nothing interrupts it.
const MAX_REGEXES: usize = 16;

/// Casts are functions named like XML Schema's datatypes.
const CASTS: &str = "http://www.w3.org/2001/XMLSchema#";

/// The functions that count; a query that names them is refused like any unknown function.
pub(crate) const STEP: &str = "chappe-internal:step";
pub(crate) const ROW: &str = "chappe-internal:row";
pub(crate) const BUILD: &str = "chappe-internal:build";
pub(crate) const PROBE: &str = "chappe-internal:probe";

type Variables = HashSet<Variable>;

/// Rewrites a query's pattern; also collects the traits that affect its cost.
pub(crate) struct Planner<'a> {
    view: &'a View,
    joins: usize,
    /// Whether a path of any length has no certain end.
    pub(crate) has_open_path: bool,
}

/// Rejects unsupported parts of the query, and collects the traits that affect its cost.
pub(crate) fn examine(pattern: &GraphPattern) -> Result<QueryTraits, SparqlError> {
    let mut examiner = Examiner {
        patterns: 0,
        regexes: 0,
        traits: QueryTraits::default(),
    };
    examiner.pattern(pattern)?;
    examiner.traits.variables = all(pattern).len();
    examiner.traits.small = examiner.patterns <= SMALL_PATTERNS;
    Ok(examiner.traits)
}

struct Examiner {
    patterns: usize,
    regexes: usize,
    traits: QueryTraits,
}

impl Examiner {
    fn pattern(&mut self, pattern: &GraphPattern) -> Result<(), SparqlError> {
        use GraphPattern as G;
        let own = match pattern {
            G::Bgp { patterns } => patterns.len(),
            G::Path { .. } | G::Values { .. } => 1,
            _ => 0,
        };
        self.patterns += own;
        if self.patterns > MAX_PATTERNS {
            let value = MAX_PATTERNS as u64;
            return Err(SparqlError::Limit {
                limit: "triple patterns",
                value,
            });
        }
        match pattern {
            G::Bgp { .. } | G::Path { .. } | G::Values { .. } => Ok(()),
            G::Service { .. } => Err(SparqlError::Unsupported("SERVICE")),
            G::Graph { inner, .. } => self.pattern(inner),
            G::Lateral { .. } => Err(SparqlError::Unsupported("LATERAL")),
            G::Join { left, right } | G::Union { left, right } | G::Minus { left, right } => {
                self.pattern(left)?;
                self.pattern(right)
            }
            G::LeftJoin {
                left,
                right,
                expression,
            } => {
                self.pattern(left)?;
                self.pattern(right)?;
                expression
                    .iter()
                    .try_for_each(|expression| self.expression(expression))
            }
            G::Filter { expr, inner } => {
                self.expression(expr)?;
                self.pattern(inner)
            }
            G::Extend {
                inner, expression, ..
            } => {
                self.expression(expression)?;
                self.pattern(inner)
            }
            G::OrderBy { inner, expression } => {
                for order in expression {
                    self.expression(expression::of_order(order))?;
                }
                self.pattern(inner)
            }
            G::Project { inner, .. }
            | G::Distinct { inner }
            | G::Reduced { inner }
            | G::Slice { inner, .. } => self.pattern(inner),
            G::Group {
                inner, aggregates, ..
            } => {
                for (_, aggregate) in aggregates {
                    if let AggregateExpression::FunctionCall { name, expr, .. } = aggregate {
                        let concat = matches!(name, AggregateFunction::GroupConcat { .. });
                        self.traits.texts |= concat;
                        self.expression(expr)?;
                    }
                }
                self.pattern(inner)
            }
        }
    }

    fn expression(&mut self, expression: &Expression) -> Result<(), SparqlError> {
        expression::check_size(expression)?;
        let mut result = Ok(());
        expression::visit(expression, &mut |part| match part {
            Expression::Exists(inner) if result.is_ok() => result = self.pattern(inner),
            Expression::FunctionCall(Function::Custom(name), _)
                if result.is_ok() && !name.as_str().starts_with(CASTS) =>
            {
                result = Err(SparqlError::Unsupported("a function outside SPARQL 1.1"));
            }
            Expression::FunctionCall(Function::Regex, arguments) if result.is_ok() => {
                result = self.regex(arguments.get(1), arguments.get(2));
            }
            Expression::FunctionCall(Function::Replace, arguments) if result.is_ok() => {
                result = self.regex(arguments.get(1), arguments.get(3));
            }
            _ => {}
        });
        result
    }

    fn regex(
        &mut self,
        pattern: Option<&Expression>,
        flags: Option<&Expression>,
    ) -> Result<(), SparqlError> {
        self.traits.slow = true;
        self.regexes += 1;
        if self.regexes > MAX_REGEXES {
            let value = MAX_REGEXES as u64;
            return Err(SparqlError::Limit {
                limit: "regular expressions",
                value,
            });
        }
        expression::check_regex(pattern, flags)
    }
}

impl<'a> Planner<'a> {
    pub(crate) fn new(view: &'a View) -> Self {
        Self {
            view,
            joins: 0,
            has_open_path: false,
        }
    }

    /// Rewrites the pattern. `bound` are the variables that have a value when it is evaluated.
    pub(crate) fn plan(&mut self, pattern: GraphPattern, bound: &Variables) -> GraphPattern {
        use GraphPattern as G;
        match pattern {
            G::Bgp { .. }
            | G::Join { .. }
            | G::Filter { .. }
            | G::Path { .. }
            | G::Graph { .. }
            | G::Values { .. } => self.group(pattern, bound),
            G::LeftJoin {
                left,
                right,
                expression,
            } => self.left_join(*left, *right, expression, bound),
            G::Union { left, right } => {
                let left = Box::new(self.plan(*left, bound));
                count(
                    STEP,
                    0,
                    G::Union {
                        left,
                        right: Box::new(self.plan(*right, bound)),
                    },
                )
            }
            G::Extend {
                inner,
                variable,
                expression,
            } => {
                let known = certain_variables(&inner);
                let expression = self.expression(expression, &known);
                G::Extend {
                    inner: Box::new(self.plan(*inner, bound)),
                    variable,
                    expression,
                }
            }
            G::Minus { left, right } => {
                let number = self.join();
                let left = count(PROBE, number, self.plan(*left, bound));
                let right = count(BUILD, number, self.plan(*right, &Variables::new()));
                G::Minus {
                    left: Box::new(left),
                    right: Box::new(right),
                }
            }
            G::OrderBy { inner, expression } => G::OrderBy {
                inner: Box::new(count(ROW, 0, self.plan(*inner, bound))),
                expression,
            },
            G::Distinct { inner } => G::Distinct {
                inner: Box::new(count(ROW, 0, self.plan(*inner, bound))),
            },
            G::Reduced { inner } => G::Reduced {
                inner: Box::new(self.plan(*inner, bound)),
            },
            G::Project { inner, variables } => G::Project {
                inner: Box::new(self.plan(*inner, bound)),
                variables,
            },
            G::Slice {
                inner,
                start,
                length,
            } => G::Slice {
                inner: Box::new(self.plan(*inner, bound)),
                start,
                length,
            },
            G::Group {
                inner,
                variables,
                aggregates,
            } => {
                let held =
                    variables.len() + aggregates.iter().filter(|(_, a)| holds_rows(a)).count();
                let texts = aggregates
                    .iter()
                    .map(|(_, aggregate)| text_bytes(aggregate))
                    .sum();
                let inner = self.plan(*inner, bound);
                let inner = count(if held > 0 { ROW } else { STEP }, texts, inner);
                G::Group {
                    inner: Box::new(inner),
                    variables,
                    aggregates,
                }
            }
            G::Service { .. } | G::Lateral { .. } => pattern,
        }
    }

    fn join(&mut self) -> usize {
        self.joins += 1;
        self.joins
    }

    /// Plans the patterns inside EXISTS.
    fn expression(&mut self, expression: Expression, bound: &Variables) -> Expression {
        expression::map_exists(expression, &mut |pattern| self.plan(pattern, bound))
    }

    fn left_join(
        &mut self,
        left: GraphPattern,
        right: GraphPattern,
        expression: Option<Expression>,
        bound: &Variables,
    ) -> GraphPattern {
        let outer: Variables = all(&left).union(bound).cloned().collect();
        let known: Variables = certain_variables(&left).union(bound).cloned().collect();
        let expression = expression.map(|expression| self.expression(expression, &known));
        let lateral = fits(&right, &outer);
        let left = self.plan(left, bound);
        if lateral {
            let optional = GraphPattern::LeftJoin {
                left: Box::new(empty()),
                right: Box::new(self.plan(right, &known)),
                expression,
            };
            return lateral_join(left, optional);
        }
        let number = self.join();
        let right = self.plan(right, &Variables::new());
        GraphPattern::LeftJoin {
            left: Box::new(count(PROBE, number, left)),
            right: Box::new(count(BUILD, number, right)),
            expression,
        }
    }

    /// Plans a group: separates joins and filters, orders them, and joins them again.
    fn group(&mut self, pattern: GraphPattern, bound: &Variables) -> GraphPattern {
        let mut filters = Vec::new();
        let inner = split_filters(pattern, &mut filters);
        let known_at_end = certain_variables(&inner);
        let mut parts = Vec::new();
        flatten(inner, &mut parts);
        let (mut steps, others): (Vec<_>, Vec<_>) = parts
            .into_iter()
            .partition(|part| fits(part, bound) && is_step(part));
        let mut filters: Vec<(Variables, bool, Expression)> = filters
            .into_iter()
            .map(|filter| {
                let exists = expression::has_exists(&filter);
                let reads = expression::variables(&filter);
                (reads, exists, self.expression(filter, &known_at_end))
            })
            .collect();
        // Filters need variables that certainly have a value; costs, those that may have one.
        let mut known: Variables = others.iter().flat_map(certain_variables).collect();
        let mut now: Variables = others
            .iter()
            .flat_map(all)
            .chain(bound.iter().cloned())
            .collect();
        let mut chain = self.independent(others, bound);
        while !steps.is_empty() {
            let next = self.cheapest(&steps, &now);
            let step = steps.swap_remove(next);
            self.has_open_path |=
                has_open_path(&step, &|name| known.contains(name) || bound.contains(name));
            known.extend(certain_variables(&step));
            let variables = all(&step);
            let step = self.step(step, &now);
            now.extend(variables);
            chain = Some(match chain {
                None => step,
                Some(chain) => lateral_join(chain, step),
            });
            let (ready, waiting) = filters
                .into_iter()
                .partition(|(reads, exists, _)| !exists && reads.is_subset(&known));
            filters = waiting;
            chain = chain.map(|chain| filtered(chain, ready));
        }
        filtered(chain.unwrap_or_else(empty), filters)
    }

    /// Joins parts that cannot be a step (subqueries, optional parts, groups).
    fn independent(&mut self, parts: Vec<GraphPattern>, bound: &Variables) -> Option<GraphPattern> {
        let mut chain: Option<(GraphPattern, Variables)> = None;
        for part in parts {
            let variables = all(&part);
            chain = Some(match chain {
                None => (self.plan(part, bound), variables),
                Some((chain, before)) => {
                    let together = before.union(&variables).cloned().collect();
                    // No common variable: one runs for each row of the other, and nothing is held
                    // in memory.
                    if before.is_disjoint(&variables) {
                        let part = self.plan(part, &Variables::new());
                        (lateral_join(chain, part), together)
                    } else {
                        let number = self.join();
                        let part = self.plan(part, &Variables::new());
                        let join = GraphPattern::Join {
                            left: Box::new(count(BUILD, number, chain)),
                            right: Box::new(count(PROBE, number, part)),
                        };
                        (count(STEP, 0, join), together)
                    }
                }
            });
        }
        chain.map(|(chain, _)| chain)
    }

    /// Plans the part as a step of the chain.
    fn step(&mut self, part: GraphPattern, bound: &Variables) -> GraphPattern {
        match part {
            GraphPattern::Bgp { .. } | GraphPattern::Path { .. } | GraphPattern::Graph { .. } => {
                part
            }
            GraphPattern::Values { .. } => count(STEP, 0, part),
            other => self.plan(other, bound),
        }
    }

    /// The step with the fewest rows for the bound variables; one that shares no variable comes
    /// last.
    fn cheapest(&self, steps: &[GraphPattern], bound: &Variables) -> usize {
        let cost = |step: &GraphPattern| {
            let variables = all(step);
            let apart = !bound.is_empty() && !variables.is_empty() && variables.is_disjoint(bound);
            (apart, self.rows(step, bound))
        };
        let costs = steps.iter().map(cost).enumerate();
        costs
            .min_by_key(|(_, cost)| *cost)
            .map_or(0, |(index, _)| index)
    }

    /// The expected number of rows of the step for one row before it.
    fn rows(&self, step: &GraphPattern, bound: &Variables) -> u64 {
        match step {
            GraphPattern::Bgp { patterns } => patterns
                .iter()
                .map(|pattern| self.triples(pattern, bound))
                .sum(),
            GraphPattern::Values { bindings, .. } => bindings.len() as u64,
            GraphPattern::Path {
                subject,
                path,
                object,
            } => self.path(subject, path, object, bound),
            GraphPattern::Union { left, right } | GraphPattern::Join { left, right } => self
                .rows(left, bound)
                .saturating_add(self.rows(right, bound)),
            GraphPattern::Filter { inner, .. } | GraphPattern::Extend { inner, .. } => {
                self.rows(inner, bound)
            }
            GraphPattern::Graph { name, inner } => self.graph(name, inner, bound),
            _ => u64::MAX / 4,
        }
    }

    /// Rows of a pattern inside one graph, or of the graph's name alone.
    fn graph(&self, name: &NamedNodePattern, inner: &GraphPattern, bound: &Variables) -> u64 {
        let is_name = *inner == empty();
        let rows = self.rows(inner, bound);
        match name {
            NamedNodePattern::NamedNode(name) => {
                let len = self.view.graph_len(&name.clone().into()) as u64;
                if is_name { len.min(1) } else { rows.min(len) }
            }
            NamedNodePattern::Variable(name) if bound.contains(name) => {
                let average = self.view.average_graph().max(1);
                if is_name { 1 } else { rows.min(average) }
            }
            NamedNodePattern::Variable(_) if is_name => self.view.entities(),
            NamedNodePattern::Variable(_) => rows.saturating_add(self.shared(inner)),
        }
    }

    /// How often the triples of a pattern are brought about something else, if its subject is known.
    fn shared(&self, inner: &GraphPattern) -> u64 {
        let GraphPattern::Bgp { patterns } = inner else {
            return 0;
        };
        let [pattern] = patterns.as_slice() else {
            return 0;
        };
        let predicate = predicate_term(&pattern.predicate);
        let places = [&pattern.subject, &predicate, &pattern.object];
        let known = self.constants(places, &Variables::new());
        known.map_or(0, |(known, _)| self.view.foreign(known) as u64)
    }

    /// Triples per row: the exact count for the constants, divided by the effect of bound
    /// variables.
    fn triples(&self, pattern: &TriplePattern, bound: &Variables) -> u64 {
        let predicate = predicate_term(&pattern.predicate);
        self.matches([&pattern.subject, &predicate, &pattern.object], bound)
    }

    /// The numbers of the constants and which variables are bound; `None` if no visible triple has
    /// one of the constants.
    fn constants(
        &self,
        places: [&TermPattern; 3],
        bound: &Variables,
    ) -> Option<([Option<Id>; 3], [bool; 3])> {
        let mut constants = [None; 3];
        let mut joined = [false; 3];
        for ((place, constant), joined) in places.iter().zip(&mut constants).zip(&mut joined) {
            let term = match place {
                TermPattern::NamedNode(node) => Term::from(node.clone()),
                TermPattern::Literal(literal) => Term::from(literal.clone()),
                TermPattern::Variable(name) => {
                    *joined = bound.contains(name);
                    continue;
                }
                TermPattern::BlankNode(node) => {
                    *joined = bound.contains(&expression::blank_variable(node));
                    continue;
                }
            };
            *constant = Some(self.view.known(&term)?);
        }
        Some((constants, joined))
    }

    fn matches(&self, places: [&TermPattern; 3], bound: &Variables) -> u64 {
        let Some((constants, joined)) = self.constants(places, bound) else {
            return 0;
        };
        let count = self.view.count(constants) as u64;
        // A bound subject has few triples of one predicate; a bound object may have many.
        match joined {
            [true, _, true] => 1.min(count),
            [true, _, false] => (count / self.view.entities().max(1)).clamp(1.min(count), count),
            [false, _, true] => count.isqrt(),
            [false, true, false] => count.isqrt(),
            [false, false, false] => count,
        }
    }

    fn path(
        &self,
        subject: &TermPattern,
        path: &PropertyPathExpression,
        object: &TermPattern,
        bound: &Variables,
    ) -> u64 {
        let any = TermPattern::Variable(Variable::new_unchecked("path"));
        let predicate = expression::only_predicate(path).map(TermPattern::NamedNode);
        let once = self.matches([subject, predicate.as_ref().unwrap_or(&any), object], bound);
        // A path may be long: the estimate is ten times that of one of its edges.
        once.saturating_mul(10).saturating_add(1)
    }
}

/// Whether a path of any length in the step starts and ends at nodes that are not certainly known.
fn has_open_path(step: &GraphPattern, is_known: &dyn Fn(&Variable) -> bool) -> bool {
    let is_open = |end: &TermPattern| match end {
        TermPattern::Variable(name) => !is_known(name),
        TermPattern::BlankNode(_) => true,
        _ => false,
    };
    match step {
        GraphPattern::Path {
            subject,
            path,
            object,
        } => is_open(subject) && is_open(object) && is_endless(path),
        GraphPattern::Graph { inner, .. } | GraphPattern::Filter { inner, .. } => {
            has_open_path(inner, is_known)
        }
        GraphPattern::Join { left, right } | GraphPattern::Union { left, right } => {
            has_open_path(left, is_known) || has_open_path(right, is_known)
        }
        _ => false,
    }
}

/// Whether a path may have any length.
fn is_endless(path: &PropertyPathExpression) -> bool {
    use PropertyPathExpression as P;
    match path {
        P::ZeroOrMore(_) | P::OneOrMore(_) => true,
        P::Reverse(path) | P::ZeroOrOne(path) => is_endless(path),
        P::Sequence(left, right) | P::Alternative(left, right) => {
            is_endless(left) || is_endless(right)
        }
        P::NamedNode(_) | P::NegatedPropertySet(_) => false,
    }
}

fn predicate_term(predicate: &NamedNodePattern) -> TermPattern {
    match predicate {
        NamedNodePattern::NamedNode(node) => TermPattern::NamedNode(node.clone()),
        NamedNodePattern::Variable(name) => TermPattern::Variable(name.clone()),
    }
}

/// Whether the part can be evaluated for each row before it, with that row's values, without a
/// change of meaning. `outer` are the variables that such a row may have.
fn fits(pattern: &GraphPattern, outer: &Variables) -> bool {
    use GraphPattern as G;
    let reads_own = |expression: &Expression, inner: &GraphPattern| {
        let own = certain_variables(inner);
        let reads = expression::variables(expression);
        reads
            .iter()
            .all(|name| own.contains(name) || !outer.contains(name))
    };
    match pattern {
        G::Bgp { .. } | G::Path { .. } | G::Values { .. } | G::Graph { .. } => true,
        G::Join { left, right } | G::Union { left, right } => {
            fits(left, outer) && fits(right, outer)
        }
        G::Filter { expr, inner } => fits(inner, outer) && reads_own(expr, inner),
        G::Extend {
            inner,
            variable,
            expression,
        } => fits(inner, outer) && !outer.contains(variable) && reads_own(expression, inner),
        _ => false,
    }
}

/// Whether a part that can be evaluated for any row may be ordered freely.
fn is_step(pattern: &GraphPattern) -> bool {
    match pattern {
        GraphPattern::Bgp { .. }
        | GraphPattern::Path { .. }
        | GraphPattern::Graph { .. }
        | GraphPattern::Values { .. } => true,
        GraphPattern::Union { left, right } | GraphPattern::Join { left, right } => {
            is_step(left) && is_step(right)
        }
        _ => false,
    }
}

/// Splits joins into parts and basic patterns into single triples.
fn flatten(pattern: GraphPattern, parts: &mut Vec<GraphPattern>) {
    match pattern {
        GraphPattern::Join { left, right } => {
            flatten(*left, parts);
            flatten(*right, parts);
        }
        GraphPattern::Bgp { patterns } => {
            parts.extend(patterns.into_iter().map(|one| GraphPattern::Bgp {
                patterns: vec![one],
            }));
        }
        other => parts.push(other),
    }
}

/// Removes the filters from the pattern and splits their conjunctions.
fn split_filters(pattern: GraphPattern, filters: &mut Vec<Expression>) -> GraphPattern {
    fn split(expression: Expression, filters: &mut Vec<Expression>) {
        match expression {
            Expression::And(left, right) => {
                split(*left, filters);
                split(*right, filters);
            }
            other => filters.push(other),
        }
    }
    match pattern {
        GraphPattern::Filter { expr, inner } => {
            split(expr, filters);
            split_filters(*inner, filters)
        }
        other => other,
    }
}

fn filtered(pattern: GraphPattern, filters: Vec<(Variables, bool, Expression)>) -> GraphPattern {
    let all = filters.into_iter().map(|(_, _, filter)| filter);
    match all.reduce(|left, right| Expression::And(Box::new(left), Box::new(right))) {
        None => pattern,
        Some(expr) => GraphPattern::Filter {
            expr,
            inner: Box::new(pattern),
        },
    }
}

fn empty() -> GraphPattern {
    GraphPattern::Bgp {
        patterns: Vec::new(),
    }
}

fn lateral_join(left: GraphPattern, right: GraphPattern) -> GraphPattern {
    GraphPattern::Lateral {
        left: Box::new(left),
        right: Box::new(right),
    }
}

/// Wraps `inner` so that each of its rows counts as held.
pub(crate) fn held(inner: GraphPattern) -> GraphPattern {
    count(ROW, 0, inner)
}

/// Wraps `inner` so that `function` counts each of its rows.
fn count(function: &str, argument: usize, inner: GraphPattern) -> GraphPattern {
    let function = Function::Custom(NamedNode::new_unchecked(function));
    let argument = Expression::Literal(Literal::from(argument as u64));
    let expr = Expression::FunctionCall(function, vec![argument]);
    GraphPattern::Filter {
        expr,
        inner: Box::new(inner),
    }
}

/// Whether an aggregate holds a value for each row.
fn holds_rows(aggregate: &AggregateExpression) -> bool {
    match aggregate {
        AggregateExpression::CountSolutions { distinct } => *distinct,
        AggregateExpression::FunctionCall { name, distinct, .. } => {
            *distinct || matches!(name, AggregateFunction::GroupConcat { .. })
        }
    }
}

/// Bytes that an aggregate adds for each row in addition to the terms it reads.
fn text_bytes(aggregate: &AggregateExpression) -> usize {
    match aggregate {
        AggregateExpression::FunctionCall {
            name: AggregateFunction::GroupConcat { separator },
            expr,
            ..
        } => separator.as_ref().map_or(1, String::len) + expression::made_bytes(expr),
        _ => 0,
    }
}

/// Variables that have a value in every row of the pattern.
pub(crate) fn certain_variables(pattern: &GraphPattern) -> Variables {
    use GraphPattern as G;
    match pattern {
        G::Bgp { .. } | G::Path { .. } | G::Graph { .. } => all(pattern),
        G::Values {
            variables,
            bindings,
        } => {
            let bound = |column: usize| {
                bindings
                    .iter()
                    .all(|row| matches!(row.get(column), Some(Some(_))))
            };
            let columns = variables
                .iter()
                .enumerate()
                .filter(|(column, _)| bound(*column));
            columns.map(|(_, name)| name.clone()).collect()
        }
        G::Join { left, right } | G::Lateral { left, right } => certain_variables(left)
            .union(&certain_variables(right))
            .cloned()
            .collect(),
        G::Union { left, right } => certain_variables(left)
            .intersection(&certain_variables(right))
            .cloned()
            .collect(),
        G::LeftJoin { left, .. } | G::Minus { left, .. } => certain_variables(left),
        G::Filter { inner, .. }
        | G::Extend { inner, .. }
        | G::OrderBy { inner, .. }
        | G::Distinct { inner }
        | G::Reduced { inner }
        | G::Slice { inner, .. } => certain_variables(inner),
        G::Project { inner, variables } => {
            let inner = certain_variables(inner);
            variables
                .iter()
                .filter(|name| inner.contains(name))
                .cloned()
                .collect()
        }
        G::Group {
            inner, variables, ..
        } => {
            let inner = certain_variables(inner);
            variables
                .iter()
                .filter(|name| inner.contains(name))
                .cloned()
                .collect()
        }
        G::Service { .. } => Variables::new(),
    }
}

/// All variables that occur anywhere in the pattern, including those of hidden scopes.
pub(crate) fn all(pattern: &GraphPattern) -> Variables {
    let mut found = Variables::new();
    expression::pattern_variables(pattern, &mut found);
    found
}
