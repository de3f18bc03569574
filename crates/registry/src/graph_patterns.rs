//! Moves GRAPH from groups to the single patterns inside them, which is where the evaluator reads a
//! graph's name.
//!
//! SPARQL 1.1 (section 18.6, `eval(D(G), Graph(var, P))`) evaluates the group once for each graph
//! and then joins the graph's name. To do the same, every part of a group names the graph: a part
//! without a triple pattern, such as a table, is joined with the list of graph names. A subquery
//! under a variable would group and cut the rows of all graphs at once, so it is refused.
//!
//! Paths become patterns here, too, as far as they are not repeated.

use oxrdf::BlankNode;
use spargebra::algebra::{Expression, GraphPattern, OrderExpression, PropertyPathExpression};
use spargebra::term::{NamedNodePattern, TermPattern, TriplePattern};

use crate::expression;
use crate::limits::SparqlError;
use crate::plan::{all, certain_variables};

type Pattern = Result<GraphPattern, SparqlError>;

/// The pattern with GRAPH only around single patterns, or around nothing.
pub(crate) fn push(pattern: GraphPattern) -> Pattern {
    inside(pattern, None)
}

fn inside(pattern: GraphPattern, graph: Option<&NamedNodePattern>) -> Pattern {
    use GraphPattern as G;
    let boxed = |inner: Box<G>| inside(*inner, graph).map(Box::new);
    let is_variable = matches!(graph, Some(NamedNodePattern::Variable(_)));
    Ok(match pattern {
        G::Bgp { patterns } if graph.is_some() => {
            let single = patterns.into_iter().map(|one| G::Bgp {
                patterns: vec![one],
            });
            let named = single.map(|one| named(one, graph));
            named.reduce(joined).unwrap_or_else(|| named_graphs(graph))
        }
        G::Path {
            subject,
            path,
            object,
        } => match steps(subject, path, object) {
            step @ G::Path { .. } => named(step, graph),
            steps => inside(steps, graph)?,
        },
        G::Values { .. } if graph.is_some() => joined(named_graphs(graph), pattern),
        G::Bgp { .. } | G::Values { .. } => pattern,
        G::Graph { name, inner } => {
            let inner = inside(*inner, Some(&name))?;
            match graph {
                // The outer graph contributes its name only.
                Some(outer) if *outer != name => joined(named_graphs(graph), inner),
                _ => inner,
            }
        }
        // A table needs no list of names if the other side names the graph.
        G::Join { left, right } => match (*left, *right) {
            (table @ G::Values { .. }, other) | (other, table @ G::Values { .. }) => {
                joined(inside(other, graph)?, table)
            }
            (left, right) => joined(inside(left, graph)?, inside(right, graph)?),
        },
        G::Lateral { left, right } => G::Lateral {
            left: boxed(left)?,
            right: boxed(right)?,
        },
        G::Union { left, right } => G::Union {
            left: boxed(left)?,
            right: boxed(right)?,
        },
        G::LeftJoin {
            left,
            right,
            expression,
        } => G::LeftJoin {
            left: boxed(left)?,
            right: boxed(right)?,
            expression: expression.map(|it| exists(it, graph)).transpose()?,
        },
        G::Minus { left, right } if is_variable => minus(*left, *right, graph)?,
        G::Minus { left, right } => G::Minus {
            left: boxed(left)?,
            right: boxed(right)?,
        },
        G::Filter { expr, inner } => G::Filter {
            expr: exists(expr, graph)?,
            inner: boxed(inner)?,
        },
        G::Extend { variable, .. } if is(graph, &variable) => {
            return Err(SparqlError::Unsupported(
                "a value for the variable of GRAPH inside its group",
            ));
        }
        G::Extend {
            inner,
            variable,
            expression,
        } => G::Extend {
            inner: boxed(inner)?,
            variable,
            expression: exists(expression, graph)?,
        },
        G::Service { .. } => pattern,
        _ if is_variable => {
            return Err(SparqlError::Unsupported(
                "a subquery inside GRAPH with a variable (write GRAPH inside the subquery)",
            ));
        }
        other => modifier(other, graph)?,
    })
}

/// A path as SPARQL 1.1 translates it (section 18.2.2.4): alternatives are a union, in which a row may occur
/// twice, and a sequence is a join. The evaluator would count a row of two alternatives once.
fn steps(subject: TermPattern, path: PropertyPathExpression, object: TermPattern) -> GraphPattern {
    use PropertyPathExpression as P;
    match path {
        P::NamedNode(predicate) => GraphPattern::Bgp {
            patterns: vec![TriplePattern {
                subject,
                predicate: predicate.into(),
                object,
            }],
        },
        P::Reverse(path) => steps(object, *path, subject),
        P::Alternative(left, right) => GraphPattern::Union {
            left: Box::new(steps(subject.clone(), *left, object.clone())),
            right: Box::new(steps(subject, *right, object)),
        },
        P::Sequence(left, right) => {
            let middle = TermPattern::from(BlankNode::default());
            let left = steps(subject, *left, middle.clone());
            joined(left, steps(middle, *right, object))
        }
        path => GraphPattern::Path {
            subject,
            path,
            object,
        },
    }
}

/// The parts of a subquery.
fn modifier(pattern: GraphPattern, graph: Option<&NamedNodePattern>) -> Pattern {
    use GraphPattern as G;
    let boxed = |inner: Box<G>| inside(*inner, graph).map(Box::new);
    Ok(match pattern {
        G::OrderBy { inner, expression } => G::OrderBy {
            inner: boxed(inner)?,
            expression: expression
                .into_iter()
                .map(|order| {
                    Ok(match order {
                        OrderExpression::Asc(it) => OrderExpression::Asc(exists(it, graph)?),
                        OrderExpression::Desc(it) => OrderExpression::Desc(exists(it, graph)?),
                    })
                })
                .collect::<Result<_, SparqlError>>()?,
        },
        G::Project { inner, variables } => G::Project {
            inner: boxed(inner)?,
            variables,
        },
        G::Distinct { inner } => G::Distinct {
            inner: boxed(inner)?,
        },
        G::Reduced { inner } => G::Reduced {
            inner: boxed(inner)?,
        },
        G::Slice {
            inner,
            start,
            length,
        } => G::Slice {
            inner: boxed(inner)?,
            start,
            length,
        },
        G::Group {
            inner,
            variables,
            aggregates,
        } => G::Group {
            inner: boxed(inner)?,
            variables,
            aggregates,
        },
        other => other,
    })
}

/// MINUS inside GRAPH with a variable. Both sides name the graph, but only a variable that they have
/// in common otherwise lets a row of the right side remove one of the left.
fn minus(left: GraphPattern, right: GraphPattern, graph: Option<&NamedNodePattern>) -> Pattern {
    let (may_have, may_remove) = (all(&left), all(&right));
    let mut shared = may_have.intersection(&may_remove);
    if !shared.any(|name| !is(graph, name)) {
        return inside(left, graph);
    }
    let (has, removes) = (certain_variables(&left), certain_variables(&right));
    let mut shared = has.intersection(&removes);
    if !shared.any(|name| !is(graph, name)) {
        return Err(SparqlError::Unsupported(
            "MINUS inside GRAPH with a variable, over variables that may have no value",
        ));
    }
    Ok(GraphPattern::Minus {
        left: Box::new(inside(left, graph)?),
        right: Box::new(inside(right, graph)?),
    })
}

/// Moves GRAPH into the patterns of EXISTS.
fn exists(
    expression: Expression,
    graph: Option<&NamedNodePattern>,
) -> Result<Expression, SparqlError> {
    let mut refused = None;
    let expression = expression::map_exists(expression, &mut |pattern| {
        inside(pattern, graph).unwrap_or_else(|error| {
            refused = Some(error);
            GraphPattern::default()
        })
    });
    refused.map_or(Ok(expression), Err)
}

fn is(graph: Option<&NamedNodePattern>, variable: &oxrdf::Variable) -> bool {
    matches!(graph, Some(NamedNodePattern::Variable(name)) if name == variable)
}

fn joined(left: GraphPattern, right: GraphPattern) -> GraphPattern {
    GraphPattern::Join {
        left: Box::new(left),
        right: Box::new(right),
    }
}

fn named(inner: GraphPattern, graph: Option<&NamedNodePattern>) -> GraphPattern {
    match graph {
        None => inner,
        Some(name) => GraphPattern::Graph {
            name: name.clone(),
            inner: Box::new(inner),
        },
    }
}

/// The names of all graphs, or whether the named one exists.
fn named_graphs(graph: Option<&NamedNodePattern>) -> GraphPattern {
    named(GraphPattern::default(), graph)
}
